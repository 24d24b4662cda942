#include "runtime/host/subnormals.hpp"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include <cstdint>

namespace gradmeter::runtime {

void flush_subnormals() {
#if defined(__x86_64__)
  constexpr unsigned int results = 1U << 15, operands = 1U << 6;
  _mm_setcsr(_mm_getcsr() | results | operands);
#elif defined(__aarch64__)
  constexpr std::uint64_t both = std::uint64_t{1} << 24;
  std::uint64_t control = 0;
  asm volatile("mrs %0, fpcr" : "=r"(control));
  asm volatile("msr fpcr, %0" : : "r"(control | both));
#endif
}

}  // namespace gradmeter::runtime
