// SPDX-License-Identifier: Apache-2.0
// Codecs that cast fp32 to a 16-bit float and back.
#pragma once
#include <cstring>
#include <memory>

#include "compression/codec.hpp"
#include "compression/detail/bucketed.hpp"
#include "core/element.hpp"
#include "core/host_device.hpp"
#include "core/name.hpp"

namespace gradmeter::compression {

/// The codecs `fp16` and `bf16`.
/// Wire: 2 bytes an element, rounded to nearest even; subnormals are kept. An element too large for the format becomes
/// infinity and NaN stays NaN, without effect on other elements. Error: relative, at most 2^-11 (fp16), 2^-8 (bf16) in
/// the normal range.
/// Cost: reads and writes 6 bytes an element to encode or decode, 10 to decode and add.
std::unique_ptr<Codec> make_fp16(const core::ParsedName&);
std::unique_ptr<Codec> make_bf16(const core::ParsedName&);

}  // namespace gradmeter::compression

namespace gradmeter::compression::detail {

// Casts to 16 bits in plain loops. They are the reference, and handle the last elements of a span.

GRADMETER_HOST_DEVICE constexpr core::SmallFormat cast_format(bool is_fp16) {
  return is_fp16 ? core::fp16_format : core::bf16_format;
}

/// Encodes the elements from `at` on, and writes the padding behind them.
inline void cast_encode(const EncodeJob& job, bool is_fp16, std::size_t at) {
  const std::size_t n = job.x.size();
  for (std::size_t i = at; i < n; ++i) {
    const std::uint16_t code = core::from_float(cast_format(is_fp16), job.x[i]);
    std::memcpy(job.wire + 2 * i, &code, 2);
  }
  std::memset(job.wire + 2 * n, 0, job.layout.total_bytes(n) - 2 * n);
}

inline void cast_decode(const DecodeJob& job, bool is_fp16, std::size_t at) {
  part_by_part(job, [&](const Encoded& part, const float* addend) {
    for (std::size_t i = at; i < job.out.size(); ++i) {
      std::uint16_t code;
      std::memcpy(&code, part.codes + 2 * i, 2);
      const float value = core::to_float(cast_format(is_fp16), code);
      job.out[i] = addend ? addend[i] + value : value;
    }
  });
}

}  // namespace gradmeter::compression::detail
