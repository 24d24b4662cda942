// SPDX-License-Identifier: Apache-2.0
#include "bench/kernels/limits.hpp"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "bench/engine/sweep.hpp"
#include "bench/kernels/plan.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "core/statistics.hpp"
#include "kernels/call_check.hpp"
#include "kernels/cases/kernel_case.hpp"
#include "kernels/host/library.hpp"
#include "kernels/host/roofline.hpp"
#include "kernels/host/threads.hpp"
#include "kernels/loops.hpp"
#include "runtime/clock.hpp"

namespace gradmeter::bench {
namespace {

constexpr std::size_t assumed_cache_bytes = std::size_t{64} << 20;

runtime::EventPtr mark(runtime::Queue& queue) {
  runtime::EventPtr at;
  queue.submit("mark", {}, [&at] { at = runtime::device_access->mark(); });
  return at;
}

/// The device's time from before `work` until all that it submits is done [s]. Waits for that.
double seconds_of(runtime::Queue& queue, const std::function<void()>& work) {
  const auto begin = mark(queue);
  work();
  const auto end = mark(queue);
  queue.synchronise();
  return begin->until(*end);
}

/// Throws WrongResult unless the product is right: a library that skips work would set a limit that no correct kernel
/// reaches. Checks some elements of three calls on new inputs, since a library may be wrong in some calls only; on the
/// host, CallCheck also checks all rows of products with small operands.
void require_right(kernels::KernelCase& product, const kernels::Problem& p) {
  constexpr double flops_at_most = 1e6;
  for (const std::uint64_t inputs : {2, 3, 4}) {
    product.redraw(0, inputs);
    const kernels::CallCheck call_check(inputs);
    if (!product.check(flops_at_most, false).right() || !call_check.fault().empty())
      throw core::WrongResult(fmt::format("its limit rests on a product that is wrong: {} of {} in {}",
                                          kernels::text(p.shape), product.implementation(), name(p.precision)));
  }
}

double rate_of(runtime::Device& device, const kernels::Problem& p, core::Seconds budget) {
  const auto kernel_case = kernels::make_kernel_case(p, {.device = &device});
  runtime::Queue& queue = *kernel_case->queue();
  kernel_case->run(0);  // the first call costs more
  const double call_s = seconds_of(queue, [&] { kernel_case->run(0); });
  const auto calls = static_cast<std::size_t>(std::clamp(budget.value / std::max(call_s, 1e-6), 1.0, 64.0));
  DeviceClock clock(device);
  const auto times = clock.time(queue, calls, 1, false, [&] { kernel_case->run(0); });
  require_right(*kernel_case, p);
  return flops(p) / std::max(1e-9, *std::ranges::min_element(times));
}

/// Times samples of an emulated device by the host's clock. The device's own marks give modelled times, far shorter
/// than the real ones, so a number of calls chosen by them would take too long.
void time_by_host(runtime::Queue& queue, const std::function<void()>& sample, std::span<double> times) {
  for (double& t : times) {
    const double begin = runtime::host_clock();
    sample();
    queue.synchronise();
    t = runtime::host_clock() - begin;
  }
}

/// The most submissions that may be pending. From about 1,024 on, the host must wait for one of them to end, and is no
/// longer ahead of the device.
constexpr std::size_t most_pending = 1000;
/// The number of submissions that the host makes while the device does one clearing.
constexpr std::size_t submissions_of_clearing = 8;

/// The number of samples, each of `submissions` submissions, that may be pending, with the clearings before them.
std::size_t samples_at_once(std::size_t submissions) {
  return std::max<std::size_t>(
      1, most_pending * submissions_of_clearing / ((submissions_of_clearing + 1) * (submissions + 1)));
}

}  // namespace

DeviceClock::DeviceClock(runtime::Device& device) {
  const std::size_t cache = device.last_cache_bytes();
  beyond_caches_ = device.allocate(core::Element::i8, 2 * (cache > 0 ? cache : assumed_cache_bytes));
}

void DeviceClock::clear(runtime::Queue& queue) {
  queue.submit("clear", {}, [this] { kernels::loops().clear(beyond_caches_.buffer); });
}

std::vector<double> DeviceClock::time(runtime::Queue& queue, std::size_t samples, std::size_t calls, bool cold,
                                      const std::function<void()>& call, const std::function<void()>& before) {
  const std::function<void()> all_calls = [&] {
    for (std::size_t i = 0; i < calls; ++i) call();
  };
  before();
  // A cold sample is one call, after a clearing of its own, on other operands than the last: a graph would repeat
  // those.
  const auto captured = captures_ && !cold ? queue.capture(all_calls) : nullptr;
  captures_ &= cold || captured != nullptr;
  const std::function<void()> sample = [&] {
    calls_made_ += calls;
    captured ? captured->submit() : all_calls();
  };
  constexpr std::size_t marks = 2;
  const std::size_t submissions = marks + (captured ? 1 : calls) + (cold ? 1 : 0);
  std::vector<double> times(samples);
  const std::size_t at_once = samples_at_once(submissions);
  for (std::size_t first = 0; first < samples; first += at_once) {
    const auto batch_times = std::span(times).subspan(first, std::min(at_once, samples - first));
    if (queue.device().is_emulated())
      time_by_host(queue, sample, batch_times);
    else
      time_some(queue, cold, submissions, sample, batch_times);
  }
  for (double& t : times) t /= static_cast<double>(calls);
  return times;
}

void DeviceClock::time_some(runtime::Queue& queue, bool cold, std::size_t submissions,
                            const std::function<void()>& sample, std::span<double> times) {
  std::vector<std::pair<runtime::EventPtr, runtime::EventPtr>> marks;
  if (!cold) {
    for (std::size_t i = 0; i < 1 + times.size() * submissions / submissions_of_clearing; ++i) clear(queue);
    sample();  // brings the operands back
  }
  for (std::size_t s = 0; s < times.size(); ++s) {
    if (cold) clear(queue);
    const auto begin = mark(queue);
    sample();
    marks.emplace_back(begin, mark(queue));
  }
  queue.synchronise();
  std::ranges::transform(marks, times.begin(), [](const auto& m) { return m.first->until(*m.second); });
}

core::BytesPerSecond device_traffic(runtime::Device& device, std::size_t bytes, core::Seconds budget) {
  const auto queue = device.make_queue();
  const auto from = device.allocate(core::Element::i8, bytes), to = device.allocate(core::Element::i8, bytes);
  const auto copy = [&] { queue->copy("copy", from.buffer, to.buffer); };
  copy();
  const double copy_s = std::max(1e-7, seconds_of(*queue, copy));
  // Ten copies make a sample, so that the time of its marks is negligible.
  constexpr std::size_t calls = 10;
  const double samples = std::clamp(budget.value / (calls * copy_s), 3.0, 100.0);
  DeviceClock clock(device);
  auto times = clock.time(*queue, static_cast<std::size_t>(samples), calls, false, copy);
  std::ranges::nth_element(times, times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2));
  return {2 * static_cast<double>(bytes) / std::max(1e-9, times[times.size() / 2])};
}

