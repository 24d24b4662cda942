#include "bench/engine/canary.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "core/statistics.hpp"
#include "hwy/cache_control.h"
#include "kernels/threads.hpp"
#include "runtime/time/clock.hpp"

namespace gradmeter::bench {
namespace {

constexpr std::size_t side = 128, copied = std::size_t{256} << 10;
constexpr std::size_t repetitions = 5;

/// One thread of this rank computes, however many threads the run's points use: the same work in all of them.
class OneThread {
 public:
  OneThread() { kernels::set_compute_threads(1); }
  ~OneThread() { kernels::set_compute_threads(before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_ = kernels::compute_threads();
};

void flush(std::span<const std::byte> memory) {
  for (std::size_t i = 0; i < memory.size(); i += kernels::cache_line_bytes) hwy::FlushCacheline(&memory[i]);
}

}  // namespace

double CanaryTimes::best() const {
  std::vector<double> sorted = times_;
  const auto tenth = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 10);
  std::ranges::nth_element(sorted, tenth);
  return *tenth;
}

double CanaryTimes::steadiness(std::size_t first) const {
  if (first >= times_.size()) return 1;
  return std::min(1.0, best() / core::median(std::span(times_).subspan(first)));
}

Canary::Canary(Session& s, const runtime::Communicator& c)
    : session_(s),
      c_(c),
      a_(side * side, 0.5f),
      b_(side * side, 0.25f),
      sum_(side * side),
      from_(copied, std::byte{1}),
      to_(copied) {
  const OneThread one;
  product_ = kernels::make_gemm({.m = side, .n = side, .k = side});
  slowest_median();  // touches memory for the first time
}

double Canary::run_once() {
  flush(from_);
  c_.barrier();
  const double begin = runtime::host_clock();
  product_->run(a_, b_, {}, sum_);
  std::memcpy(to_.data(), from_.data(), copied);
  return runtime::host_clock() - begin;
}

double Canary::slowest_median() {
  const runtime::Computing note(session_.activity(), "canary");
  std::array<double, repetitions> times{};
  for (double& t : times) t = run_once();
  return c_.max(core::median(times));
}

double Canary::round() {
  const OneThread one;
  const double time = slowest_median();
  times_.add(time);
  return time;
}

}  // namespace gradmeter::bench
