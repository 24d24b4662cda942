// Highway compiles this file once for every instruction set and picks at run time.
#include "compression/codecs/qsgd.hpp"

#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compression/codecs/qsgd.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "compression/detail/qsgd-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace gradmeter::compression::HWY_NAMESPACE {

using detail::QsgdRule, detail::Rounding;

template <Rounding rounding>
void encode_rounded(const detail::EncodeJob& job) {
  if (job.layout.bits == 8) return encode_buckets<QsgdRule<8, rounding>>(job);
  if (job.layout.bits == 4) return encode_buckets<QsgdRule<4, rounding>>(job);
  encode_buckets<QsgdRule<2, rounding>>(job);
}
void QsgdStochastic(const detail::EncodeJob& job) { encode_rounded<Rounding::stochastic>(job); }
void QsgdNearest(const detail::EncodeJob& job) { encode_rounded<Rounding::nearest>(job); }
void QsgdDecode(const detail::DecodeJob& job) {
  if (job.layout.bits == 8) return decode_buckets<QsgdRule<8, Rounding::nearest>>(job);
  if (job.layout.bits == 4) return decode_buckets<QsgdRule<4, Rounding::nearest>>(job);
  decode_buckets<QsgdRule<2, Rounding::nearest>>(job);
}

}  // namespace gradmeter::compression::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gradmeter::compression {
namespace {

HWY_EXPORT(QsgdStochastic);
HWY_EXPORT(QsgdNearest);
HWY_EXPORT(QsgdDecode);

using detail::Rounding;

template <Rounding rounding>
void encode(const detail::EncodeJob& job) {
  if (rounding == Rounding::nearest) return HWY_DYNAMIC_DISPATCH(QsgdNearest)(job);
  HWY_DYNAMIC_DISPATCH(QsgdStochastic)(job);
}
void decode(const detail::DecodeJob& job) { HWY_DYNAMIC_DISPATCH(QsgdDecode)(job); }

template <std::size_t bits, Rounding rounding>
std::unique_ptr<Codec> made(const core::ParsedName& name) {
  return std::make_unique<detail::Bucketed>(
      name.canonical(), detail::Bucketed::Settings{.layout = {.bucket = detail::bucket_of(name), .bits = bits},
                                                   .norm = detail::norm_of(name),
                                                   .fast = {encode<rounding>, decode},
                                                   .plain = detail::plain_loops<detail::QsgdRule<bits, rounding>>});
}

template <std::size_t bits>
std::unique_ptr<Codec> rounded_as_named(const core::ParsedName& name) {
  return detail::rounding_of(name) == Rounding::nearest ? made<bits, Rounding::nearest>(name)
                                                        : made<bits, Rounding::stochastic>(name);
}

}  // namespace

std::unique_ptr<Codec> make_qsgd8(const core::ParsedName& name) { return rounded_as_named<8>(name); }
std::unique_ptr<Codec> make_qsgd4(const core::ParsedName& name) { return rounded_as_named<4>(name); }
std::unique_ptr<Codec> make_qsgd2(const core::ParsedName& name) { return rounded_as_named<2>(name); }

bool qsgd_expands(const core::ParsedName& name) {
  if (detail::rounding_of(name) == Rounding::nearest) return false;
  const auto bucket = static_cast<double>(detail::bucket_of(name));
  // Of independent Gaussians of variance 1: the length, or nearly the largest.
  const double norm = detail::norm_of(name) == detail::Norm::l2 ? std::sqrt(bucket) : std::sqrt(2 * std::log(bucket));
  const double levels = name.base == "qsgd2" ? 1 : name.base == "qsgd4" ? 7 : 127;
  constexpr double mean_magnitude = 0.7979;
  return norm / levels * mean_magnitude - 1 > 1;
}

}  // namespace gradmeter::compression
#endif
