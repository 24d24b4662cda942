// One codec on one gradient: checked, then its calls and a plain copy timed in turn.
#pragma once
#include <array>
#include <deque>
#include <memory>
#include <vector>

#include "bench/codecs/row.hpp"
#include "bench/codecs/steps.hpp"
#include "bench/engine/sweep.hpp"
#include "compression/reducer.hpp"
#include "runtime/transport/arena.hpp"

namespace gradmeter::bench {

/// One thread. `gradient` must outlive it. Errors: Interrupted.
class CodecBenchmark {
 public:
  CodecBenchmark(const CodecPoint&, const CodecFactors&, std::span<const float> gradient, std::uint64_t seed);

  /// Checks results before anything is timed. False: the row says what is wrong, and nothing must be timed.
  bool check(core::Point& row);
  /// Warm-up, rounds in turn until each call's time is known well enough, then the row.
  void measure(const RoundPeers&, const RoundOptions&, core::Point& row);

 private:
  compression::Draw draw(std::uint64_t step) const { return {.seed = seed_, .step = step}; }
  void measure_error();
  bool sums_like_decode();
  bool has(CodecCall) const;
  void call(CodecCall);

  const CodecPoint& point_;
  const CodecFactors& factors_;
  std::unique_ptr<CodecSteps> steps_;  ///< of a codec that consists of collectives; null for others
  const compression::Codec& codec_;
  std::span<const float> x_;
  std::uint64_t seed_;
  runtime::PrivateArena memory_;
  std::span<float> y_;
  std::vector<std::span<std::byte>> memory_of_parts_;
  std::vector<std::span<const std::byte>> parts_;  ///< with their actual lengths
  std::span<std::byte> wire_;
  compression::Reducer reducer_;
  CodecFindings findings_;
};

}  // namespace gradmeter::bench
