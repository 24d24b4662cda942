// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/roofline.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <limits>
#include <new>
#include <vector>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/host/roofline.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();

namespace gradmeter::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Computes x = x·f + a again and again in twelve vectors. x tends to a / (1 - f), so all digits of the mantissa are in
// use, and nothing overflows or becomes subnormal. Returns the sum of all vectors, so that the compiler keeps each.
float Chains(std::size_t rounds) {
  const hn::ScalableTag<float> tag;
  const auto factor = hn::Set(tag, 0.7310586F), addend = hn::Set(tag, 0.4142136F);
  auto x0 = hn::Iota(tag, 0.1F), x1 = hn::Iota(tag, 0.2F), x2 = hn::Iota(tag, 0.3F), x3 = hn::Iota(tag, 0.4F);
  auto x4 = hn::Iota(tag, 0.5F), x5 = hn::Iota(tag, 0.6F), x6 = hn::Iota(tag, 0.7F), x7 = hn::Iota(tag, 0.8F);
  auto x8 = hn::Iota(tag, 0.9F), x9 = hn::Iota(tag, 1.0F), x10 = hn::Iota(tag, 1.1F), x11 = hn::Iota(tag, 1.2F);
  for (std::size_t i = 0; i < rounds; ++i) {
    x0 = hn::MulAdd(x0, factor, addend), x1 = hn::MulAdd(x1, factor, addend), x2 = hn::MulAdd(x2, factor, addend),
    x3 = hn::MulAdd(x3, factor, addend);
    x4 = hn::MulAdd(x4, factor, addend), x5 = hn::MulAdd(x5, factor, addend), x6 = hn::MulAdd(x6, factor, addend),
    x7 = hn::MulAdd(x7, factor, addend);
    x8 = hn::MulAdd(x8, factor, addend), x9 = hn::MulAdd(x9, factor, addend), x10 = hn::MulAdd(x10, factor, addend),
    x11 = hn::MulAdd(x11, factor, addend);
  }
  const auto sum0 = hn::Add(hn::Add(hn::Add(x0, x1), hn::Add(x2, x3)), hn::Add(hn::Add(x4, x5), hn::Add(x6, x7)));
  return hn::GetLane(hn::SumOfLanes(tag, hn::Add(sum0, hn::Add(hn::Add(x8, x9), hn::Add(x10, x11)))));
}

std::size_t LanesOfChains() { return 12 * hn::Lanes(hn::ScalableTag<float>()); }

// Computes a = b + s·c. n is a multiple of the vector's length, and all three arrays are aligned to it.
void Triad(float* HWY_RESTRICT a, const float* HWY_RESTRICT b, const float* HWY_RESTRICT c, float s, std::size_t n) {
  const hn::ScalableTag<float> d;
  const auto factor = hn::Set(d, s);
  for (std::size_t i = 0; i < n; i += hn::Lanes(d)) {
    hn::Stream(hn::MulAdd(factor, hn::Load(d, c + i), hn::Load(d, b + i)), d, a + i);
  }
  hwy::FlushStream();
}

// Updates w, m and v in place, as Adam does with weights and moments: every line that is stored was loaded before.
void Update(float* HWY_RESTRICT w, float* HWY_RESTRICT m, float* HWY_RESTRICT v, const float* HWY_RESTRICT g, float s,
            std::size_t n) {
  const hn::ScalableTag<float> d;
  const auto factor = hn::Set(d, s);
  for (std::size_t i = 0; i < n; i += hn::Lanes(d)) {
    const auto gradient = hn::Load(d, g + i);
    const auto first = hn::MulAdd(factor, hn::Load(d, m + i), gradient);
    const auto second = hn::MulAdd(factor, hn::Load(d, v + i), gradient);
    hn::Store(first, d, m + i);
    hn::Store(second, d, v + i);
    hn::Store(hn::MulAdd(factor, hn::Load(d, w + i), hn::Add(first, second)), d, w + i);
  }
}

