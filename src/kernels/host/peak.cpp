// SPDX-License-Identifier: Apache-2.0
// The rates that libraries reach: oneDNN with fp32 products, and memcpy with the copy of a buffer.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "core/error.hpp"
#include "core/random.hpp"
#include "kernels/call_check.hpp"
#include "kernels/gemm/gemm.hpp"
#include "kernels/host/memory.hpp"
#include "kernels/host/roofline.hpp"
#include "kernels/host/threads.hpp"

namespace gradmeter::kernels {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

constexpr std::array<std::size_t, 3> sides{384, 768, 1536};

// Values in [-1, 1). Zeros or small integers would leave the processor cooler, and so faster, than training does.
AlignedVector<float> random_floats(std::size_t n, std::uint64_t stream) {
  AlignedVector<float> values(n);
  const core::Random random(1, stream);
  for (std::size_t i = 0; i < n; ++i) values[i] = static_cast<float>(2 * random.uniform(i) - 1);
  return values;
}

/// Checks the product by two more runs, each on changed inputs: a library may be wrong in some calls only. If the
/// operands together have up to 2^20 elements, CallCheck checks each row. Errors: WrongResult.
void require_right(Gemm& product, std::span<float> a, std::span<const float> b, std::span<float> c) {
  for (const std::uint64_t call : {1, 2}) {
    a[call] = -a[call];
    const CallCheck check(call);
    product.run(a, b, {}, c);
    if (!check.fault().empty()) throw core::WrongResult("a product that gives a rate is wrong: " + check.fault());
  }
}

}  // namespace

core::FlopsPerSecond measure_gemm_peak(core::Seconds budget) {
  constexpr std::size_t largest = sides.back() * sides.back();
  const AlignedVector<float> b = random_floats(largest, 1);
  AlignedVector<float> a = random_floats(largest, 0), c(largest);
  std::vector<std::unique_ptr<Gemm>> products;
  for (const std::size_t side : sides) products.push_back(make_gemm({.m = side, .n = side, .k = side}));
  constexpr int least_rounds = 2;  // the first round touches memory for the first time
  double best = 0;                 // FLOP/s
  const auto start = Clock::now();
  for (int round = 0; round < least_rounds || seconds_since(start) < budget.value; ++round)
    for (std::size_t i = 0; i < sides.size(); ++i) {
      const GemmShape problem{.m = sides[i], .n = sides[i], .k = sides[i]};
      const std::size_t elements = problem.m * problem.n;
      const auto begin = Clock::now();
      products[i]->run({a.data(), elements}, {b.data(), elements}, {}, {c.data(), elements});
      best = std::max(best, problem.flops() / seconds_since(begin));
    }
  for (std::size_t i = 0; i < sides.size(); ++i) {
    const std::size_t elements = sides[i] * sides[i];
    require_right(*products[i], {a.data(), elements}, {b.data(), elements}, {c.data(), elements});
  }
  return {best};
}

core::FlopsPerSecond measure_gemm_throughput(core::Seconds budget) {
  constexpr std::size_t side = 512;
  const GemmShape problem{.m = side, .n = side, .k = side};
  const AlignedVector<float> b = random_floats(side * side, 1);
  AlignedVector<float> a = random_floats(side * side, 0), c(side * side);
  const auto gemm = make_gemm(problem);
  gemm->run(a, b, {}, c);
  const auto start = Clock::now();
  double flops = 0;
  for (; seconds_since(start) < budget.value; flops += problem.flops()) gemm->run(a, b, {}, c);
  const double seconds = seconds_since(start);
  require_right(*gemm, a, b, c);
  return {flops / seconds};
}

core::BytesPerSecond measure_copy_bandwidth(std::size_t bytes, core::Seconds budget) {
  if (bytes == 0) throw std::invalid_argument("measure_copy_bandwidth: nothing to copy");
  AlignedVector<std::uint8_t> from(bytes), to(bytes);
  for (std::size_t i = 0; i < bytes; ++i) from[i] = static_cast<std::uint8_t>(i % 251);
  constexpr std::size_t copy_grain = 1 << 20;  // bytes; a smaller part does not repay its thread
  constexpr std::size_t least_copies = 3;
  std::vector<double> times;
  const auto start = Clock::now();
  while (times.size() < least_copies || seconds_since(start) < budget.value) {
    from[times.size() % bytes] ^= 0x5a;  // changes the source, so that each copy moves something new
    const auto begin = Clock::now();
    split(bytes, copy_grain,
          [&](std::size_t first, std::size_t count) { std::memcpy(to.data() + first, from.data() + first, count); });
    times.push_back(seconds_since(begin));
  }
  if (from != to) throw core::WrongResult("measure_copy_bandwidth: the copy differs from its source");
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::ranges::nth_element(times, middle);
  return core::Bytes{bytes} / core::Seconds{*middle};
}

}  // namespace gradmeter::kernels
