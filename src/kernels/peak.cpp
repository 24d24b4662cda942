#include "kernels/peak.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "core/error.hpp"
#include "core/random.hpp"
#include "kernels/aligned.hpp"
#include "kernels/gemm.hpp"
#include "kernels/threads.hpp"

namespace gradmeter::kernels {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

constexpr std::array<std::size_t, 3> sides{384, 768, 1536};

struct TimedProduct {
  GemmShape problem;
  std::unique_ptr<Gemm> gemm;
  double best = 0;  // FLOP/s
};

// Values in [-1, 1): zeros or small integers would run cooler, and faster, than training does.
AlignedVector<float> random_floats(std::size_t n, std::uint64_t stream) {
  AlignedVector<float> values(n);
  const core::Random random(1, stream);
  for (std::size_t i = 0; i < n; ++i) values[i] = static_cast<float>(2 * random.uniform(i) - 1);
  return values;
}

}  // namespace

core::FlopsPerSecond measure_gemm_peak(core::Seconds budget) {
  constexpr std::size_t largest = sides.back() * sides.back();
  const AlignedVector<float> a = random_floats(largest, 0), b = random_floats(largest, 1);
  AlignedVector<float> c(largest);
  std::vector<TimedProduct> products;
  for (const std::size_t side : sides) {
    const GemmShape problem{.m = side, .n = side, .k = side};
    products.push_back({problem, make_gemm(problem)});
  }
  constexpr int least_rounds = 2;  // the first touches memory for the first time
  const auto start = Clock::now();
  for (int round = 0; round < least_rounds || seconds_since(start) < budget.value; ++round)
    for (TimedProduct& product : products) {
      const std::size_t elements = product.problem.m * product.problem.n;
      const auto begin = Clock::now();
      product.gemm->run({a.data(), elements}, {b.data(), elements}, {}, {c.data(), elements});
      product.best = std::max(product.best, product.problem.flops() / seconds_since(begin));
    }
  return {std::ranges::max_element(products, {}, &TimedProduct::best)->best};
}

core::FlopsPerSecond measure_gemm_throughput(core::Seconds budget) {
  constexpr std::size_t side = 512;
  const GemmShape problem{.m = side, .n = side, .k = side};
  const AlignedVector<float> a = random_floats(side * side, 0), b = random_floats(side * side, 1);
  AlignedVector<float> c(side * side);
  const auto gemm = make_gemm(problem);
  gemm->run(a, b, {}, c);
  const auto start = Clock::now();
  double flops = 0;
  for (; seconds_since(start) < budget.value; flops += problem.flops()) gemm->run(a, b, {}, c);
  return {flops / seconds_since(start)};
}

core::BytesPerSecond measure_copy_bandwidth(std::size_t bytes, core::Seconds budget) {
  if (bytes == 0) throw std::invalid_argument("measure_copy_bandwidth: nothing to copy");
  AlignedVector<std::uint8_t> from(bytes), to(bytes);
  for (std::size_t i = 0; i < bytes; ++i) from[i] = static_cast<std::uint8_t>(i % 251);
  constexpr std::size_t grain = 1 << 20;  // below this a thread costs more than it brings
  constexpr std::size_t least_copies = 3;
  std::vector<double> times;
  const auto start = Clock::now();
  while (times.size() < least_copies || seconds_since(start) < budget.value) {
    from[times.size() % bytes] ^= 0x5a;  // each copy has something new to bring
    const auto begin = Clock::now();
    split(bytes, grain,
          [&](std::size_t first, std::size_t count) { std::memcpy(to.data() + first, from.data() + first, count); });
    times.push_back(seconds_since(begin));
  }
  if (from != to) throw core::WrongResult("measure_copy_bandwidth: the copy differs from its source");
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::ranges::nth_element(times, middle);
  return core::Bytes{bytes} / core::Seconds{*middle};
}

}  // namespace gradmeter::kernels
