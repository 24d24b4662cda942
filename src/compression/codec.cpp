// SPDX-License-Identifier: Apache-2.0
#include "compression/codec.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "compression/detail/draws.hpp"

namespace gradmeter::compression {

std::uint64_t Draw::key() const {
  const std::uint64_t place = std::uint64_t{tensor} << 32 | rank;
  using detail::mixed;
  return mixed(mixed(mixed(mixed(seed) ^ step) ^ place) ^ phase);
}

std::size_t encode_with_feedback(const Codec& codec, std::span<const float> x, std::span<float> residual,
                                 std::span<float> scratch, std::byte* wire, const Draw& draw) {
  const std::size_t n = x.size();
  for (std::size_t i = 0; i < n; ++i) residual[i] += x[i];
  const std::size_t bytes = codec.encode(residual.first(n), wire, draw);
  codec.decode({wire, bytes}, scratch.first(n));
  for (std::size_t i = 0; i < n; ++i) {
    const float left = residual[i] - scratch[i];
    residual[i] = std::isfinite(left) ? left : 0.0f;
  }
  return bytes;
}

namespace {

constexpr std::size_t usual_tile = 2048;  // sum and codes fit in an L1 cache, with room for what is prefetched
constexpr std::size_t largest_tile = 65536;

/// Part of a wire of n elements to or from a wire of its own: a tile's scales, and its codes.
struct TileParts {
  std::size_t scales_at, scales, codes_at, codes, own_codes_at;
};
TileParts parts_of(const WireLayout& l, std::size_t n, std::size_t first, std::size_t count) {
  const std::size_t buckets = (count + l.bucket - 1) / l.bucket;
  return {.scales_at = first / l.bucket * l.scale_width,
          .scales = buckets * l.scale_width,
          .codes_at = l.scales(n) + first / 8 * l.bits,
          .codes = first + count == n ? code_bytes(count, l.bits) : count / 8 * l.bits,
          .own_codes_at = l.scales(count)};
}

/// Begins to load what the next tile needs, while this one is computed.
void prefetch(std::span<const std::byte> from, std::size_t bytes) {
  constexpr std::size_t line = 64;
  for (std::size_t at = 0; at < std::min(bytes, from.size()); at += line) __builtin_prefetch(from.data() + at, 0, 2);
}

}  // namespace

Reducer::Reducer(const Codec& codec, std::size_t longest) : codec_(codec), layout_(codec.layout()) {
  if (layout_) {
    const std::size_t step = std::lcm(layout_->bucket, std::size_t{128});
    if (step > largest_tile) layout_.reset();
    tile_ = (usual_tile + step - 1) / step * step;
  }
  sum_.resize(layout_ ? std::min(tile_, longest) : longest);
  if (layout_) wire_.resize(layout_->wire(tile_));
}

std::size_t Reducer::run(std::span<const std::span<const std::byte>> wires, std::size_t n, std::byte* out,
                         const Draw& draw) {
  if (!layout_) return run_whole(wires, n, out, draw);
  const std::size_t scales = layout_->scales(n),
                    used = (n + layout_->bucket - 1) / layout_->bucket * layout_->scale_width;
  std::fill(out + used, out + scales, std::byte{0});  // padding of the scales
  for (std::size_t first = 0; first < n; first += tile_) run_tile(wires, n, first, out, draw);
  return layout_->wire(n);
}

std::size_t Reducer::run_whole(std::span<const std::span<const std::byte>> wires, std::size_t n, std::byte* out,
                               const Draw& draw) {
  const auto sum = std::span(sum_).first(n);
  codec_.decode(wires.front(), sum);
  for (const auto& wire : wires.subspan(1)) codec_.decode_add(wire, sum, sum);
  return codec_.encode(sum, out, draw);
}

void Reducer::run_tile(std::span<const std::span<const std::byte>> wires, std::size_t n, std::size_t first,
                       std::byte* out, const Draw& draw) {
  const std::size_t count = std::min(tile_, n - first);
  const TileParts p = parts_of(*layout_, n, first, count);
  const auto sum = std::span(sum_).first(count);
  const std::span<const std::byte> tile(wire_.data(), layout_->wire(count));
  for (std::size_t i = 0; i < wires.size(); ++i) {
    if (p.scales > 0) std::memcpy(wire_.data(), wires[i].data() + p.scales_at, p.scales);
    std::memcpy(wire_.data() + p.own_codes_at, wires[i].data() + p.codes_at, p.codes);
    prefetch(wires[i].subspan(p.codes_at + p.codes), p.codes);
    if (i == 0) {
      codec_.decode(tile, sum);
    } else {
      codec_.decode_add(tile, sum, sum);
    }
  }
  Draw here = draw;
  here.first += first;
  codec_.encode(sum, wire_.data(), here);
  if (p.scales > 0) std::memcpy(out + p.scales_at, wire_.data(), p.scales);
  std::memcpy(out + p.codes_at, wire_.data() + p.own_codes_at, p.codes);
}

}  // namespace gradmeter::compression
