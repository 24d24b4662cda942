// Highway compiles this file once for every instruction set and picks at run time.
#include "compression/codecs/terngrad.hpp"

#include <charconv>

#include "compression/detail/terngrad_plain.hpp"
#include "compression/registry.hpp"
#include "core/error.hpp"
#include "core/format.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compression/codecs/terngrad.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "compression/detail/qsgd-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace gradmeter::compression::HWY_NAMESPACE {

using detail::TernaryRule;

#if HWY_TARGET == HWY_SCALAR
float TernaryScale(std::span<const float> x, double clip) { return detail::ternary_scale_plain(x, clip); }
void TernaryEncode(std::span<const float> x, float scale, const detail::Draws& draws, std::byte* codes) {
  std::fill(codes, codes + (x.size() + 3) / 4, std::byte{0});
  detail::ternary_encode_plain(x, scale, draws, codes);
}
std::size_t TernaryQuantise(std::span<const float>, float, std::int8_t*, const detail::Draws&) { return 0; }
template <class Sum>
std::size_t ternary_sums(std::span<const Sum>, float, float*) {
  return 0;
}
#else

/// A piece that is read twice while it is in the L1 cache [elements].
inline constexpr std::size_t piece = 2048;

float TernaryScale(std::span<const float> x, double clip) {
  detail::TreeSum squares;
  float most = 0;
  for (std::size_t i = 0; i < x.size(); i += piece) {
    const auto part = x.subspan(i, std::min(piece, x.size() - i));
    const float largest = max_norm(part.data(), part.size());
    if (!(largest >= 0)) return largest;
    most = std::max(most, largest);
    for (std::size_t k = 0; clip > 0 && k < part.size(); k += detail::sum_piece) {
      squares.add(piece_of_squares(part.data() + k, std::min(detail::sum_piece, part.size() - k)));
    }
  }
  return detail::clipped_scale(most, squares.total(), x.size(), clip);
}

void TernaryEncode(std::span<const float> x, float scale, const detail::Draws& draws, std::byte* codes) {
  const TernaryRule::Encoder encoder(scale);
  // Short pieces: one whose numbers have two high words goes without vectors.
  for (std::size_t i = 0; i < x.size(); i += piece) {
    encode_bucket<TernaryRule>(encoder, x.subspan(i, std::min(piece, x.size() - i)), draws, i, codes + i / 4);
  }
}

/// Whole vectors of codes; returns how many elements these are.
std::size_t TernaryQuantise(std::span<const float> x, float scale, std::int8_t* codes, const detail::Draws& draws) {
  const std::size_t lanes = hn::Lanes(F32()), n = x.size();
  if (draws.crosses(0, n)) return 0;
  const VectorEncoder<TernaryRule> encoder{TernaryRule::Encoder(scale)};
  Coder<TernaryRule> coder(encoder, draws.keys(0), static_cast<std::uint32_t>(draws.number(0)));
  std::size_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    hn::StoreU(coder.next_bytes(x.data() + i), U8(), reinterpret_cast<std::uint8_t*>(codes + i));
  }
  return i;
}

template <class Sum>
std::size_t ternary_sums(std::span<const Sum> sums, float scale, float* out) {
  const F32 df;
  const I32 di;
  const std::size_t lanes = hn::Lanes(df);
  const auto factor = hn::Set(df, scale);
  std::size_t i = 0;
  for (; i + lanes <= sums.size(); i += lanes) {
    if constexpr (sizeof(Sum) == 1) {
      const hn::Rebind<std::int8_t, F32> narrow;
      const auto sum = hn::PromoteTo(di, hn::LoadU(narrow, sums.data() + i));
      hn::StoreU(hn::Mul(hn::ConvertTo(df, sum), factor), df, out + i);
    } else {
      hn::StoreU(hn::Mul(hn::ConvertTo(df, hn::LoadU(di, sums.data() + i)), factor), df, out + i);
    }
  }
  return i;
}
#endif

void TernaryDecode(const detail::DecodeJob& job) { decode_buckets<TernaryRule>(job); }
std::size_t TernaryBytes(std::span<const std::int8_t> sums, float scale, float* out) {
  return ternary_sums(sums, scale, out);
}
std::size_t TernaryWords(std::span<const std::int32_t> sums, float scale, float* out) {
  return ternary_sums(sums, scale, out);
}

}  // namespace gradmeter::compression::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gradmeter::compression {
namespace {

HWY_EXPORT(TernaryScale);
HWY_EXPORT(TernaryEncode);
HWY_EXPORT(TernaryDecode);
HWY_EXPORT(TernaryQuantise);
HWY_EXPORT(TernaryBytes);
HWY_EXPORT(TernaryWords);

class TernGrad final : public detail::Vectorised {
 public:
  enum class Loops { fast, plain };
  TernGrad(std::string name, double clip, Loops loops) : Vectorised(std::move(name)), clip_(clip), loops_(loops) {
    if (loops == Loops::fast) reference_ = std::make_unique<TernGrad>(this->name(), clip, Loops::plain);
  }
  std::size_t grain() const override { return 1; }
  std::size_t wire_bytes(std::size_t n) const override { return detail::ternary_layout.wire(n); }
  const Codec& reference() const override { return reference_ ? *reference_ : *this; }

