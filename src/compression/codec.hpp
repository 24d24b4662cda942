// SPDX-License-Identifier: Apache-2.0
// The module's interface: a codec encodes a span of fp32 as bytes for the wire, and decodes them. It keeps no state.
// State, shapes and collectives are handled by the modules above (allreduce/coded).
#pragma once
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/host_device.hpp"

namespace gradmeter::compression {

/// Selects the random numbers of a rounding. They are computed from these members and the element's index alone,
/// without a generator's state, so codes depend neither on threads nor on the instruction set, and ranks draw
/// independently.
struct RandomDraw {
  std::uint64_t seed = 0, step = 0;
  /// `phase` distinguishes the encodings that one rank makes of a tensor in a step: each round of a schedule makes one.
  std::uint32_t tensor = 0, rank = 0, phase = 0;
  /// Index in the tensor of the span's first element; element i of the span uses the random number of index first + i.
  std::uint64_t first = 0;

  /// A hash of all members but `first`: draws that differ in any of them have unrelated keys.
  std::uint64_t key() const;
};

/// Rounds a number of bytes up to a multiple of 16, the unit of the wire.
GRADMETER_HOST_DEVICE constexpr std::size_t padded(std::size_t bytes) { return (bytes + 15) / 16 * 16; }
/// The bytes of n packed codes of `bits` bits each, padded. It does not overflow for any n that memory holds.
GRADMETER_HOST_DEVICE constexpr std::size_t code_bytes(std::size_t n, std::size_t bits) {
  return padded(n / 8 * bits + (n % 8 * bits + 7) / 8);
}
/// The bytes of the fp32 scales of n elements, one for each `bucket` elements, padded.
GRADMETER_HOST_DEVICE constexpr std::size_t scale_bytes(std::size_t n, std::size_t bucket) {
  return padded(4 * (n / bucket + (n % bucket != 0)));
}

/// The layout of a wire that holds one scale for each bucket first, and then the codes.
struct WireLayout {
  std::size_t bucket = 512;     ///< elements that share a scale
  std::size_t bits = 8;         ///< bits of one code
  std::size_t scale_width = 4;  ///< bytes of a bucket's scale

  std::size_t buckets(std::size_t n) const { return n / bucket + (n % bucket != 0); }
  std::size_t scale_bytes(std::size_t n) const { return padded(scale_width * buckets(n)); }  ///< bytes of all scales
  /// The bytes of all scales and codes.
  std::size_t total_bytes(std::size_t n) const { return scale_bytes(n) + code_bytes(n, bits); }
};

/// The grain of a codec whose spans must not be cut, because its encoding depends on all elements of a tensor together.
inline constexpr std::size_t whole_tensor = std::numeric_limits<std::size_t>::max();

/// A codec is immutable, and any number of threads may use it. An encoding has no header and is little-endian. If the
/// codec has a `layout`, all scales come first, then the codes; both parts are padded to 16 bytes. A code has b bits:
/// that of element i begins at bit i·b, least significant bit first. An element that is not finite makes its whole
/// bucket decode to NaN (`topk`: the whole tensor; fp16 and bf16: at most the element itself). Spans may be empty, and
/// wire memory needs no alignment. Source and destination of a call must not overlap, except that the `addend` of
/// decode_add may be `out` itself.
class Codec {
 public:
  explicit Codec(std::string name) : name_(std::move(name)) {}
  virtual ~Codec() = default;
  const std::string& name() const { return name_; }  ///< canonical: all parameters written out

  /// A tensor may be cut into spans at multiples of this [elements]: 1, the bucket, or whole_tensor.
  virtual std::size_t grain() const = 0;
  /// The exact number of bytes that n elements take, which depends on n alone; if `variable()`, an upper bound.
  virtual std::size_t wire_bytes(std::size_t n) const = 0;
  /// The layout of the wire, by which a part of it can be decoded alone; empty where that is impossible.
  virtual std::optional<WireLayout> layout() const { return std::nullopt; }
  /// True where the size of an encoding depends on the data, so that its length must be sent ahead.
  virtual bool variable() const { return false; }

  /// Returns the number of bytes written: wire_bytes(x.size()), or fewer if `variable()`.
  virtual std::size_t encode(std::span<const float> x, std::byte* wire, const RandomDraw&) const = 0;
  virtual void decode(std::span<const std::byte> wire, std::span<float> out) const = 0;
  /// out[i] = addend[i] + decoded[i], added in fp32.
  virtual void decode_add(std::span<const std::byte> wire, std::span<const float> addend,
                          std::span<float> out) const = 0;
  /// out[i] = the sum of what the wires decode to for element first + i, added in the order of `wires`. There is at
  /// least one wire, and each encodes n elements. Without a `layout` only whole spans can be added up; with one,
  /// `first` is a multiple of the bucket and of 128.
  virtual void decode_sum(std::span<const std::span<const std::byte>> wires, std::size_t n, std::size_t first,
                          std::span<float> out) const;

  /// The same codec with plain loops, one element at a time. It writes the same bytes and decodes to the same bits, so
  /// tests compare the fast loops with it.
  virtual const Codec& reference() const { return *this; }

 private:
  std::string name_;
};

/// Error feedback adds what one encoding lost to the next: p = x + residual is encoded, and residual = p - decoded.
/// `scratch` [x.size()] gets the decoded p. `residual` [x.size()] must not overlap x, scratch or wire. An element of
/// the residual that is not finite restarts at 0, so that one bad gradient does not spoil all that follow. Returns the
/// number of bytes written.
/// Source: Seide et al., Interspeech 2014; Karimireddy et al., ICML 2019.
std::size_t encode_with_feedback(const Codec&, std::span<const float> x, std::span<float> residual,
                                 std::span<float> scratch, std::byte* wire, const RandomDraw&);

/// Does the work of the rank that owns a block in a compressed exchange: adds up encoded spans in fp32, in their order,
/// and encodes the sum. For a codec with a `layout` it works in tiles of whole buckets, usually 2 Ki elements, so that
/// the sum stays in the L1 cache: with P spans and w bits an element on the wire, it reads P·w/8 and writes w/8 bytes
/// of memory an element. If inputs and output have 32 MiB or more together, it writes by non-temporal stores. For other
/// codecs, and for buckets above 64 Ki elements, it sums whole spans through memory; both ways give the same bits. It
/// keeps scratch between calls, so only one thread may use it at a time.
class Reducer {
 public:
  /// `longest`: the longest span that will be given [elements].
  Reducer(const Codec&, std::size_t longest);
  /// `wires`: encoded spans of n elements each, at least one. Returns the bytes written to `out`.
  std::size_t run(std::span<const std::span<const std::byte>> wires, std::size_t n, std::byte* out, const RandomDraw&);
  bool in_tiles() const { return layout_.has_value(); }

 private:
  void run_tile(std::span<const std::span<const std::byte>> wires, std::size_t n, std::size_t first, std::byte* out,
                const RandomDraw&, bool non_temporal);

  const Codec& codec_;
  std::optional<WireLayout> layout_;
  std::size_t tile_ = 0;  ///< [elements]; a multiple of the bucket; a tile's codes fill whole units of 16 bytes
  std::vector<float> sum_;
  std::vector<std::byte> wire_;
};

}  // namespace gradmeter::compression
