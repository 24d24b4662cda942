// Highway compiles this file once for every instruction set and picks at run time.
#include "compression/codecs/onebit.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "compression/detail/bucketed.hpp"
#include "compression/detail/sign_loops.hpp"
#include "compression/detail/sign_rule.hpp"
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
constexpr std::size_t sums = sum_lanes / double_lanes;

/// One bit for each of 16 elements.
HWY_INLINE std::uint32_t signs_of(const float* x) {
  const Floats d;
  std::uint32_t all = 0;
  for (std::size_t v = 0; v < sum_lanes; v += float_lanes) {
    std::uint8_t bits[8] = {};
    hn::StoreMaskBits(d, hn::Ge(hn::LoadU(d, x + v), hn::Zero(d)), bits);
    std::uint32_t part = 0;
    std::memcpy(&part, bits, 4);
    all |= part << v;
  }
  return all;
}

template <bool two>
HWY_INLINE void take(const float* x, hn::Vec<Doubles>* up, hn::Vec<Doubles>* down) {
  const Doubles d;
  const hn::Rebind<float, Doubles> narrow;
  for (std::size_t v = 0; v < sums; ++v) {
    const auto value = hn::LoadU(narrow, x + v * double_lanes);
    if constexpr (two) {
      const auto positive = hn::Ge(value, hn::Zero(narrow));
      up[v] = hn::Add(up[v], hn::PromoteTo(d, hn::IfThenElseZero(positive, value)));
      down[v] = hn::Add(down[v], hn::PromoteTo(d, hn::IfThenZeroElse(positive, value)));
    } else {
      up[v] = hn::Add(up[v], hn::PromoteTo(d, hn::Abs(value)));
    }
  }
}

/// Whole groups of 16: signs to `bits`, two bytes a group.
template <bool two>
void take_groups(const float* x, std::size_t groups, std::byte* bits, SignSums& out) {
  const Doubles d;
  hn::Vec<Doubles> up[sums], down[sums];
  for (std::size_t v = 0; v < sums; ++v) up[v] = down[v] = hn::Zero(d);
  for (std::size_t g = 0; g < groups; ++g, x += sum_lanes) {
    // A bucket ahead: the hardware's own prefetch stops at pages.
    hwy::Prefetch(x + 512);
    const std::uint32_t signs = signs_of(x);
    std::memcpy(bits + 2 * g, &signs, 2);
    take<two>(x, up, down);
  }
  for (std::size_t v = 0; v < sums; ++v) {
    hn::StoreU(up[v], d, out.up.data() + v * double_lanes);
    hn::StoreU(down[v], d, out.down.data() + v * double_lanes);
  }
}

template <bool add>
void spread_groups(const std::byte* bits, std::size_t groups, float one, float zero, const float* addend, float* out) {
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

void TakeSigns(bool two, const float* x, std::size_t groups, std::byte* bits, SignSums& out) {
  return two ? take_groups<true>(x, groups, bits, out) : take_groups<false>(x, groups, bits, out);
}
void SpreadSigns(const std::byte* bits, std::size_t groups, float one, float zero, const float* addend, float* out) {
  return addend ? spread_groups<true>(bits, groups, one, zero, addend, out)
                : spread_groups<false>(bits, groups, one, zero, addend, out);
}
#else
void TakeSigns(bool two, const float* x, std::size_t groups, std::byte* bits, SignSums& out) {
  detail::take_signs_plain(two, x, groups, bits, out);
}
void SpreadSigns(const std::byte* bits, std::size_t groups, float one, float zero, const float* addend, float* out) {
  detail::spread_signs_plain(bits, groups, one, zero, addend, out);
}
#endif

}  // namespace gradmeter::compression::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gradmeter::compression {

HWY_EXPORT(TakeSigns);
HWY_EXPORT(SpreadSigns);