// Reads four streams side by side: prefetchers follow each, and one alone does not fill the memory's queues. There are
// eight sums, so that no addition waits for the one before.
float Sum(const float* HWY_RESTRICT x, std::size_t n) {
  const hn::ScalableTag<float> d;
  const std::size_t lanes = hn::Lanes(d), step = 2 * lanes, quarter = n / 4 / step * step;
  auto s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0, s4 = s0, s5 = s0, s6 = s0, s7 = s0;
  for (std::size_t i = 0; i < quarter; i += step) {
    const float* const at = x + i;
    s0 = hn::Add(s0, hn::LoadU(d, at)), s1 = hn::Add(s1, hn::LoadU(d, at + lanes));
    s2 = hn::Add(s2, hn::LoadU(d, at + quarter)), s3 = hn::Add(s3, hn::LoadU(d, at + quarter + lanes));
    s4 = hn::Add(s4, hn::LoadU(d, at + 2 * quarter)), s5 = hn::Add(s5, hn::LoadU(d, at + 2 * quarter + lanes));
    s6 = hn::Add(s6, hn::LoadU(d, at + 3 * quarter)), s7 = hn::Add(s7, hn::LoadU(d, at + 3 * quarter + lanes));
  }
  const auto low = hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)), high = hn::Add(hn::Add(s4, s5), hn::Add(s6, s7));
  float sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(low, high)));
  for (std::size_t i = 4 * quarter; i < n; ++i) sum += x[i];
  return sum;
}

}  // namespace gradmeter::kernels::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "core/error.hpp"
#include "kernels/host/threads.hpp"

