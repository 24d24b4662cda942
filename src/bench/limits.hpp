// The physical limits that a step is held against, measured in the same run, on the same ranks at once.
#pragma once
#include "bench/session.hpp"
#include "dataparallel/world/fabric.hpp"

namespace gradmeter::bench {

struct Limits {
  core::FlopsPerSecond peak;  ///< of one rank while all compute: the slowest rank's best GEMM
  core::BytesPerSecond link;  ///< sent by one rank while all send to their neighbour; 0 for one rank
};

/// Collective over `c`. Costs about a quarter of a second.
core::FlopsPerSecond measure_peak(Session&, const runtime::Communicator& c, int threads);
core::BytesPerSecond measure_link(Session&, const runtime::Communicator& c, dataparallel::TransportKind);

/// No implementation of this exchange can take less: all floating-point work at the peak, or what a rank must send, at
/// the link's rate. Perfect overlap makes it their maximum.
struct LowerBound {
  double compute_s = 0, exchange_s = 0;
  double seconds() const { return compute_s > exchange_s ? compute_s : exchange_s; }
  const char* name() const { return compute_s >= exchange_s ? "compute" : "link"; }
};
LowerBound lower_bound(const Limits&, double flops_per_rank, double bytes_per_rank);

}  // namespace gradmeter::bench
