// The loop over buckets without vectors: the reference. A rule names
//   bits, Scale (on the wire), random (whether it draws);
//   static Scale scale(float norm); the norm of an unfit bucket is NaN
//   Encoder(norm).code(x, draw), for a norm that is neither 0 nor NaN; other buckets have codes of 0
//   Decoder(scale).value(code).
#pragma once
#include <algorithm>
#include <cstring>

#include "compression/detail/bucketed.hpp"

namespace gradmeter::compression::detail {

/// Codes [0, x.size()) of elements from `at` on; `codes` is zero beforehand and begins at a whole byte.
template <class Rule>
void encode_plain_codes(const typename Rule::Encoder& encoder, std::span<const float> x, const Draws& draws,
                        std::size_t at, std::byte* codes) {
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::uint32_t code = encoder.code(x[i], Rule::random ? draws.draw(at + i) : half_draw);
    codes[i * Rule::bits / 8] |= static_cast<std::byte>(code << i * Rule::bits % 8);
  }
}

template <class Rule>
void encode_plain(const EncodeJob& job) {
  const WireLayout& layout = job.layout;
  const std::size_t n = job.x.size();
  std::byte* codes = job.wire + layout.scales(n);
  std::fill(job.wire, job.wire + layout.wire(n), std::byte{0});
  for (std::size_t b = 0; b < layout.buckets(n); ++b) {
    const std::size_t at = b * layout.bucket;
    const auto x = job.x.subspan(at, std::min(layout.bucket, n - at));
    const float norm = job.norm == Norm::max ? max_norm(x) : l2_norm(x);
    const typename Rule::Scale scale = Rule::scale(norm);
    std::memcpy(job.wire + b * sizeof(scale), &scale, sizeof(scale));
    if (norm > 0) {
      encode_plain_codes<Rule>(typename Rule::Encoder(norm), x, job.draws, at, codes + at / 8 * Rule::bits);
    }
  }
}

template <class Rule>
void decode_plain(const DecodeJob& job) {
  const WireLayout& layout = job.layout;
  const std::size_t n = job.out.size();
  const std::byte* codes = job.wire.data() + layout.scales(n);
  for (std::size_t b = 0; b < layout.buckets(n); ++b) {
    typename Rule::Scale scale;
    std::memcpy(&scale, job.wire.data() + b * sizeof(scale), sizeof(scale));
    const typename Rule::Decoder decoder(scale);
    const std::size_t end = std::min(n, (b + 1) * layout.bucket);
    for (std::size_t i = b * layout.bucket; i < end; ++i) {
      const auto byte = std::to_integer<std::uint32_t>(codes[i / 8 * Rule::bits + i % 8 * Rule::bits / 8]);
      const float value = decoder.value(byte >> i * Rule::bits % 8 & ((1u << Rule::bits) - 1));
      job.out[i] = job.addend ? job.addend[i] + value : value;
    }
  }
}

template <class Rule>
constexpr Loops plain_loops{encode_plain<Rule>, decode_plain<Rule>};

}  // namespace gradmeter::compression::detail
