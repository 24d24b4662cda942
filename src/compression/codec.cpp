// SPDX-License-Identifier: Apache-2.0
#include "compression/codec.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "compression/detail/draws.hpp"
#include "core/streaming_copy.hpp"

namespace gradmeter::compression {

std::uint64_t RandomDraw::key() const {
  const std::uint64_t tensor_and_rank = std::uint64_t{tensor} << 32 | rank;
  using detail::hash64;
  return hash64(hash64(hash64(hash64(seed) ^ step) ^ tensor_and_rank) ^ phase);
}

void Codec::decode_sum(std::span<const std::span<const std::byte>> wires, std::size_t, std::size_t,
                       std::span<float> out) const {
  decode(wires.front(), out);
  for (const auto& wire : wires.subspan(1)) decode_add(wire, out, out);
}

std::size_t encode_with_feedback(const Codec& codec, std::span<const float> x, std::span<float> residual,
                                 std::span<float> scratch, std::byte* wire, const RandomDraw& draw) {
  const std::size_t n = x.size();
  for (std::size_t i = 0; i < n; ++i) residual[i] += x[i];
  const std::size_t bytes = codec.encode(residual.first(n), wire, draw);
  codec.decode({wire, bytes}, scratch.first(n));
  for (std::size_t i = 0; i < n; ++i) {
    const float lost = residual[i] - scratch[i];
    residual[i] = std::isfinite(lost) ? lost : 0.0f;
  }
  return bytes;
}

namespace {

constexpr std::size_t usual_tile = 2048;  // sum and codes fit in an L1 cache, with room for what is prefetched
constexpr std::size_t largest_tile = 65536;

/// A tile's scales and codes: their offsets and lengths in the wire of n elements, and the offset of its codes in a
/// wire of the tile alone [bytes].
struct TileParts {
  std::size_t scales_at, scale_bytes, codes_at, code_bytes, own_codes_at;
};
TileParts parts_of(const WireLayout& l, std::size_t n, std::size_t first, std::size_t count) {
  const std::size_t buckets = (count + l.bucket - 1) / l.bucket;
  return {.scales_at = first / l.bucket * l.scale_width,
          .scale_bytes = buckets * l.scale_width,
          .codes_at = l.scale_bytes(n) + first / 8 * l.bits,
          .code_bytes = first + count == n ? code_bytes(count, l.bits) : count / 8 * l.bits,
          .own_codes_at = l.scale_bytes(count)};
}

/// From this many bytes read and written in all, a call is not expected to leave its result in a cache. The result is
/// then written by non-temporal stores, which need not read the lines that they overwrite first.
constexpr std::size_t streaming_threshold = std::size_t{32} << 20;

}  // namespace

Reducer::Reducer(const Codec& codec, std::size_t longest) : codec_(codec), layout_(codec.layout()) {
  if (layout_) {
    const std::size_t step = std::lcm(layout_->bucket, std::size_t{128});
    if (step > largest_tile) layout_.reset();
    tile_ = (usual_tile + step - 1) / step * step;
  }
  sum_.resize(layout_ ? std::min(tile_, longest) : longest);
  if (layout_) wire_.resize(layout_->total_bytes(tile_));
}

std::size_t Reducer::run(std::span<const std::span<const std::byte>> wires, std::size_t n, std::byte* out,
                         const RandomDraw& draw) {
  if (!layout_) {
    const auto sum = std::span(sum_).first(n);
    codec_.decode_sum(wires, n, 0, sum);
    return codec_.encode(sum, out, draw);
  }
  const std::size_t scales = layout_->scale_bytes(n),
                    scale_end = (n + layout_->bucket - 1) / layout_->bucket * layout_->scale_width;
  std::fill(out + scale_end, out + scales, std::byte{0});  // padding of the scales
  const std::size_t bytes = layout_->total_bytes(n);
  const bool non_temporal = (wires.size() + 1) * bytes >= streaming_threshold;
  for (std::size_t first = 0; first < n; first += tile_) run_tile(wires, n, first, out, draw, non_temporal);
  if (non_temporal) core::end_streaming();
  return bytes;
}

void Reducer::run_tile(std::span<const std::span<const std::byte>> wires, std::size_t n, std::size_t first,
                       std::byte* out, const RandomDraw& draw, bool non_temporal) {
  const std::size_t count = std::min(tile_, n - first);
  const TileParts p = parts_of(*layout_, n, first, count);
  const auto sum = std::span(sum_).first(count);
  codec_.decode_sum(wires, n, first, sum);
  RandomDraw tile_draw = draw;
  tile_draw.first += first;
  codec_.encode(sum, wire_.data(), tile_draw);
  if (p.scale_bytes > 0) std::memcpy(out + p.scales_at, wire_.data(), p.scale_bytes);
  const std::byte* const codes = wire_.data() + p.own_codes_at;
  if (non_temporal) {
    core::copy_streaming(out + p.codes_at, codes, p.code_bytes);
  } else {
    std::memcpy(out + p.codes_at, codes, p.code_bytes);
  }
}

}  // namespace gradmeter::compression
