// The codec sweep: encode, decode, reduce, error and wire size of each codec, in one process.
#pragma once
#include <optional>
#include <string>

#include "bench/codecs/plan.hpp"
#include "bench/engine/sweep.hpp"
#include "core/statistics.hpp"
#include "runtime/cuda/gpu_gauge.hpp"
#include "runtime/process/signals.hpp"

namespace gradmeter::bench {

struct CodecOptions {
  CodecFactors factors;
  core::StoppingRule rule;
  std::optional<core::Seconds> time_budget;  ///< for all points together, shared out evenly
  std::uint64_t seed = 1;
  runtime::Device* device = nullptr;         ///< that codes; null: the host
  const runtime::GpuGauge* gauge = nullptr;  ///< of that device; null: there is nothing to read
  std::size_t memory_bytes = 0;              ///< a point that needs more is skipped; 0: unknown, none is
};

/// One thread, no ranks. `finished`: points of earlier runs by Factors::key(). Gives the number of wrong points.
/// Cost: 3 s a point at most unless a budget is given, checks apart. Errors: Interrupted.
std::size_t run_codecs(const CodecOptions&, const FinishedRows& finished, const runtime::SignalWatch&,
                       const RowListener&);

}  // namespace gradmeter::bench
