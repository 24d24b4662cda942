// One codec on one gradient: checked, then its calls and a plain copy timed in turn.
#pragma once
#include <memory>

#include "bench/codecs/calls.hpp"
#include "bench/codecs/steps.hpp"
#include "bench/engine/sweep.hpp"
#include "runtime/cuda/gpu_gauge.hpp"

namespace gradmeter::bench {

/// One thread. `gradient`, the device and what reads it must outlive it. Errors: Interrupted.
class CodecBenchmark {
 public:
  CodecBenchmark(const CodecPoint&, const CodecFactors&, std::span<const float> gradient, std::uint64_t seed,
                 runtime::Device&, const runtime::GpuGauge* = nullptr);

  /// Checks results before anything is timed. False: the row says what is wrong, and nothing must be timed.
  bool check(core::Point& row);
  /// Warm-up, rounds in turn until each call's time is known well enough, then the row.
  void measure(const RoundPeers&, const RoundOptions&, core::Point& row);

 private:
  void measure_error();

  const CodecPoint& point_;
  const CodecFactors& factors_;
  std::unique_ptr<CodecSteps> steps_;  ///< of a codec that consists of collectives; null for others
  const compression::Codec& codec_;
  std::span<const float> x_;
  CodecTask task_;
  const runtime::GpuGauge* gauge_;
  std::unique_ptr<CodecCalls> calls_;
  CodecFindings findings_;
};

}  // namespace gradmeter::bench
