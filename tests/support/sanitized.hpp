// SPDX-License-Identifier: Apache-2.0
// Is this a sanitizer's build? Those are ten times slower, and check how memory and threads are used, not numbers. With
// them a test may take fewer sizes, where more of them show nothing more.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

namespace gradmeter::test {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline constexpr bool sanitized = true;
#else
inline constexpr bool sanitized = false;
#endif

/// With it a test must not make a race on purpose.
#if defined(__SANITIZE_THREAD__)
inline constexpr bool finds_races = true;
#else
inline constexpr bool finds_races = false;
#endif

/// Equal bits have equal hashes. By the standard library, where no sanitizer watches each byte.
inline std::uint64_t hash_of(std::span<const std::byte> bytes) {
  return std::hash<std::string_view>{}({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

}  // namespace gradmeter::test
