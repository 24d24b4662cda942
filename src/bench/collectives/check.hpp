// Compares a collective's results with known data, over all ranks.
#pragma once
#include <cstdint>
#include <string>

#include "allreduce/known_collective.hpp"
#include "bench/collectives/stage.hpp"
#include "bench/engine/coded_data.hpp"

namespace gradmeter::bench {

/// Over all ranks.
struct CheckFinding {
  std::uint64_t wrong = 0;  ///< elements outside the tolerance, summed over ranks
  double error = 0;         ///< the largest relative error; with a codec the sum's, relative and squared
  bool same_bits = true;    ///< all ranks hold the same; true where their results differ by definition
  std::string fault = {};   ///< why a coded sum cannot come from its codec; empty: it can
  bool is_right() const { return wrong == 0 && same_bits; }
  /// The worse of both.
  void add(const CheckFinding&);
};

allreduce::KnownCollective known_call(const CollectivePoint&, allreduce::Pattern, std::uint64_t seed, int ranks);
/// Before the call.
void give_known(const allreduce::KnownCollective&, int rank, CollectiveBuffers);
/// After the call. Collective over `c`.
CheckFinding check_known(const allreduce::KnownCollective&, const runtime::Communicator& c,
                         std::span<const std::byte> result);
/// With a codec: one worker's gradient as input.
void give_gradient(std::uint64_t seed, int rank, CollectiveBuffers);
/// Before a call that is to be checked.
void give_coded(const CodedTensor&, const runtime::Communicator& c, CollectiveBuffers);
/// Collective over `c`, after the call. What a codec may lose is its error, not wrong. Elements that differ from rank
/// 0's are wrong; all are wrong where the sum cannot come from this codec.
CheckFinding check_coded(const CodedTensor&, const runtime::Communicator& c, std::span<const std::byte> result);
/// Fills buffers for timing without a codec: 1 for floats, which no operation turns into a subnormal number when it is
/// repeated in place, 0 for integers, which do not overflow. Not all zeros: some processors store those for less.
void fill_for_timing(const CollectivePoint&, CollectiveBuffers);

}  // namespace gradmeter::bench
