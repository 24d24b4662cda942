// Casts to 16 bits with no vectors: the reference, and the last elements of a span.
#pragma once
#include <cstring>

#include "compression/detail/bucketed.hpp"
#include "core/small_float.hpp"

namespace gradmeter::compression::detail {

constexpr core::SmallFormat cast_format(bool half) { return half ? core::fp16_format : core::bf16_format; }

/// Elements from `at` on, and the padding.
inline void cast_encode(const EncodeJob& job, bool half, std::size_t at) {
  const std::size_t n = job.x.size();
  for (std::size_t i = at; i < n; ++i) {
    const std::uint16_t code = core::from_float(cast_format(half), job.x[i]);
    std::memcpy(job.wire + 2 * i, &code, 2);
  }
  std::memset(job.wire + 2 * n, 0, job.layout.wire(n) - 2 * n);
}

inline void cast_decode(const DecodeJob& job, bool half, std::size_t at) {
  for (std::size_t i = at; i < job.out.size(); ++i) {
    std::uint16_t code;
    std::memcpy(&code, job.wire.data() + 2 * i, 2);
    const float value = core::to_float(cast_format(half), code);
    job.out[i] = job.addend ? job.addend[i] + value : value;
  }
}

}  // namespace gradmeter::compression::detail