namespace gradmeter::kernels {

HWY_EXPORT(Chains);
HWY_EXPORT(LanesOfChains);
HWY_EXPORT(Triad);
HWY_EXPORT(Update);
HWY_EXPORT(Sum);

namespace {

/// The time of the shortest call [s] among as many as fit in `budget`, but at least `least`.
template <class Work>
double shortest(core::Seconds budget, int least, const Work& work) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  double best = 0;
  for (int i = 0;; ++i) {
    const auto begin = Clock::now();
    work();
    const auto end = Clock::now();
    const double took = std::chrono::duration<double>(end - begin).count();
    best = i == 0 ? took : std::min(best, took);
    if (i + 1 >= least && std::chrono::duration<double>(end - start).count() >= budget.value) return best;
  }
}

/// Memory that no thread has touched, so that each thread's part becomes local to it at the first touch. It is on huge
/// pages where the kernel grants them, so that address translation takes little of the measured time.
class Pages {
 public:
  explicit Pages(std::size_t floats) : data_(::operator new(floats * sizeof(float), align)) {
    madvise(data_, floats * sizeof(float), MADV_HUGEPAGE);  // if this advice is refused, ordinary pages serve
  }
  ~Pages() { ::operator delete(data_, align); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  float* data() { return static_cast<float*>(data_); }

 private:
  static constexpr std::align_val_t align{std::size_t{2} << 20};
  void* data_;
};

// The most floats in a vector; the parts of `split` start at multiples of this.
constexpr std::size_t vector_floats = 16;
constexpr std::size_t grain = 1 << 18;  // floats; a smaller part does not repay its thread

/// The number at place i of one of measure_memory's four arrays (0 to 3) before the passes. It differs between the
/// arrays, so that the checks find a pass that reads the wrong one.
float initial(int array, std::size_t i) {
  return 0.25F * static_cast<float>(array + 1) + static_cast<float>(static_cast<int>(i & 1023));
}

}  // namespace

core::FlopsPerSecond measure_fma_peak(core::Seconds budget) {
  constexpr std::size_t rounds = 1 << 16;
  const auto threads = static_cast<std::size_t>(compute_threads());
  std::vector<float> sums(threads * vector_floats);
  const double took = shortest(budget, 10, [&] {
    // Each thread has one part, and writes its sum to a cache line of its own.
    split(sums.size(), vector_floats,
          [&](std::size_t first, std::size_t) { sums[first] = HWY_DYNAMIC_DISPATCH(Chains)(rounds); });
  });
  if (!(sums[0] > 0)) throw core::WrongResult("measure_fma_peak: the chains did not run");
  const auto lanes = static_cast<double>(HWY_DYNAMIC_DISPATCH(LanesOfChains)() * rounds * threads);
  return core::Flops{2 * lanes} / core::Seconds{took};
}

namespace {

#if defined(__x86_64__)
/// True if this bit of CPUID's leaf 7 is set, which says that the processor has certain instructions. reg: 0 to 3 for
/// EAX to EDX.
bool has_feature(unsigned subleaf, unsigned reg, unsigned bit) {
  std::array<unsigned, 4> r{};
  return __get_cpuid_count(7, subleaf, r.data(), &r[1], &r[2], &r[3]) != 0 && ((r.at(reg) >> bit) & 1U) != 0;
}
double bf16_rate_multiple() {
  const bool amx = has_feature(0, 3, 22), avx512 = has_feature(1, 0, 5);
  return amx ? 16 : avx512 ? 2 : 1;
}
double int8_rate_multiple() {
  const bool amx = has_feature(0, 3, 25), vnni = has_feature(0, 2, 11) || has_feature(1, 0, 4);
  return amx ? 32 : vnni ? 4 : 2;  // VPMADDUBSW has twice as many products, and two more instructions follow
}
#else
double bf16_rate_multiple() { return 4; }  // BFMMLA has 16 products where FMLA has 4
double int8_rate_multiple() { return 8; }  // SMMLA has 32
#endif

}  // namespace

double product_rate_bound(Precision p) {
  constexpr double margin = 1.25;
  if (p == Precision::fp32) return margin;
  if (p == Precision::bf16) return margin * bf16_rate_multiple();
  if (p == Precision::int8) return margin * int8_rate_multiple();
  return std::numeric_limits<double>::infinity();
}

float read_once(std::span<const float> values) {
  std::atomic<float> sum{0};
  split(values.size(), grain, [&](std::size_t first, std::size_t count) {
    sum.fetch_add(HWY_DYNAMIC_DISPATCH(Sum)(values.data() + first, count), std::memory_order_relaxed);
  });
  return sum;
}

std::size_t memory_pass_bytes(std::size_t cache) {
  if (cache == 0) cache = static_cast<std::size_t>(std::max(0L, sysconf(_SC_LEVEL3_CACHE_SIZE)));
  return std::clamp(4 * cache, std::size_t{64} << 20, std::size_t{512} << 20);
}

MemoryRates measure_memory(core::Seconds budget, std::size_t pass_bytes) {
  const std::size_t wanted = pass_bytes == 0 ? memory_pass_bytes() : pass_bytes;
  const std::size_t n = std::max<std::size_t>(wanted / sizeof(float) / (3 * vector_floats), 1) * vector_floats;
  Pages pages(4 * n);
  float *const a = pages.data(), *const b = a + n, *const c = b + n, *const d = c + n;
  // In all passes a thread has the same part of each array, which its first touch makes local to it.
  split(n, grain, [&](std::size_t first, std::size_t count) {
    for (std::size_t i = first; i < first + count; ++i)
      a[i] = initial(0, i), b[i] = initial(1, i), c[i] = initial(2, i), d[i] = initial(3, i);
  });
  constexpr int least_passes = 6;
  const core::Seconds pass_budget{budget.value / 3};
  const auto rate = [&](std::size_t bytes, const auto& pass) {
    return core::Bytes{bytes * n} / core::Seconds{shortest(pass_budget, least_passes, [&] { split(n, grain, pass); })};
  };
  // Compares some numbers of `a`; they are small, so sums are exact.
  const auto check = [&](const char* pass, auto value) {
    for (std::size_t i = 0; i < n; i += 4099) {
      if (a[i] != value(i)) throw core::WrongResult(std::string("measure_memory: wrong after the ") + pass);
    }
  };
  MemoryRates rates;
  constexpr float factor = 3, zero_factor = 0;
  rates.triad = rate(12, [&](std::size_t first, std::size_t count) {
    HWY_DYNAMIC_DISPATCH(Triad)(a + first, b + first, c + first, factor, count);
  });
  check("triad", [](std::size_t i) { return initial(1, i) + factor * initial(2, i); });
  // Factor 0 gives the same numbers in each pass.
  rates.update = rate(28, [&](std::size_t first, std::size_t count) {
    HWY_DYNAMIC_DISPATCH(Update)(a + first, b + first, c + first, d + first, zero_factor, count);
  });
  check("update", [](std::size_t i) { return 2 * initial(3, i); });
  std::atomic<float> sum{0};
  rates.read = rate(16, [&](std::size_t first, std::size_t count) {
    for (const float* const array : {a, b, c, d}) {
      sum.store(HWY_DYNAMIC_DISPATCH(Sum)(array + first, count), std::memory_order_relaxed);
    }
  });
  return rates;
}

}  // namespace gradmeter::kernels

#endif  // HWY_ONCE
