// SPDX-License-Identifier: Apache-2.0
// Highway compiles this file once for every instruction set and picks at run time.
#include "compression/codecs/casts.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compression/codecs/casts.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "compression/detail/bucketed-inl.hpp"
#include "core/small_float-inl.hpp"

HWY_BEFORE_NAMESPACE();

namespace gradmeter::compression::HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR

void CastEncode(const detail::EncodeJob& job, bool is_fp16) { detail::cast_encode(job, is_fp16, 0); }
void CastDecode(const detail::DecodeJob& job, bool is_fp16) { detail::cast_decode(job, is_fp16, 0); }

#else
namespace small = core::HWY_NAMESPACE;

/// Encodes whole vectors; returns the number of encoded elements.
template <class Conversion>
std::size_t encode_vectors(const detail::EncodeJob& job) {
  const F32 d;
  const std::size_t lanes = hn::Lanes(d), n = job.x.size();
  const float* x = job.x.data();
  std::size_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    for (std::size_t line = 0; line < 2 * lanes; line += 16) hwy::Prefetch(x + i + prefetch_distance + line);
    Conversion::put(Conversion::encode(hn::LoadU(d, x + i)), job.wire + 2 * i);
    Conversion::put(Conversion::encode(hn::LoadU(d, x + i + lanes)), job.wire + 2 * (i + lanes));
  }
  return i;
}

template <class Conversion, bool add, Store store>
std::size_t decode_vectors(const detail::DecodeJob& job) {
  const F32 d;
  const std::size_t lanes = hn::Lanes(d), n = job.out.size();
  std::size_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    if (job.parts.size() > 1) {
      for (const detail::Encoded& part : job.parts) prefetch_codes<8 * hn::MaxLanes(d)>(part.codes + 2 * i);
    }
    const auto value = [&](std::size_t p, std::size_t v) HWY_ATTR {
      return Conversion::decode(Conversion::fetch(job.parts[p].codes + 2 * (i + v * lanes)));
    };
    sum_vectors<4, add, store>(job.parts.size(), value, job.addend + i, job.out.data() + i);
  }
  if (store == Store::streaming) hwy::FlushStream();
  return i;
}

template <class Conversion>
std::size_t decode_by_size(const detail::DecodeJob& job) {
  const bool non_temporal = store_for(job) == Store::streaming;
  if (job.addend)
    return non_temporal ? decode_vectors<Conversion, true, Store::streaming>(job)
                        : decode_vectors<Conversion, true, Store::cached>(job);
  return non_temporal ? decode_vectors<Conversion, false, Store::streaming>(job)
                      : decode_vectors<Conversion, false, Store::cached>(job);
}

void CastEncode(const detail::EncodeJob& job, bool is_fp16) {
  detail::cast_encode(job, is_fp16, is_fp16 ? encode_vectors<small::FastHalf>(job) : encode_vectors<small::Bf16>(job));
}
void CastDecode(const detail::DecodeJob& job, bool is_fp16) {
  detail::cast_decode(job, is_fp16, is_fp16 ? decode_by_size<small::FastHalf>(job) : decode_by_size<small::Bf16>(job));
}

#endif

}  // namespace gradmeter::compression::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace gradmeter::compression {
namespace {

HWY_EXPORT(CastEncode);
HWY_EXPORT(CastDecode);

template <bool is_fp16>
void encode(const detail::EncodeJob& job) {
  HWY_DYNAMIC_DISPATCH(CastEncode)(job, is_fp16);
}
template <bool is_fp16>
void decode(const detail::DecodeJob& job) {
  HWY_DYNAMIC_DISPATCH(CastDecode)(job, is_fp16);
}
template <bool is_fp16>
void encode_plain(const detail::EncodeJob& job) {
  detail::cast_encode(job, is_fp16, 0);
}
template <bool is_fp16>
void decode_plain(const detail::DecodeJob& job) {
  detail::cast_decode(job, is_fp16, 0);
}

template <bool is_fp16>
std::unique_ptr<Codec> make_cast(const core::ParsedName& name) {
  return std::make_unique<detail::BucketedCodec>(
      name.canonical(), WireLayout{.bucket = 1, .bits = 16, .scale_width = 0}, detail::Norm::max,
      detail::Loops{encode<is_fp16>, decode<is_fp16>}, detail::Loops{encode_plain<is_fp16>, decode_plain<is_fp16>});
}

}  // namespace

std::unique_ptr<Codec> make_fp16(const core::ParsedName& name) { return make_cast<true>(name); }
std::unique_ptr<Codec> make_bf16(const core::ParsedName& name) { return make_cast<false>(name); }

}  // namespace gradmeter::compression

#endif
