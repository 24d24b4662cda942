// Highway compiles this file once for every instruction set and picks at run time.
#include "compression/codecs/cast.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compression/codecs/cast.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "compression/detail/bits-inl.hpp"
#include "compression/detail/cast_plain.hpp"
#include "core/small_float-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace gradmeter::compression::HWY_NAMESPACE {
#if HWY_TARGET == HWY_SCALAR

void CastEncode(const detail::EncodeJob& job, bool half) { detail::cast_encode(job, half, 0); }
void CastDecode(const detail::DecodeJob& job, bool half) { detail::cast_decode(job, half, 0); }

#else
namespace small = core::HWY_NAMESPACE;

/// Whole vectors. Returns how many elements these are.
template <class C>
std::size_t encode_vectors(const detail::EncodeJob& job) {
  const F32 d;
  const std::size_t lanes = hn::Lanes(d), n = job.x.size();
  const float* x = job.x.data();
  std::size_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    for (std::size_t line = 0; line < 2 * lanes; line += 16) hwy::Prefetch(x + i + fetched_ahead + line);
    C::put(C::encode(hn::LoadU(d, x + i)), job.wire + 2 * i);
    C::put(C::encode(hn::LoadU(d, x + i + lanes)), job.wire + 2 * (i + lanes));
  }
  return i;
}

template <class C, bool add, Put put>
std::size_t decode_vectors(const detail::DecodeJob& job) {
  const F32 d;
  const std::size_t lanes = hn::Lanes(d), n = job.out.size();
  std::size_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    for (const std::size_t k : {i, i + lanes}) {
      Floats value = C::decode(C::fetch(job.wire.data() + 2 * k));
      if constexpr (add) value = hn::Add(hn::LoadU(d, job.addend + k), value);
      put_down<put>(value, job.out.data() + k);
    }
  }
  if (put == Put::stream) hwy::FlushStream();
  return i;
}

template <class C>
std::size_t decode_by_size(const detail::DecodeJob& job) {
  const bool streams = put_for(job) == Put::stream;
  if (job.addend) return streams ? decode_vectors<C, true, Put::stream>(job) : decode_vectors<C, true, Put::store>(job);
  return streams ? decode_vectors<C, false, Put::stream>(job) : decode_vectors<C, false, Put::store>(job);
}

void CastEncode(const detail::EncodeJob& job, bool half) {
  detail::cast_encode(job, half, half ? encode_vectors<small::FastHalf>(job) : encode_vectors<small::Bf16>(job));
}
void CastDecode(const detail::DecodeJob& job, bool half) {
  detail::cast_decode(job, half, half ? decode_by_size<small::FastHalf>(job) : decode_by_size<small::Bf16>(job));
}

#endif
}  // namespace gradmeter::compression::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gradmeter::compression {
namespace {

HWY_EXPORT(CastEncode);
HWY_EXPORT(CastDecode);

template <bool half>
std::unique_ptr<Codec> made(const core::ParsedName& name) {
  using detail::DecodeJob, detail::EncodeJob;
  return std::make_unique<detail::Bucketed>(
      name.canonical(),
      detail::Bucketed::Settings{.layout = {.bucket = 1, .bits = 16, .scale_width = 0},
                                 .fast = {[](const EncodeJob& job) {
                                            HWY_DYNAMIC_DISPATCH(CastEncode)
                                            (job, half);
                                          },
                                          [](const DecodeJob& job) {
                                            HWY_DYNAMIC_DISPATCH(CastDecode)
                                            (job, half);
                                          }},
                                 .plain = {[](const EncodeJob& job) { detail::cast_encode(job, half, 0); },
                                           [](const DecodeJob& job) { detail::cast_decode(job, half, 0); }}});
}

}  // namespace

std::unique_ptr<Codec> make_fp16(const core::ParsedName& name) { return made<true>(name); }
std::unique_ptr<Codec> make_bf16(const core::ParsedName& name) { return made<false>(name); }

}  // namespace gradmeter::compression
#endif
