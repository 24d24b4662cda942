// The work of a chunk's owner in a compressed exchange: decode the parts, add them up, encode the sum.
#pragma once
#include <optional>
#include <span>
#include <vector>

#include "compression/codec.hpp"

namespace gradmeter::compression {

/// Adds up encoded spans in fp32, in their order, and encodes the sum, with the bits of doing so over whole spans.
/// Where the codec states its wire's layout, it works in tiles of 8 Ki elements, so that the sum stays in the L1 cache:
/// reads P·w/8 and writes w/8 bytes of memory an element. Elsewhere over whole spans through memory. Keeps scratch
/// between calls; one thread at a time.
class Reducer {
 public:
  /// `longest`: the longest span that will be given [elements].
  Reducer(const Codec&, std::size_t longest);
  /// `wires`: encoded spans of n elements each, at least one. Returns the bytes written to `out`.
  std::size_t run(std::span<const std::span<const std::byte>> wires, std::size_t n, std::byte* out, const Draw&);
  bool in_tiles() const { return layout_.has_value(); }

 private:
  std::size_t run_whole(std::span<const std::span<const std::byte>> wires, std::size_t n, std::byte* out, const Draw&);
  void run_tile(std::span<const std::span<const std::byte>> wires, std::size_t n, std::size_t first, std::byte* out,
                const Draw&);

  const Codec& codec_;
  std::optional<WireLayout> layout_;
  std::size_t tile_ = 0;  ///< elements: whole buckets, whole 16 bytes of codes
  std::vector<float> sum_;
  std::vector<std::byte> wire_;
};

}  // namespace gradmeter::compression
