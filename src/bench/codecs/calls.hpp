// The calls of a codec that are timed, on one device.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bench/codecs/row.hpp"
#include "runtime/device.hpp"

namespace gradmeter::bench {

/// One codec, one gradient. One thread.
class CodecCalls {
 public:
  virtual ~CodecCalls() = default;
  virtual bool has(CodecCall) const = 0;
  /// Before anything is timed: what is wrong with what the calls compute; empty: nothing.
  virtual std::string fault() = 0;
  /// Seconds of each of so many calls, one after another.
  virtual std::vector<double> time(CodecCall, std::size_t iterations) = 0;
};

/// What both devices' calls take. All of it outlives them.
struct CodecTask {
  const compression::CodecChoice& choice;
  const compression::Codec& codec;  ///< the choice's, or its steps
  std::span<const float> gradient;
  std::size_t parts = 4;  ///< encoded gradients that are added up and encoded again
  std::uint64_t seed = 1;

  bool has_steps() const { return choice.codec == nullptr; }
  compression::Draw draw(std::size_t part = 0) const {
    return {.seed = seed, .rank = static_cast<std::uint32_t>(part)};
  }
};

std::unique_ptr<CodecCalls> make_host_calls(const CodecTask&);
/// Errors: UsageError where the codec has no form on the device; BackendError.
std::unique_ptr<CodecCalls> make_device_calls(const CodecTask&, runtime::Device&);
/// Why the codec has none; empty: it has.
std::string device_calls_refusal(const compression::CodecChoice&, const runtime::Device&);

}  // namespace gradmeter::bench
