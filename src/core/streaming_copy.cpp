// SPDX-License-Identifier: Apache-2.0
// Highway compiles this file once for every instruction set, and chooses one at run time.
#include "core/streaming_copy.hpp"

#include <cstdint>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/streaming_copy.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include <hwy/cache_control.h>

HWY_BEFORE_NAMESPACE();

namespace gradmeter::core::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

void CopyStreaming(std::byte* to, const std::byte* from, std::size_t bytes) {
  const hn::ScalableTag<std::uint8_t> d;
  const std::size_t lanes = hn::Lanes(d);
  const std::size_t head = (lanes - reinterpret_cast<std::uintptr_t>(to) % lanes) % lanes;
  if (head >= bytes) {
    std::memcpy(to, from, bytes);
    return;
  }
  std::memcpy(to, from, head);
  std::size_t i = head;
  for (; i + lanes <= bytes; i += lanes) {
    hn::Stream(hn::LoadU(d, reinterpret_cast<const std::uint8_t*>(from) + i), d,
               reinterpret_cast<std::uint8_t*>(to) + i);
  }
  std::memcpy(to + i, from + i, bytes - i);
}

}  // namespace gradmeter::core::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace gradmeter::core {

HWY_EXPORT(CopyStreaming);

void copy_streaming(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes > 0) HWY_DYNAMIC_DISPATCH(CopyStreaming)(to, from, bytes);
}

void end_streaming() { hwy::FlushStream(); }

}  // namespace gradmeter::core

#endif
