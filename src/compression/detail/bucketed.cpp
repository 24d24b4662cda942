// SPDX-License-Identifier: Apache-2.0
#include "compression/detail/bucketed.hpp"

#include <array>
#include <cmath>

#include "compression/registry.hpp"
#include "core/error.hpp"
#include "core/format.hpp"

namespace gradmeter::compression::detail {

BucketedCodec::BucketedCodec(std::string name, const WireLayout& layout, Norm norm, const Loops& fast,
                             const Loops& plain)
    : Codec(std::move(name)), layout_(layout), norm_(norm), loops_(fast) {
  if (plain.encode != fast.encode)
    reference_ = std::make_unique<BucketedCodec>(this->name(), layout, norm, plain, plain);
}

std::size_t BucketedCodec::encode(std::span<const float> x, std::byte* wire, const RandomDraw& draw) const {
  if (!x.empty()) loops_.encode({x, wire, layout_, norm_, Draws(draw)});
  return layout_.total_bytes(x.size());
}

void BucketedCodec::decode(std::span<const std::byte> wire, std::span<float> out) const {
  sum({&wire, 1}, out.size(), 0, nullptr, out);
}

void BucketedCodec::decode_add(std::span<const std::byte> wire, std::span<const float> addend,
                               std::span<float> out) const {
  sum({&wire, 1}, out.size(), 0, addend.data(), out);
}

void BucketedCodec::decode_sum(std::span<const std::span<const std::byte>> wires, std::size_t n, std::size_t first,
                               std::span<float> out) const {
  sum(wires, n, first, nullptr, out);
}

void BucketedCodec::sum(std::span<const std::span<const std::byte>> wires, std::size_t n, std::size_t first,
                        const float* addend, std::span<float> out) const {
  if (out.empty()) return;
  const std::size_t scales_at = first / layout_.bucket * layout_.scale_width,
                    codes_at = layout_.scale_bytes(n) + first / 8 * layout_.bits;
  std::array<Encoded, most_parts> parts;
  for (; !wires.empty(); addend = out.data()) {
    const std::size_t count = std::min(wires.size(), most_parts);
    for (std::size_t p = 0; p < count; ++p) parts[p] = {wires[p].data() + scales_at, wires[p].data() + codes_at};
    loops_.decode({std::span(parts).first(count), addend, out, layout_});
    wires = wires.subspan(count);
  }
}

std::size_t bucket_of(const core::ParsedName& name) {
  const std::size_t bucket = whole_number(name, "bucket", bucket_unit, std::size_t{1} << 20);
  if (bucket % bucket_unit != 0) {
    throw core::UsageError(
        fmt::format("codec {} takes multiples of {} as bucket, not {}: codes of a bucket begin at "
                    "whole bytes; take {}",
                    name.base, bucket_unit, bucket, bucket / bucket_unit * bucket_unit));
  }
  return bucket;
}

Norm norm_of(const core::ParsedName& name) {
  static constexpr std::array<std::string_view, 2> norms{"max", "l2"};
  return static_cast<Norm>(index_among(name, "norm", norms));
}

Rounding rounding_of(const core::ParsedName& name) {
  static constexpr std::array<std::string_view, 2> roundings{"stochastic", "nearest"};
  return static_cast<Rounding>(index_among(name, "rounding", roundings));
}

float max_norm(std::span<const float> x) {
  float most = 0;
  for (const float v : x) {
    if (!std::isfinite(v)) return std::numeric_limits<float>::quiet_NaN();
    most = std::max(most, std::fabs(v));
  }
  return most;
}

double sum_of_squares(std::span<const float> x) {
  return sum_by_pieces(x.size(), [&](std::size_t first, std::size_t count) {
    std::array<double, sum_lanes> partial{};
    add_squares(x.subspan(first, count), partial);
    return pairwise_sum(partial);
  });
}

float l2_norm(std::span<const float> x) { return l2_of(sum_of_squares(x)); }

void add_squares(std::span<const float> x, std::array<double, sum_lanes>& partial) {
  for (std::size_t i = 0; i < x.size(); ++i) {
    partial[i % sum_lanes] += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  }
}

float l2_of(double sum) {
  constexpr double most = std::numeric_limits<float>::max();
  // Sums of squares of floats never overflow a double, so a sum that is not finite comes from an x that is not finite.
  if (!std::isfinite(sum)) return std::numeric_limits<float>::quiet_NaN();
  return static_cast<float>(std::min(std::sqrt(sum), most));
}

}  // namespace gradmeter::compression::detail
