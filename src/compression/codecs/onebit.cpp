// SPDX-License-Identifier: Apache-2.0
// Highway compiles this file once for every instruction set and picks at run time.
#include "compression/codecs/onebit.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "compression/detail/bucketed.hpp"
#include "compression/registry.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compression/codecs/onebit.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include <hwy/cache_control.h>

HWY_BEFORE_NAMESPACE();
namespace gradmeter::compression::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using detail::SignSums;
using detail::sum_lanes;

#if !HWY_HAVE_SCALABLE
using Floats = hn::CappedTag<float, sum_lanes>;
using Doubles = hn::CappedTag<double, sum_lanes / 2>;
constexpr std::size_t float_lanes = hn::MaxLanes(Floats()), double_lanes = hn::MaxLanes(Doubles());
constexpr std::size_t vectors_of_sums = sum_lanes / double_lanes;

/// The signs of 16 elements, a bit each: 1 for an element that is not negative.
HWY_INLINE std::uint32_t signs_of(const float* x) {
  const Floats d;
  std::uint32_t signs = 0;
  for (std::size_t v = 0; v < sum_lanes; v += float_lanes) {
    std::uint8_t bits[8] = {};
    hn::StoreMaskBits(d, hn::Ge(hn::LoadU(d, x + v), hn::Zero(d)), bits);
    std::uint32_t part = 0;
    std::memcpy(&part, bits, 4);
    signs |= part << v;
  }
  return signs;
}

template <bool two_means>
HWY_INLINE void add_sums(const float* x, hn::Vec<Doubles>* up, hn::Vec<Doubles>* down) {
  const Doubles d;
  const hn::Rebind<float, Doubles> narrow;
  for (std::size_t v = 0; v < vectors_of_sums; ++v) {
    const auto value = hn::LoadU(narrow, x + v * double_lanes);
    if constexpr (two_means) {
      const auto positive = hn::Ge(value, hn::Zero(narrow));
      up[v] = hn::Add(up[v], hn::PromoteTo(d, hn::IfThenElseZero(positive, value)));
      down[v] = hn::Add(down[v], hn::PromoteTo(d, hn::IfThenZeroElse(positive, value)));
    } else {
      up[v] = hn::Add(up[v], hn::PromoteTo(d, hn::Abs(value)));
    }
  }
}

/// Writes the signs of whole groups of 16 elements to `bits`, two bytes a group, and the elements' partial sums to
/// `out`.
template <bool two_means>
void pack_groups(const float* x, std::size_t groups, std::byte* bits, SignSums& out) {
  const Doubles d;
  hn::Vec<Doubles> up[vectors_of_sums], down[vectors_of_sums];
  for (std::size_t v = 0; v < vectors_of_sums; ++v) up[v] = down[v] = hn::Zero(d);
  for (std::size_t g = 0; g < groups; ++g, x += sum_lanes) {
    // Prefetches a default bucket ahead, since the hardware's own prefetch stops at pages.
    hwy::Prefetch(x + 512);
    const std::uint32_t signs = signs_of(x);
    std::memcpy(bits + 2 * g, &signs, 2);
    add_sums<two_means>(x, up, down);
  }
  for (std::size_t v = 0; v < vectors_of_sums; ++v) {
    hn::StoreU(up[v], d, out.up.data() + v * double_lanes);
    hn::StoreU(down[v], d, out.down.data() + v * double_lanes);
  }
}

template <bool add>
void unpack_groups(const std::byte* bits, std::size_t groups, float one, float zero, const float* addend, float* out) {
  const Floats d;
  const auto ones = hn::Set(d, one), zeros = hn::Set(d, zero);
  for (std::size_t g = 0; g < groups; ++g) {
    std::uint64_t word = 0;
    std::memcpy(&word, bits + 2 * g, 2);
    for (std::size_t v = 0; v < sum_lanes; v += float_lanes, word >>= float_lanes) {
      std::uint8_t part[8];
      std::memcpy(part, &word, 8);
      const auto value = hn::IfThenElse(hn::LoadMaskBits(d, part), ones, zeros);
      const std::size_t at = g * sum_lanes + v;
      hn::StoreU(add ? hn::Add(hn::LoadU(d, addend + at), value) : value, d, out + at);
    }
  }
}

void PackSigns(bool two_means, const float* x, std::size_t groups, std::byte* bits, SignSums& out) {
  return two_means ? pack_groups<true>(x, groups, bits, out) : pack_groups<false>(x, groups, bits, out);
}
void UnpackSigns(const std::byte* bits, std::size_t groups, float one, float zero, const float* addend, float* out) {
  return addend ? unpack_groups<true>(bits, groups, one, zero, addend, out)
                : unpack_groups<false>(bits, groups, one, zero, addend, out);
}
#else
void PackSigns(bool two_means, const float* x, std::size_t groups, std::byte* bits, SignSums& out) {
  detail::pack_signs_plain(two_means, x, groups, bits, out);
}
void UnpackSigns(const std::byte* bits, std::size_t groups, float one, float zero, const float* addend, float* out) {
  detail::unpack_signs_plain(bits, groups, one, zero, addend, out);
}
#endif

}  // namespace gradmeter::compression::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gradmeter::compression {

