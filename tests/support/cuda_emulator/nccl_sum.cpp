// SPDX-License-Identifier: Apache-2.0
#include "support/cuda_emulator/nccl_sum.hpp"

#include <cstdint>
#include <type_traits>

namespace cuda_emulator {
namespace {

/// Calls `f` with a value of the C++ type, and one of the type in which it is computed.
template <class F>
void with_type(ncclDataType_t type, F f) {
  switch (type) {
    case ncclInt8:
      return f(std::int8_t{}, std::int8_t{});
    case ncclUint8:
      return f(std::uint8_t{}, std::uint8_t{});
    case ncclInt32:
      return f(std::int32_t{}, std::int32_t{});
    case ncclUint32:
      return f(std::uint32_t{}, std::uint32_t{});
    case ncclInt64:
      return f(std::int64_t{}, std::int64_t{});
    case ncclUint64:
      return f(std::uint64_t{}, std::uint64_t{});
    case ncclFloat16:
      return f(__half{}, float{});
    case ncclFloat32:
      return f(float{}, float{});
    case ncclFloat64:
      return f(double{}, double{});
    case ncclBfloat16:
      return f(__nv_bfloat16{}, float{});
    case ncclFloat8e4m3:
      return f(__nv_fp8_e4m3{}, float{});
    case ncclFloat8e5m2:
      return f(__nv_fp8_e5m2{}, float{});
    default:
      return;
  }
}

/// Integers wrap.
template <class Wide>
Wide combined(Wide a, Wide b, int op) {
  using Word =
      typename std::conditional_t<std::is_integral_v<Wide>, std::make_unsigned<Wide>, std::type_identity<Wide>>::type;
  const auto x = static_cast<Word>(a), y = static_cast<Word>(b);
  switch (op) {
    case ncclProd:
      return static_cast<Wide>(static_cast<Word>(x * y));
    case ncclMax:
      return a < b ? b : a;
    case ncclMin:
      return b < a ? b : a;
    default:
      return static_cast<Wide>(static_cast<Word>(x + y));
  }
}

}  // namespace

std::size_t size_of(ncclDataType_t type) {
  std::size_t bytes = 0;
  with_type(type, [&](auto stored, auto) { bytes = sizeof stored; });
  return bytes;
}

void prepare(char* values, std::size_t bytes, ncclDataType_t type, int op, int ranks) {
  if (op != ncclAvg) return;
  with_type(type, [&]<class T, class Wide>(T, Wide) {
    if constexpr (!std::is_integral_v<T>) {
      const auto factor = static_cast<Wide>(static_cast<T>(Wide{1} / static_cast<Wide>(ranks)));
      auto* const v = reinterpret_cast<T*>(values);
      for (std::size_t i = 0; i < bytes / sizeof(T); ++i) v[i] = static_cast<T>(static_cast<Wide>(v[i]) * factor);
    }
  });
}

void fold(char* to, const char* from, std::size_t bytes, ncclDataType_t type, int op) {
  with_type(type, [&]<class T, class Wide>(T, Wide) {
    auto* const a = reinterpret_cast<T*>(to);
    const auto* const b = reinterpret_cast<const T*>(from);
    for (std::size_t i = 0; i < bytes / sizeof(T); ++i) {
      a[i] = static_cast<T>(combined<Wide>(static_cast<Wide>(a[i]), static_cast<Wide>(b[i]), op));
    }
  });
}

void complete(char* values, std::size_t bytes, ncclDataType_t type, int op, int ranks) {
  if (op != ncclAvg) return;
  with_type(type, [&]<class T, class Wide>(T, Wide) {
    if constexpr (std::is_integral_v<T>) {
      auto* const v = reinterpret_cast<T*>(values);
      for (std::size_t i = 0; i < bytes / sizeof(T); ++i) v[i] = static_cast<T>(v[i] / static_cast<T>(ranks));
    }
  });
}

}  // namespace cuda_emulator
