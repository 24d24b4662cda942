// SPDX-License-Identifier: Apache-2.0
// What a matrix product in the logarithmic number system costs on one core, compared with the fp32 library's of the
// same shape.
//   build/release/tests/bench/bench_lns [SIZE ...]
// For each size n (n × n × n; 512 and 1024 unless given): GMAC/s, median and quartiles over rounds in which the
// variants take turns, and how many times slower than the fp32 library in the same round.
#include <hwy/targets.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "core/format.hpp"
#include "core/random.hpp"
#include "core/statistics.hpp"
#include "kernels/host/threads.hpp"
#include "kernels/lns/lns.hpp"

namespace {

using namespace gradmeter;
using namespace gradmeter::kernels;

constexpr std::size_t rounds = 7;
constexpr double least_seconds = 0.1;  // of one measurement

struct Contender {
  std::string name;
  std::function<void()> work;
  std::vector<double> speeds = {}, slower = {};  ///< GMAC/s; times, by the first variant
};

/// Highway's choice, held below AVX-512 while this lives.
struct WithoutAvx512 {
  WithoutAvx512() { choose(HWY_AVX3 | (HWY_AVX3 - 1)); }
  ~WithoutAvx512() { choose(0); }
  WithoutAvx512(const WithoutAvx512&) = delete;
  WithoutAvx512& operator=(const WithoutAvx512&) = delete;

 private:
  static void choose(std::int64_t without) {
    hwy::SetSupportedTargetsForTest(0);
    const std::int64_t rest = hwy::SupportedTargets() & ~without;
    if (without != 0) hwy::SetSupportedTargetsForTest(rest);
    hwy::GetChosenTarget().Update(rest);
  }
};

double seconds(const std::function<void()>& work) {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  for (std::size_t calls = 1;; ++calls) {
    work();
    const double passed = std::chrono::duration<double>(Clock::now() - begin).count();
    if (passed >= least_seconds) return passed / static_cast<double>(calls);
  }
}

void measure(std::size_t n) {
  const GemmShape problem{.m = n, .n = n, .k = n};
  const core::Random random(1, 1);
  std::vector<float> a(n * n), b(n * n), c(n * n);
  for (std::size_t i = 0; i < n * n; ++i) {
    a[i] = static_cast<float>(random.gaussian(2 * i));
    b[i] = static_cast<float>(random.gaussian(2 * i + 1));
  }
  const auto library = make_gemm(problem);
  std::vector<Contender> contenders{{"fp32 library", [&] { library->run(a, b, {}, c); }}};
  std::vector<std::unique_ptr<LnsGemm>> products;
  std::vector<Lns16> la(n * n), lb(n * n), lc(n * n);
  lns_encode(Lns(8), a, la);
  lns_encode(Lns(8), b, lb);
  for (const LnsAddition kind : {LnsAddition::exact, LnsAddition::interpolated}) {
    products.push_back(make_lns_gemm(problem, Lns(8, kind)));
  }
  products.push_back(make_lns_gemm(problem, Lns(8), LnsSum::linear));
  // One tiny number, and the loop has to check every product for underflow.
  std::vector<Lns16> tiny = la;
  tiny[0] = Lns16::from(false, 1);
  for (std::size_t i = 0; i < 2; ++i) {
    contenders.push_back({products[i]->implementation() + ", checked", [&, i] { products[i]->run(tiny, lb, lc); }});
  }
  contenders.push_back({"lns f8 exact, without AVX-512", [&] {
                          const WithoutAvx512 here;
                          products[0]->run(la, lb, lc);
                        }});
  for (const auto& p : products) {
    contenders.push_back({p->implementation(), [&p, &la, &lb, &lc] { p->run(la, lb, lc); }});
  }
  for (std::size_t round = 0; round < rounds + 1; ++round) {
    double first = 0;
    for (Contender& contender : contenders) {
      const double took = seconds(contender.work);
      if (&contender == &contenders.front()) first = took;
      if (round == 0) continue;  // warms up
      contender.speeds.push_back(1e-9 * problem.flops() / 2 / took);
      contender.slower.push_back(took / first);
    }
  }
  fmt::print("\n{0} x {0} x {0}\n{1:<42} {2:>8} {3:>15} {4:>8} {5:>13}\n", n, "", "GMAC/s", "quartiles", "slower",
             "quartiles");
  for (const Contender& x : contenders) {
    const auto speed = core::summarise(x.speeds), slower = core::summarise(x.slower);
    fmt::print("{:<42} {:>8.2f} {:>7.2f}-{:<7.2f} {:>8.2f} {:>6.2f}-{:<6.2f}\n", x.name, speed.median, speed.q1,
               speed.q3, slower.median, slower.q1, slower.q3);
  }
}

}  // namespace

int main(int argc, char** argv) {
  set_compute_threads(1);
  std::vector<std::size_t> sizes;
  for (int i = 1; i < argc; ++i) sizes.push_back(std::stoul(argv[i]));
  if (sizes.empty()) sizes = {512, 1024};
  for (const std::size_t n : sizes) measure(n);
  return 0;
}
