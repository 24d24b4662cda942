// Is this build a sanitizer's? Those are ten times slower, and look at how memory and threads are used, not at numbers:
// with them a test may take fewer sizes, where more of them show nothing more.
#pragma once

namespace gradmeter::test {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline constexpr bool sanitized = true;
#else
inline constexpr bool sanitized = false;
#endif

}  // namespace gradmeter::test
