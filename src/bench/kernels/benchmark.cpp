#include "bench/kernels/benchmark.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "bench/engine/refusal.hpp"
#include "kernels/threads.hpp"
#include "runtime/time/clock.hpp"

namespace gradmeter::bench {
namespace {

/// In calls below `short_call` the clock's own time would show, so a sample has as many calls as fill `long_sample`.
constexpr double short_call = 2e-6, long_sample = 20e-6;
/// The same of a device, whose marks are half a microsecond apart at best.
constexpr double short_on_device = 10e-6, long_on_device = 100e-6;

/// What one rank's check found.
struct RankCheck {
  double error = 0, worst = 0, zero_share = 0;
  bool right = true;
};

KernelChecks over_all(const runtime::Communicator& c, const RankCheck& mine) {
  const bool known = !std::isnan(mine.error);
  std::array most{known ? mine.error : 0, mine.zero_share};
  c.max(most);
  KernelChecks all{.error = c.any(!known) ? std::nan("") : most[0], .zero_share = most[1]};
  const int first = static_cast<int>(-c.max(mine.right ? -c.size() : -c.rank()));
  if (first == c.size()) return all;
  all.wrong_rank = first;
  all.worst = c.broadcast_value(mine.worst, first);
  return all;
}

}  // namespace

KernelBenchmark::KernelBenchmark(Session& s, const runtime::Communicator& c, const KernelPoint& p, int threads,
                                 std::size_t sets, std::uint64_t seed)
    : session_(s), c_(c), point_(p), threads_(threads), sets_(sets), seed_(seed) {}

std::string KernelBenchmark::prepare() {
  kernels::set_compute_threads(threads_);
  const runtime::Computing note(session_.activity(), "kernel made ready");
  return refused_anywhere(c_, refusal_of([&] {
                            // Ranks compute on numbers of their own.
                            const auto own = seed_ + (static_cast<std::uint64_t>(c_.rank()) << 40);
                            kernel_case_ = kernels::make_kernel_case(
                                point_.problem,
                                {.sets = sets_, .seed = own, .device = &session_.device(), .search = point_.search});
                            if (kernel_case_->queue()) clock_ = std::make_unique<DeviceClock>(session_.device());
                          }));
}

std::string KernelBenchmark::check(double flops_at_most, bool inject_error, KernelFindings& f) {
  const runtime::Computing note(session_.activity(), "kernel check");
  RankCheck mine;
  std::string why = refused_anywhere(c_, refusal_of([&] {
                                       const auto found = kernel_case_->check(flops_at_most, inject_error);
                                       mine = {found.error, found.worst, found.zero_share, found.right()};
                                     }));
  if (why.empty()) f.checks = over_all(c_, mine);
  return why;
}

void KernelBenchmark::call() {
  kernel_case_->run(next_);
  if (++next_ == sets_) next_ = 0;
}

std::vector<double> KernelBenchmark::samples(std::size_t n) {
  const bool cold = point_.cache == CacheState::cold;
  if (clock_) return clock_->time(*kernel_case_->queue(), n, calls_, cold, [this] { call(); });
  std::vector<double> times(n);
  for (double& t : times) {
    const double begin = runtime::host_clock();
    for (std::size_t i = 0; i < calls_; ++i) call();
    t = (runtime::host_clock() - begin) / static_cast<double>(calls_);
  }
  return times;
}

double KernelBenchmark::probe(bool warm) {
  const runtime::Computing note(session_.activity(), "kernel");
  if (!warm) sample();  // the first call costs more and would mislead
  c_.barrier();
  own_probe_s_ = sample();
  constexpr double soon_over = 1e-4;
  for (int more = 0; more < 5 && own_probe_s_ < soon_over; ++more) own_probe_s_ = std::min(own_probe_s_, sample());
  probe_s_ = c_.max(own_probe_s_);
  if (clock_ && point_.cache == CacheState::cold) return probe_s_;  // caches are cleared before each sample
  if (probe_s_ >= (clock_ ? short_on_device : short_call)) return probe_s_;
  calls_ = static_cast<std::size_t>(std::ceil((clock_ ? long_on_device : long_sample) / std::max(probe_s_, 1e-8)));
  return probe_s_;
}

std::vector<double> KernelBenchmark::run_block(std::size_t count, bool keep) {
  const runtime::Computing note(session_.activity(), "kernel");
  c_.barrier();  // the ranks' blocks begin together, so that they contend as usual
  std::vector<double> mine = samples(count);
  if (keep) times_.add(mine);
  c_.max(mine);
  return mine;
}

RoundOptions KernelBenchmark::options(const core::StoppingRule& rule, double seconds, bool bounded) const {
  const double one = probe_s_ * static_cast<double>(calls_);
  RoundOptions o{.rule = rule,
                 .warmup_min = 3,
                 .discarded = 1,
                 .settling = core::Seconds{0.01},
                 .block = core::Seconds{0.03},
                 .longest_block = 250};
  o.warmup_budget = core::Seconds{std::clamp(0.2 * seconds, 0.0, 0.5)};
  o.rule.budget = core::Seconds{std::max(0.0, seconds - o.warmup_budget.value)};
  if (one > o.block.value) {  // a long call's start does not matter
    o.warmup_min = 1;
    o.discarded = 0;
    o.settling = core::Seconds{0};
  }
  // The rule asks for six samples whatever the budget; a call that is long for the budget gets fewer.
  constexpr double few = 8;
  if (bounded && seconds < few * one) {
    o.exact_warmup = 1;
    o.exact_samples = static_cast<std::size_t>(std::max(1.0, seconds / one - 1));
    o.discarded = 0;
    o.settling = core::Seconds{0};
  }
  return o;
}

void KernelBenchmark::measure(const core::StoppingRule& rule, double seconds, bool bounded, KernelFindings& f) {
  NoiseSampler noise(session_.gpu_gauge());
  noise.begin();
  if (bounded && seconds < 2 * probe_s_ * static_cast<double>(calls_)) {  // a second call would overrun
    times_.add({&own_probe_s_, 1});
    f.stop = core::Stop::budget;
  } else {
    const RoundOptions o = options(rule, seconds, bounded);
    Rounds rounds(session_, c_, o, [this](std::size_t n, bool keep) { return run_block(n, keep); });
    rounds.warm_up();
    while (rounds.round() == core::Stop::none) {
    }
    f.stop = o.exact_samples ? core::Stop::budget : rounds.stop();
    f.warmup_s = rounds.warmup_s();
    f.warmup_samples = rounds.warmup_iterations();
  }
  noise.end();
  f.noise = noise.over(c_);
  gather(f);
}

void KernelBenchmark::gather(KernelFindings& f) const {
  f.times = slowest_blocks(c_, times_, f.medians);
  f.calls = calls_;
  f.sets = sets_;
  f.implementation = c_.broadcast_text(kernel_case_->implementation());
}

}  // namespace gradmeter::bench