HWY_EXPORT(PackSigns);
HWY_EXPORT(UnpackSigns);

namespace {

using detail::SignSums;
using detail::SignValues;
using detail::sum_lanes;

constexpr float not_finite = std::numeric_limits<float>::quiet_NaN();

/// Tells the number of means from the width of a bucket's scale.
bool has_two_means(const WireLayout& layout) { return layout.scale_width == sizeof(SignValues); }

template <bool fast>
SignValues encode_bucket(bool two_means, std::span<const float> x, std::byte* bits) {
  detail::TreeSum up_sum, down_sum;
  for (std::size_t at = 0; at < x.size(); at += detail::sum_piece) {
    const auto piece = x.subspan(at, std::min(detail::sum_piece, x.size() - at));
    const std::size_t groups = piece.size() / sum_lanes;
    SignSums sums;
    if constexpr (fast) {
      HWY_DYNAMIC_DISPATCH(PackSigns)(two_means, piece.data(), groups, bits + at / 8, sums);
    } else {
      detail::pack_signs_plain(two_means, piece.data(), groups, bits + at / 8, sums);
    }
    detail::pack_rest(two_means, piece.subspan(groups * sum_lanes), bits + at / 8 + 2 * groups, sums);
    up_sum.add(detail::pairwise_sum(sums.up));
    down_sum.add(detail::pairwise_sum(sums.down));
  }
  const double up = up_sum.total(), down = down_sum.total();
  if (!two_means) return detail::sign_means<false>(up, down, x.size(), 0, not_finite);
  const std::size_t ones = detail::count_ones(bits, x.size());
  return detail::sign_means<true>(up, down, ones, x.size() - ones, not_finite);
}

template <bool fast>
void encode(const detail::EncodeJob& job) {
  const WireLayout& layout = job.layout;
  const std::size_t n = job.x.size(), buckets = layout.buckets(n);
  const std::size_t scale_bytes = layout.scale_bytes(n), used = buckets * layout.scale_width;
  std::byte* bits = job.wire + scale_bytes;
  std::memset(job.wire + used, 0, scale_bytes - used);
  std::memset(bits + n / 8, 0, layout.total_bytes(n) - scale_bytes - n / 8);
  for (std::size_t b = 0; b < buckets; ++b) {
    const std::size_t at = b * layout.bucket;
    const auto x = job.x.subspan(at, std::min(layout.bucket, n - at));
    const SignValues v = encode_bucket<fast>(has_two_means(layout), x, bits + at / 8);
    std::memcpy(job.wire + b * layout.scale_width, &v, layout.scale_width);
  }
}

template <bool fast>
void decode_part(const detail::Encoded& part, const float* addend, std::span<float> out, const WireLayout& layout) {
  const std::size_t buckets = layout.buckets(out.size());
  for (std::size_t b = 0; b < buckets; ++b) {
    SignValues v;
    std::memcpy(&v, part.scales + b * layout.scale_width, layout.scale_width);
    if (!has_two_means(layout)) v.zero = -v.one;
    const std::size_t at = b * layout.bucket, n = std::min(layout.bucket, out.size() - at);
    const std::size_t groups = n / sum_lanes, rest = at + groups * sum_lanes;
    const float* from = addend ? addend + at : nullptr;
    if constexpr (fast) {
      HWY_DYNAMIC_DISPATCH(UnpackSigns)(part.codes + at / 8, groups, v.one, v.zero, from, out.data() + at);
    } else {
      detail::unpack_signs_plain(part.codes + at / 8, groups, v.one, v.zero, from, out.data() + at);
    }
    detail::unpack_rest(part.codes + rest / 8, v.one, v.zero, addend ? addend + rest : nullptr,
                        out.subspan(rest, at + n - rest));
  }
}

template <bool fast>
void decode(const detail::DecodeJob& job) {
  detail::part_by_part(job, [&](const detail::Encoded& part, const float* addend) {
    decode_part<fast>(part, addend, job.out, job.layout);
  });
}

}  // namespace

std::unique_ptr<Codec> make_onebit(const core::ParsedName& name) {
  const std::size_t bucket = detail::bucket_of(name), means = whole_number(name, "means", 1, 2);
  return std::make_unique<detail::BucketedCodec>(
      name.canonical(), WireLayout{.bucket = bucket, .bits = 1, .scale_width = means * sizeof(float)},
      detail::Norm::max, detail::Loops{encode<true>, decode<true>}, detail::Loops{encode<false>, decode<false>});
}

}  // namespace gradmeter::compression
#endif
