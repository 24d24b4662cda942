// SPDX-License-Identifier: Apache-2.0
// Measures a codec, and turns the measurement into a row: times, wire bits, error and its expected value, the
// break-even rate.
#pragma once
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bench/codecs/codecs.hpp"
#include "bench/engine/machine_state.hpp"
#include "bench/engine/sweep.hpp"
#include "compression/codec.hpp"
#include "compression/expected_error.hpp"
#include "core/statistics.hpp"
#include "dataparallel/server/chunk_codec.hpp"
#include "runtime/cuda/nvml.hpp"
#include "runtime/device.hpp"

namespace gradmeter::bench {

/// The calls that are timed in turn: a plain copy, a plain addition, and those of the codec.
enum class CodecCall : std::uint8_t { copy, add, encode, decode, decode_add, reduce_encode };
inline constexpr std::size_t codec_call_count = 6;
core::Metric metric_of(CodecCall);

/// The error of one encoding of the gradient; a recorded gradient is encoded tensor by tensor, as training does it.
/// squared_error: ‖decoded − gradient‖², the mean over `draws` encodings. squared_norm: ‖gradient‖².
/// expected: `squared_error` by theory; empty: no formula is known.
struct CodecError {
  double squared_error = 0, squared_norm = 0;
  std::size_t draws = 1;
  std::optional<compression::ExpectedError> expected;
  std::string fault = {};  ///< what is wrong with the results of the timed calls; empty: nothing
};

struct CodecFindings {
  const CodecPoint& point;
  const compression::Codec& codec;  ///< the codec of the point, or its CodecSteps (below)
  std::size_t wire_bytes = 0;       ///< bytes that the encoding took
  /// Bytes that the encoding must take (at most, if the codec is variable()); empty: codec.wire_bytes of all elements.
  std::optional<std::size_t> declared_bytes = {};
  CodecError error;
  std::array<core::Summary, codec_call_count> times{};  ///< empty summaries for calls that this codec does not have
  std::span<const double> encode_times;                 ///< all samples of encode [s]
  MachineNoise noise;
};

/// Fills in error and wire bits. If they are not as required, the status is `wrong`, and the codec is not timed.
void fill_codec_check(const CodecFindings&, core::Point& row);
/// Fills in times, and the break-even rate if the codec is used in a reduce-scatter and an all-gather.
void fill_codec_times(const CodecFindings&, const CodecFactors&, core::Point& row);

// The calls of a codec that are timed, on one device.

/// Calls of one codec on one gradient, for use by one thread.
class CodecCalls {
 public:
  virtual ~CodecCalls() = default;
  virtual bool has(CodecCall) const = 0;
  /// Checks the results of the calls before anything is timed. Returns what is wrong; empty: nothing.
  virtual std::string fault() = 0;
  /// The times of `iterations` calls, made one after another [s].
  virtual std::vector<double> time(CodecCall, std::size_t iterations) = 0;
};

/// The input of the calls, in the host's memory. All references must outlive the calls.
struct CodecTask {
  const compression::CodecChoice& choice;
  const compression::Codec& codec;  ///< the codec of the choice, or its CodecSteps
  std::span<const float> gradient;
  std::size_t parts = 4;  ///< number of encoded gradients that are added up and encoded again
  std::uint64_t seed = 1;

  /// True for a codec without an encode and a decode of its own, which is defined by the collectives that it runs (dgc,
  /// powersgd, randomk).
  bool has_steps() const { return choice.codec == nullptr; }
  /// The random draw for encoding one of the parts; each part has its own.
  compression::RandomDraw draw(std::size_t part = 0) const {
    return {.seed = seed, .rank = static_cast<std::uint32_t>(part)};
  }
};

std::unique_ptr<CodecCalls> make_host_calls(const CodecTask&);
/// Makes the calls on a device. Errors: UsageError where the codec cannot run on the device; BackendError.
std::unique_ptr<CodecCalls> make_device_calls(const CodecTask&, runtime::Device&);
/// The reason why the codec has no calls on the device; empty: it has.
std::string device_calls_refusal(const compression::CodecChoice&, const runtime::Device&);

// A codec that consists of collectives (dgc, powersgd, randomk) is measured by the steps that one rank makes for it.
// These steps are timed as its encode and decode.

/// The steps of a codec that consists of collectives, in the form of a Codec for one tensor of n elements. It encodes
/// and decodes as a worker does for messages to a parameter server (dataparallel/server/chunk_codec.hpp), with the
/// worker's state (a residual, momentum, a basis). The state changes from call to call as in training, so unlike other
/// codecs this one is not immutable. `decode` takes an encoding that was made with the draw of the last `encode`.
class CodecSteps final : public compression::Codec {
 public:
  /// senders: the number of ranks that a training with this codec would have. shape: the tensor as a matrix, where it
  /// is known.
  CodecSteps(const compression::CodecChoice&, std::size_t n, std::size_t senders,
             const std::optional<compression::MatrixShape>& shape = {});
  std::size_t grain() const override { return compression::whole_tensor; }
  std::size_t wire_bytes(std::size_t n) const override { return steps_->wire_bytes(n); }
  bool variable() const override { return steps_->variable(); }
  std::size_t encode(std::span<const float> x, std::byte* wire, const compression::RandomDraw&) const override;
  void decode(std::span<const std::byte> wire, std::span<float> out) const override;
  void decode_add(std::span<const std::byte> wire, std::span<const float> addend, std::span<float> out) const override;
  /// Returns to the state before the first call.
  void forget() { encoder_ = steps_->encoder(n_); }

 private:
  dataparallel::ChunkCodecPtr steps_;
  std::size_t n_;
  dataparallel::ChunkEncoder encoder_;
  mutable compression::RandomDraw draw_;  ///< draw of the last `encode`
};

/// The reason why a tensor of n elements cannot be measured by steps; empty: it can be.
std::string codec_steps_refusal(const compression::CodecChoice&, std::size_t n, std::size_t senders);

// Measures one codec on one gradient: it is checked, then its calls and a plain copy are timed in turn.

/// For use by one thread. All arguments but the seed must outlive the object. Errors: Interrupted.
class CodecBenchmark {
 public:
  CodecBenchmark(const CodecPoint&, const CodecFactors&, std::span<const float> gradient, std::uint64_t seed,
                 runtime::Device&, const runtime::GpuGauge* = nullptr);

  /// Checks results before anything is timed. False: the row says what is wrong, and nothing must be timed.
  bool check(core::Point& row);
  /// Warms up, then takes rounds of the calls in turn until each call's time is known well enough, and fills in the
  /// row.
  void measure(const RoundPeers&, const RoundOptions&, core::Point& row);

 private:
  void measure_error();
  void measure_tensor(const compression::GradientTensor&, std::uint32_t number);

  const CodecPoint& point_;
  const CodecFactors& factors_;
  std::unique_ptr<CodecSteps> steps_;  ///< for a codec that consists of collectives; null for others
  const compression::Codec& codec_;
  std::span<const float> gradient_;
  CodecTask task_;
  const runtime::GpuGauge* gauge_;
  std::unique_ptr<CodecCalls> calls_;
  CodecFindings findings_;
};

}  // namespace gradmeter::bench