namespace {

using detail::SignSums;
using detail::SignValues;
using detail::sum_lanes;

struct SignLoops {
  void (*take)(bool two, const float* x, std::size_t groups, std::byte* bits, SignSums& out);
  void (*spread)(const std::byte* bits, std::size_t groups, float one, float zero, const float* addend, float* out);
};
constexpr SignLoops plain{detail::take_signs_plain, detail::spread_signs_plain};
constexpr SignLoops fast{
    [](bool two, const float* x, std::size_t groups, std::byte* bits, SignSums& out) {
      HWY_DYNAMIC_DISPATCH(TakeSigns)(two, x, groups, bits, out);
    },
    [](const std::byte* bits, std::size_t groups, float one, float zero, const float* addend, float* out) {
      HWY_DYNAMIC_DISPATCH(SpreadSigns)
      (bits, groups, one, zero, addend, out);
    }};

class OneBit final : public detail::Vectorised {
 public:
  OneBit(std::string name, std::size_t bucket, bool two, const SignLoops& loops)
      : Vectorised(std::move(name)), bucket_(bucket), two_(two), loops_(loops) {
    if (&loops != &plain) reference_ = std::make_unique<OneBit>(this->name() + " (plain)", bucket, two, plain);
  }
  std::size_t grain() const override { return bucket_; }
  std::size_t wire_bytes(std::size_t n) const override { return scales(n) + code_bytes(n, 1); }
  std::optional<WireLayout> layout() const override {
    return WireLayout{.bucket = bucket_, .bits = 1, .scale_width = width()};
  }
  const Codec& reference() const override { return reference_ ? *reference_ : *this; }

  std::size_t encode(std::span<const float> x, std::byte* wire, const Draw&) const override {
    const std::size_t n = x.size(), total = wire_bytes(n);
    if (n == 0) return 0;
    std::byte* bits = wire + scales(n);
    std::memset(wire + used(n), 0, scales(n) - used(n));
    std::memset(bits + n / 8, 0, total - scales(n) - n / 8);
    for (std::size_t at = 0, b = 0; at < n; at += bucket_, ++b) {
      const SignValues v = encode_bucket(x.subspan(at, std::min(bucket_, n - at)), bits + at / 8);
      std::memcpy(wire + b * width(), &v, width());
    }
    return total;
  }
  void decode(std::span<const std::byte> wire, std::span<float> out) const override { unpack(wire, nullptr, out); }
  void decode_add(std::span<const std::byte> wire, std::span<const float> addend, std::span<float> out) const override {
    unpack(wire, addend.data(), out);
  }

 private:
  std::size_t width() const { return two_ ? 8 : 4; }
  std::size_t used(std::size_t n) const { return width() * (n / bucket_ + (n % bucket_ != 0)); }
  std::size_t scales(std::size_t n) const { return padded(used(n)); }

  SignValues encode_bucket(std::span<const float> x, std::byte* bits) const {
    detail::TreeSum up_sum, down_sum;
    for (std::size_t at = 0; at < x.size(); at += detail::sum_piece) {
      const auto part = x.subspan(at, std::min(detail::sum_piece, x.size() - at));
      const std::size_t groups = part.size() / sum_lanes;
      SignSums sums;
      loops_.take(two_, part.data(), groups, bits + at / 8, sums);
      detail::take_rest(two_, part.subspan(groups * sum_lanes), bits + at / 8 + 2 * groups, sums);
      up_sum.add(detail::pairwise(sums.up));
      down_sum.add(detail::pairwise(sums.down));
    }
    const double up = up_sum.total(), down = down_sum.total();
    if (!two_) return detail::sign_means<false>(up, down, x.size(), 0, unfit);
    const std::size_t ones = detail::count_ones(bits, x.size());
    return detail::sign_means<true>(up, down, ones, x.size() - ones, unfit);
  }

  void unpack(std::span<const std::byte> wire, const float* addend, std::span<float> out) const {
    const std::byte* bits = wire.data() + scales(out.size());
    for (std::size_t at = 0, b = 0; at < out.size(); at += bucket_, ++b) {
      SignValues v;
      std::memcpy(&v, wire.data() + b * width(), width());
      if (!two_) v.zero = -v.one;
      const std::size_t n = std::min(bucket_, out.size() - at), groups = n / sum_lanes, rest = at + groups * sum_lanes;
      loops_.spread(bits + at / 8, groups, v.one, v.zero, addend ? addend + at : nullptr, out.data() + at);
      detail::spread_rest(bits + rest / 8, v.one, v.zero, addend ? addend + rest : nullptr,
                          out.subspan(rest, at + n - rest));
    }
  }

  static constexpr float unfit = std::numeric_limits<float>::quiet_NaN();
  std::size_t bucket_;
  bool two_;
  SignLoops loops_;
  std::unique_ptr<const OneBit> reference_;  ///< null in the reference itself
};

}  // namespace

std::unique_ptr<Codec> make_onebit(const core::ParsedName& name) {
  return std::make_unique<OneBit>(name.canonical(), detail::bucket_of(name), whole_number(name, "means", 1, 2) == 2,
                                  fast);
}

}  // namespace gradmeter::compression
#endif