core::FlopsPerSecond best_device_product(runtime::Device& device, kernels::Precision precision, core::Seconds budget) {
  double best = 0;
  // An emulated device's rates mean nothing, so one small product is enough.
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

namespace {

using kernels::Precision;
using kernels::Problem;

constexpr core::Seconds limit_budget{0.15};

/// The best rate of a product [FLOP/s]. It is run for a quarter of the budget, and at least twice, as the first call
/// costs more.
double best_rate(const Problem& p) {
  const auto kernel_case = kernels::make_kernel_case(p, {});
  double best = 0;
  const double start = runtime::host_clock();
  for (int calls = 0; calls < 2 || runtime::host_clock() - start < limit_budget.value / 4; ++calls) {
    const double begin = runtime::host_clock();
    kernel_case->run(0);
    best = std::max(best, flops(p) / (runtime::host_clock() - begin));
  }
  require_right(*kernel_case, p);
  return best;
}

/// The best rate of square products [FLOP/s], over sides that suit one core and sides that suit many, as long as a call
/// fits into the budget.
double best_product(Precision precision) {
  double best = 0;
  for (const bool packed : {false, true}) {
    for (const std::size_t side : {256u, 512u, 1024u, 2048u}) {
      const Problem p{.shape = kernels::GemmShape{.m = side, .n = side, .k = side, .packed = packed},
                      .precision = precision};
      if (!kernels::kernel_case_refusal(p).empty()) break;
      if (best > 0 && flops(p) / best > limit_budget.value) break;
      best = std::max(best, best_rate(p));
    }
  }
  return best;
}

/// Bytes read and written a second by a copy; measure_copy_bandwidth counts each byte once.
double traffic(std::size_t bytes) { return 2 * kernels::measure_copy_bandwidth(bytes, limit_budget).value; }

}  // namespace

KernelBound kernel_bound(double flops, double bytes, core::FlopsPerSecond peak, const MemoryLevel& level) {
  KernelBound b{.peak = peak, .rate = level.rate};
  if (!(peak.value > 0) || !(level.rate.value > 0)) return b;
  const double compute_s = flops / peak.value, move_s = bytes / level.rate.value;
  b.seconds = std::max(compute_s, move_s);
  b.name = compute_s >= move_s ? "compute" : level.name == "memory" ? "memory" : "cache";
  return b;
}

bool is_certain(const KernelBound& b, const BoundFacts& f) {
  if (!f.on_host) return false;
  if (b.name == "compute") return f.computes_all && f.is_upper_bound;
  return b.name == "memory" && f.caches > 0 && f.rotation_bytes / 2 >= f.caches;
}

std::size_t memory_pass_bytes(const MemoryPassFacts& n) {
  constexpr std::size_t at_least = std::size_t{16} << 20;
  const auto ranks = static_cast<std::size_t>(std::max(1, n.ranks_per_node));
  const std::size_t usual = std::max(at_least, n.usual_pass_bytes / ranks);
  // No more caches hold what a rank touches than serve its processing units, than it has threads, or than are its share
  // of the machine's.
  std::size_t caches = std::min(n.reached_cache_bytes, n.all_cache_bytes / ranks);
  if (n.one_cache_bytes > 0)
    caches = std::min(caches, n.one_cache_bytes * static_cast<std::size_t>(std::max(1, n.threads)));
  const std::size_t room = n.free_memory / 2 / ranks / 4 * 3;  // measure_memory takes a third more than a pass
  return std::max(usual, std::min(4 * caches, room));
}

KernelLimits::KernelLimits(Session& s, const runtime::Communicator& c, int threads, int ranks_per_node)
    : session_(s), communicator_(c), threads_(threads), ranks_per_node_(ranks_per_node), on_host_(s.on_host()) {
  kernels::set_compute_threads(threads);
  on_host_ ? measure_host() : measure_device();
  raise_nearer_levels();
}

/// Measures copies between two buffers that fit into L2 together, and between two that do not.
void KernelLimits::measure_device() {
  caches_ = static_cast<std::size_t>(least_of_ranks(static_cast<double>(session_.device().last_cache_bytes())));
  const runtime::Computing note(session_.activity(), "copies");
  communicator_.barrier();
  if (caches_ > 0)
    levels_.push_back(
        {"L2", caches_, {least_of_ranks(device_traffic(session_.device(), caches_ / 4, limit_budget).value)}});
  communicator_.barrier();
  levels_.push_back({"memory", SIZE_MAX, {measure_memory()}});
}

void KernelLimits::measure_host() {
  const int threads = threads_;
  const auto& host = session_.host();
  const auto least = [&](std::size_t bytes) {
    return static_cast<std::size_t>(least_of_ranks(static_cast<double>(bytes)));
  };
  const std::size_t l2 = least(host.l2_bytes);
  caches_ = all_cache_bytes(least(host.reached_last_cache_bytes), l2, threads);
  // The ranks of a node share it.
  const std::size_t l3 = std::max(l2, least(host.l3_bytes)) / static_cast<std::size_t>(std::max(1, ranks_per_node_));
  const runtime::Computing note(session_.activity(), "copies");
  communicator_.barrier();
  if (l2 > 0) {  // each core has its own L2, so the rate of one thread is multiplied by the number of threads
    kernels::set_compute_threads(1);
    levels_.push_back({"L2", l2 * static_cast<std::size_t>(threads), {least_of_ranks(threads * traffic(l2 / 4))}});
    kernels::set_compute_threads(threads);
  }
  communicator_.barrier();
  if (l3 > 4 * l2) levels_.push_back({"L3", l3, {least_of_ranks(traffic(l3 / 4))}});
  communicator_.barrier();
  levels_.push_back({"memory", SIZE_MAX, {measure_memory()}});
}

double KernelLimits::least_of_ranks(double mine) const { return -communicator_.max(-mine); }

core::FlopsPerSecond KernelLimits::peak(Precision precision) {
  const auto peak = peaks_.find(precision);
  if (peak != peaks_.end()) return peak->second;
  return peaks_[precision] = {measure_peak(precision)};
}

bool KernelLimits::is_upper_bound(Precision precision) const {
  const bool in_fp32 = precision == Precision::bf16 && !kernels::has_bf16_kernels();
  return on_host_ && (precision == Precision::fp32 || in_fp32);
}

std::string KernelLimits::fault(Precision precision) const {
  const auto found = faults_.find(precision);
  return found == faults_.end() ? "" : found->second;
}

double KernelLimits::measure_peak(Precision precision) {
  kernels::set_compute_threads(threads_);
  communicator_.barrier();
  const runtime::Computing note(session_.activity(), "peak product");
  double products = 0;
  std::string wrong;
  try {
    products =
        on_host_ ? best_product(precision) : best_device_product(session_.device(), precision, limit_budget).value;
  } catch (const core::WrongResult& e) {
    wrong = e.what();
  }
  wrong = refused_anywhere(communicator_, wrong);
  if (!wrong.empty()) {
    faults_.emplace(precision, wrong);
    return 0;
  }
  if (!on_host_) return least_of_ranks(products);
  fma_rate_ = std::max(fma_rate_, kernels::measure_fma_peak(limit_budget));
  // The products are made by the library that is to be measured, so their rate is trusted only up to a multiple of the
  // rate of our own multiply-adds.
  double mine = std::min(products, kernels::product_rate_bound(precision) * fma_rate_.value);
  if (is_upper_bound(precision)) mine = std::max(mine, fma_rate_.value);
  return least_of_ranks(mine);
}

std::size_t KernelLimits::host_pass_bytes() const {
  const auto& host = session_.host();
  return memory_pass_bytes({.one_cache_bytes = host.l3_bytes,
                            .reached_cache_bytes = host.reached_last_cache_bytes,
                            .all_cache_bytes = host.all_last_cache_bytes,
                            .usual_pass_bytes = kernels::memory_pass_bytes(host.l3_bytes),
                            .free_memory = session_.free_memory_per_node(),
                            .ranks_per_node = ranks_per_node_,
                            .threads = threads_});
}

/// Measures with arrays that together are four times as large as the last caches.
double KernelLimits::measure_memory() {
  if (!on_host_) {
    // STREAM asks for arrays of four times the last cache.
    const std::size_t array = 4 * std::max(caches_, std::size_t{1} << 20);
    return least_of_ranks(device_traffic(session_.device(), array, limit_budget).value);
  }
  return least_of_ranks(kernels::measure_memory(limit_budget, host_pass_bytes()).best().value);
}

/// Raises each level's rate to at least that of the next larger level: a cache that seems slower than it is smaller
/// than the machine reports.
void KernelLimits::raise_nearer_levels() {
  for (std::size_t i = levels_.size() - 1; i-- > 0;) {
    levels_[i].rate.value = std::max(levels_[i].rate.value, levels_[i + 1].rate.value);
  }
}

void KernelLimits::measure_again(const KernelBound& b, Precision precision) {
  const bool compute = b.name == "compute";
  double& roof = compute ? peaks_.at(precision).value : levels_.back().rate.value;
  roof = std::max(roof, compute ? measure_peak(precision) : measure_memory());
  raise_nearer_levels();
}

const MemoryLevel& KernelLimits::level(bool cold, std::size_t resident_bytes) const {
  if (cold) return levels_.back();
  return *std::ranges::find_if(levels_, [&](const MemoryLevel& l) { return l.bytes >= resident_bytes; });
}

}  // namespace gradmeter::bench
