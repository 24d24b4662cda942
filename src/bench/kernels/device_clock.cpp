#include "bench/kernels/device_clock.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/statistics.hpp"
#include "kernels/cases/kernel_case.hpp"
#include "kernels/loops.hpp"
#include "runtime/time/clock.hpp"

namespace gradmeter::bench {
namespace {

constexpr std::size_t unknown_cache = std::size_t{64} << 20;

runtime::MarkPtr mark(runtime::Queue& queue) {
  runtime::MarkPtr at;
  queue.submit("mark", {}, [&at] { at = runtime::device_access->mark(); });
  return at;
}

/// The marks around `work`, all of which has been done.
double seconds_of(runtime::Queue& queue, const std::function<void()>& work) {
  const auto begin = mark(queue);
  work();
  const auto end = mark(queue);
  queue.synchronise();
  return begin->until(*end);
}

double rate_of(runtime::Device& device, const kernels::Problem& p, core::Seconds budget) {
  const auto kernel_case = kernels::make_kernel_case(p, {.device = &device});
  runtime::Queue& queue = *kernel_case->queue();
  kernel_case->run(0);  // the first call costs more
  const double one = seconds_of(queue, [&] { kernel_case->run(0); });
  const auto calls = static_cast<std::size_t>(std::clamp(budget.value / std::max(one, 1e-6), 1.0, 64.0));
  DeviceClock clock(device);
  const auto times = clock.time(queue, calls, 1, false, [&] { kernel_case->run(0); });
  return flops(p) / std::max(1e-9, *std::ranges::min_element(times));
}

/// An emulated device's marks are of a model, in which calls are far shorter than they are: whoever chooses how many to
/// make would never end.
std::vector<double> time_by_host(runtime::Queue& queue, std::size_t samples, std::size_t calls,
                                 const std::function<void()>& call) {
  std::vector<double> times(samples);
  for (double& t : times) {
    const double begin = runtime::host_clock();
    for (std::size_t i = 0; i < calls; ++i) call();
    queue.synchronise();
    t = (runtime::host_clock() - begin) / static_cast<double>(calls);
  }
  return times;
}

}  // namespace

DeviceClock::DeviceClock(runtime::Device& device) {
  const std::size_t cache = device.last_cache_bytes();
  beyond_caches_ = device.allocate(core::Element::i8, 2 * (cache > 0 ? cache : unknown_cache));
}

void DeviceClock::clear(runtime::Queue& queue) {
  queue.submit("clear", {}, [this] { kernels::loops().clear(beyond_caches_.buffer); });
}

std::vector<double> DeviceClock::time(runtime::Queue& queue, std::size_t samples, std::size_t calls, bool cold,
                                      const std::function<void()>& call, const std::function<void()>& before) {
  if (queue.device().is_emulated()) {
    before();
    return time_by_host(queue, samples, calls, call);
  }
  std::vector<std::pair<runtime::MarkPtr, runtime::MarkPtr>> marks;
  // One such clearing takes the device about as long as the host needs for eight submissions.
  if (!cold) {
    for (std::size_t i = 0; i < 1 + samples * calls / 8; ++i) clear(queue);
    call();  // brings the operands back
  }
  for (std::size_t s = 0; s < samples; ++s) {
    if (cold) clear(queue);
    if (s == 0) before();
    const auto begin = mark(queue);
    for (std::size_t i = 0; i < calls; ++i) call();
    marks.emplace_back(begin, mark(queue));
  }
  queue.synchronise();
  std::vector<double> times;
  for (const auto& [begin, end] : marks) times.push_back(begin->until(*end) / static_cast<double>(calls));
  return times;
}

core::BytesPerSecond device_traffic(runtime::Device& device, std::size_t bytes, core::Seconds budget) {
  const auto queue = device.make_queue();
  const auto from = device.allocate(core::Element::i8, bytes), to = device.allocate(core::Element::i8, bytes);
  const auto copy = [&] { queue->copy("copy", from.buffer, to.buffer); };
  copy();
  const double one = std::max(1e-7, seconds_of(*queue, copy));
  // Ten of a small copy make a sample, so that marks do not count.
  constexpr std::size_t calls = 10;
  const double samples = std::clamp(budget.value / (calls * one), 3.0, 100.0);
  DeviceClock clock(device);
  auto times = clock.time(*queue, static_cast<std::size_t>(samples), calls, false, copy);
  std::ranges::nth_element(times, times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2));
  return {2 * static_cast<double>(bytes) / std::max(1e-9, times[times.size() / 2])};
}

core::FlopsPerSecond best_device_product(runtime::Device& device, kernels::Precision precision, core::Seconds budget) {
  double best = 0;
  // An emulated device's rates mean nothing.
  const auto sides =
      device.is_emulated() ? std::vector<std::size_t>{32} : std::vector<std::size_t>{1024, 2048, 4096, 8192};
  for (const std::size_t side : sides) {
    const kernels::Problem p{.shape = kernels::GemmShape{.m = side, .n = side, .k = side}, .precision = precision};
    if (!kernels::kernel_case_refusal(p, device).empty()) break;
    if (best > 0 && flops(p) / best > budget.value) break;
    best = std::max(best, rate_of(device, p, budget));
  }
  return {best};
}

}  // namespace gradmeter::bench
