// The module's interface: a codec encodes a span of fp32 as bytes for the wire, and decodes them. It keeps no state.
// State, shapes and collectives are handled by the modules above (allreduce/compressed).
#pragma once
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>

namespace gradmeter::compression {

/// The key of random rounding. It has no clock, so codes depend neither on threads nor on the instruction set, and
/// ranks are not correlated.
struct Draw {
  std::uint64_t seed = 0, step = 0;
  std::uint32_t tensor = 0, rank = 0, phase = 0;
  std::uint64_t first = 0;  ///< place in its tensor of the span's first element: element i draws number first + i

  /// A hash of everything but `first`: two draws that differ in anything have unrelated keys.
  std::uint64_t key() const;
};

/// n rounded up to the wire's 16 bytes.
constexpr std::size_t padded(std::size_t bytes) { return (bytes + 15) / 16 * 16; }
/// Packed codes of b bits [bytes], padded. Right for every n that memory holds.
constexpr std::size_t code_bytes(std::size_t n, std::size_t bits) {
  return padded(n / 8 * bits + (n % 8 * bits + 7) / 8);
}
/// One fp32 a bucket [bytes], padded.
constexpr std::size_t scale_bytes(std::size_t n, std::size_t bucket) {
  return padded(4 * (n / bucket + (n % bucket != 0)));
}

/// The layout of a wire with one scale a bucket first, and then the codes.
struct WireLayout {
  std::size_t bucket = 512;     ///< elements that share a scale
  std::size_t bits = 8;         ///< of a code
  std::size_t scale_width = 4;  ///< bytes of a bucket's scale

  std::size_t buckets(std::size_t n) const { return n / bucket + (n % bucket != 0); }
  std::size_t scales(std::size_t n) const { return padded(scale_width * buckets(n)); }  ///< bytes
  std::size_t wire(std::size_t n) const { return scales(n) + code_bytes(n, bits); }     ///< bytes
};

/// The grain of a codec whose spans must not be cut: what it sends depends on all elements of a tensor together.
inline constexpr std::size_t whole_tensor = std::numeric_limits<std::size_t>::max();

/// On the wire: no header, little-endian; all scales first (fp32, padded to 16 bytes), then the codes, element i at
/// bits i·b …, least significant bit first, padded to 16 bytes. Immutable; any number of threads. A bucket with an
/// input that is not finite decodes to NaN as a whole (casts keep it to the element). Spans may be empty; wire memory
/// needs no alignment. Source and destination of a call do not overlap, but for decode_add, whose `addend` may be `out`
/// itself.
class Codec {
 public:
  explicit Codec(std::string name) : name_(std::move(name)) {}
  virtual ~Codec() = default;
  const std::string& name() const { return name_; }  ///< canonical: all parameters written out

  /// Spans are cut at multiples of this [elements]: 1, the bucket, or whole_tensor.
  virtual std::size_t grain() const = 0;
  /// Of n elements: exact, a pure function of n; the most where `variable` [bytes].
  virtual std::size_t wire_bytes(std::size_t n) const = 0;
  /// Where scales and codes are, so that a part of a wire can be processed by itself; empty where that is impossible.
  virtual std::optional<WireLayout> layout() const { return std::nullopt; }
  /// The size depends on the data: the length must be sent ahead.
  virtual bool variable() const { return false; }

  /// Returns the bytes written: wire_bytes(x.size()), or fewer where `variable`.
  virtual std::size_t encode(std::span<const float> x, std::byte* wire, const Draw&) const = 0;
  virtual void decode(std::span<const std::byte> wire, std::span<float> out) const = 0;
  /// out[i] = addend[i] + decoded[i], added in fp32.
  virtual void decode_add(std::span<const std::byte> wire, std::span<const float> addend,
                          std::span<float> out) const = 0;

 private:
  std::string name_;
};

/// Error feedback: what one encoding loses goes into the next. p = x + residual is encoded, residual = p - decoded.
/// `scratch` [x.size()]. residual [x.size()] must not overlap the others. A residual that is not finite restarts at 0,
/// so that one bad gradient does not spoil all that follow. Returns the bytes written.
/// Source: Seide et al., Interspeech 2014; Karimireddy et al., ICML 2019.
std::size_t encode_with_feedback(const Codec&, std::span<const float> x, std::span<float> residual,
                                 std::span<float> scratch, std::byte* wire, const Draw&);

}  // namespace gradmeter::compression