  std::size_t encode(std::span<const float> x, std::byte* wire, const Draw& draw) const override {
    const std::size_t bytes = wire_bytes(x.size());
    if (x.empty()) return bytes;
    const bool fast = loops_ == Loops::fast;
    const float scale = fast ? ternary_scale(x, clip_) : detail::ternary_scale_plain(x, clip_);
    // What the loops do not write: all codes where there is no scale, else the padding, which lies in the last 16
    // bytes.
    const std::size_t kept = fast && scale > 0 ? bytes - 16 : 16;
    std::memset(wire, 0, 16);
    std::memset(wire + kept, 0, bytes - kept);
    std::memcpy(wire, &scale, sizeof(scale));
    if (!(scale > 0)) return bytes;
    if (fast) {
      HWY_DYNAMIC_DISPATCH(TernaryEncode)(x, scale, detail::Draws(draw), wire + 16);
    } else {
      detail::ternary_encode_plain(x, scale, detail::Draws(draw), wire + 16);
    }
    return bytes;
  }
  void decode(std::span<const std::byte> wire, std::span<float> out) const override {
    put({wire, nullptr, out, detail::ternary_layout});
  }
  void decode_add(std::span<const std::byte> wire, std::span<const float> addend, std::span<float> out) const override {
    put({wire, addend.data(), out, detail::ternary_layout});
  }

 private:
  void put(const detail::DecodeJob& job) const {
    if (job.out.empty()) return;
    if (loops_ == Loops::plain) return detail::decode_plain<detail::TernaryRule>(job);
    HWY_DYNAMIC_DISPATCH(TernaryDecode)(job);
  }
  double clip_;
  Loops loops_;
  std::unique_ptr<const TernGrad> reference_;  ///< null in the reference itself
};

}  // namespace

std::unique_ptr<Codec> make_terngrad(const core::ParsedName& name) {
  static constexpr std::array<std::string_view, 3> exchanges{"gather", "sum", "sra"};
  one_of(name, "exchange", exchanges);
  return std::make_unique<TernGrad>(name.canonical(), ternary_clip(name), TernGrad::Loops::fast);
}

double ternary_clip(const core::ParsedName& name) {
  const std::string& text = name.parameters.at("clip");
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  // Written back, it must be the same text: names that mean the same must be equal.
  const bool whole = error == std::errc{} && end == text.data() + text.size();
  if (!whole || !(value >= 0 && value <= 1000) || fmt::format("{}", value) != text) {
    throw core::UsageError(
        fmt::format("codec {} takes numbers from 0 (no clipping) to 1000 in their shortest form as "
                    "clip, not '{}'; 2.5 is usual",
                    name.base, text));
  }
  return value;
}

float ternary_scale(std::span<const float> x, double clip) { return HWY_DYNAMIC_DISPATCH(TernaryScale)(x, clip); }

void ternary_quantise(std::span<const float> x, float scale, std::span<std::int8_t> codes, const Draw& draw) {
  if (!(scale > 0)) return std::fill(codes.begin(), codes.end(), std::int8_t{0});
  const detail::Draws draws(draw);
  const detail::TernaryRule::Encoder encoder(scale);
  for (std::size_t i = HWY_DYNAMIC_DISPATCH(TernaryQuantise)(x, scale, codes.data(), draws); i < x.size(); ++i) {
    codes[i] = detail::ternary_code(encoder, x[i], draws.draw(i));
  }
}

void ternary_decode(std::span<const std::int8_t> sums, float scale, std::span<float> out) {
  const std::size_t done = HWY_DYNAMIC_DISPATCH(TernaryBytes)(sums, scale, out.data());
  for (std::size_t i = done; i < sums.size(); ++i) out[i] = static_cast<float>(sums[i]) * scale;
}
void ternary_decode(std::span<const std::int32_t> sums, float scale, std::span<float> out) {
  const std::size_t done = HWY_DYNAMIC_DISPATCH(TernaryWords)(sums, scale, out.data());
  for (std::size_t i = done; i < sums.size(); ++i) out[i] = static_cast<float>(sums[i]) * scale;
}

}  // namespace gradmeter::compression
#endif
