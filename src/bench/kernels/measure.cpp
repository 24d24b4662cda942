// SPDX-License-Identifier: Apache-2.0
#include "bench/kernels/measure.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "bench/engine/sweep.hpp"
#include "core/random.hpp"
#include "kernels/host/threads.hpp"
#include "runtime/clock.hpp"

namespace gradmeter::bench {
namespace {

/// A call shorter than `short_call` would show the clock's own time, so a sample has as many such calls as fill
/// `long_sample` [s].
constexpr double short_call = 2e-6, long_sample = 20e-6;
/// The same for a device, whose marks resolve half a microsecond at best [s].
constexpr double short_on_device = 10e-6, long_on_device = 100e-6;
constexpr core::Seconds usual_block{0.03};

KernelChecks over_all(const runtime::Communicator& c, const RankCheck& mine) {
  const bool is_number = !std::isnan(mine.error);
  std::array largest{is_number ? mine.error : 0, mine.zero_share};
  c.max(largest);
  KernelChecks checks{.error = c.any(!is_number) ? std::nan("") : largest[0], .zero_share = largest[1]};
  const int first = static_cast<int>(-c.max(mine.right ? -c.size() : -c.rank()));
  if (first == c.size()) return checks;
  checks.wrong_rank = first;
  checks.worst = c.broadcast_value(mine.worst, first);
  return checks;
}

}  // namespace

void RankCheck::add(const kernels::KernelCaseCheck& c) {
  if (right) *this = {c.error, c.worst, c.zero_share, c.right()};
}

KernelBenchmark::KernelBenchmark(Session& s, const runtime::Communicator& c, const KernelPoint& p, int threads,
                                 std::size_t sets, std::uint64_t seed)
    : session_(s),
      communicator_(c),
      point_(p),
      threads_(threads),
      sets_(sets),
      seed_(seed),
      noise_(s.gpu_gauge()),
      secret_seed_(c.broadcast_value(core::unpredictable_seed())) {}

std::string KernelBenchmark::prepare() {
  kernels::set_compute_threads(threads_);
  const runtime::Computing note(session_.activity(), "kernel made ready");
  std::string why = make_case();
  if (why.empty() && kernel_case_->queue()) clock_ = std::make_unique<DeviceClock>(session_.device());
  return why;
}

std::string KernelBenchmark::make_case() {
  return refused_anywhere(communicator_, refusal_of([this] {
                            rebuilder_.build([this] {
                              kernel_case_.reset();
                              // Ranks compute on numbers of their own.
                              const auto own = seed_ + (static_cast<std::uint64_t>(communicator_.rank()) << 40);
                              kernel_case_ = kernels::make_kernel_case(
                                  point_.problem,
                                  {.sets = sets_, .seed = own, .device = &session_.device(), .search = point_.search});
                            });
                          }));
}

bool KernelBenchmark::may_build_anew() const { return !clock_ && sets_ == 1 && rebuilder_.has_time(communicator_); }

std::string KernelBenchmark::check(double flops_at_most, bool inject_error, KernelResults& results) {
  const runtime::Computing note(session_.activity(), "kernel check");
  RankCheck mine;
  std::string why =
      refused_anywhere(communicator_, refusal_of([&] { mine.add(kernel_case_->check(flops_at_most, inject_error)); }));
  if (why.empty()) results.checks = over_all(communicator_, mine);
  return why;
}

void KernelBenchmark::call() {
  checked_runs_ += next_set_ == checked_set_;
  kernel_case_->run(next_set_);
  if (++next_set_ == sets_) next_set_ = 0;
}

std::vector<double> KernelBenchmark::samples(std::size_t n, const std::function<void()>& before) {
  if (n == 0) return {};
  const bool cold = point_.cache == CacheState::cold;
  if (clock_)
    return clock_->time(
        *kernel_case_->queue(), n, calls_per_sample_, cold, [this] { call(); }, before);
  before();
  std::vector<double> times(n);
  for (double& t : times) {
    const double begin = runtime::host_clock();
    for (std::size_t i = 0; i < calls_per_sample_; ++i) call();
    t = (runtime::host_clock() - begin) / static_cast<double>(calls_per_sample_);
  }
  return times;
}

double KernelBenchmark::probe(bool warm) {
  const runtime::Computing note(session_.activity(), "kernel");
  if (!warm) sample();  // the first call costs more and would mislead
  communicator_.barrier();
  own_probe_s_ = sample();
  constexpr double short_probe_s = 1e-4;
  for (int more = 0; more < 5 && own_probe_s_ < short_probe_s; ++more) own_probe_s_ = std::min(own_probe_s_, sample());
  probe_s_ = communicator_.max(own_probe_s_);
  if (clock_ && point_.cache == CacheState::cold) return probe_s_;  // caches are cleared before each sample
  if (probe_s_ >= (clock_ ? short_on_device : short_call)) return probe_s_;
  calls_per_sample_ =
      static_cast<std::size_t>(std::ceil((clock_ ? long_on_device : long_sample) / std::max(probe_s_, 1e-8)));
  return probe_s_;
}

double KernelBenchmark::checked_sample() {
  const core::Random draws(secret_seed_, ++timed_checks_);
  // With one operand set all calls have the same result, so a checked one gets new inputs. Untimed calls bring these
  // into the caches, unless a sample is so long that its start does not matter.
  if (sets_ == 1) {
    constexpr std::uint64_t first_of_ranks = 3;  // the draws before are the same on all ranks
    kernel_case_->redraw(0, draws.bits(first_of_ranks + static_cast<std::uint64_t>(communicator_.rank())));
    if (probe_s_ * static_cast<double>(calls_per_sample_) <= usual_block.value) samples(1);
  }
  kernels::CheckedCall checked{.flops_at_most = check_flops_, .seed = draws.bits(1)};
  const std::size_t calls_before = clock_ ? clock_->calls_made() : 0;
  const auto took = samples(1, [&] {
    checked.set = (next_set_ + draws.below(2, std::min(calls_per_sample_, sets_))) % sets_;
    kernel_case_->prepare_check(checked);
    checked_set_ = checked.set, checked_runs_ = 0;
    communicator_.barrier();  // ranks begin together again
  });
  // With one set, a device may run it in a graph of captured calls, more often than `call` was called.
  checked.runs = clock_ && sets_ == 1 ? clock_->calls_made() - calls_before : checked_runs_;
  timed_call_findings_.add(kernel_case_->finish_check(checked));
  return took.front();
}

std::vector<double> KernelBenchmark::samples_and_check(std::size_t count, std::size_t drawn) {
  std::vector<double> times = samples(drawn);
  const double begin = runtime::host_clock();
  times.push_back(checked_sample());
  if (times.size() < count) samples(1);  // the check has used the caches
  checks_s_ += runtime::host_clock() - begin;
  communicator_.barrier();
  const std::vector<double> rest = samples(count - times.size());
  times.insert(times.end(), rest.begin(), rest.end());
  return times;
}

std::size_t KernelBenchmark::draw_checked(std::size_t count) const {
  constexpr double most_share = 0.1;
  const bool may_check = check_flops_ > 0 && checks_s_ <= most_share * blocks_s_;
  const std::size_t drawn = core::Random(secret_seed_, 0).below(timed_checks_, count);
  return communicator_.broadcast_value(may_check ? drawn : count);  // rank 0 decides: clocks differ
}

std::vector<double> KernelBenchmark::run_block(std::size_t count, bool keep) {
  const runtime::Computing note(session_.activity(), "kernel");
  const std::size_t drawn = keep ? draw_checked(count) : count;
  communicator_.barrier();  // the ranks' blocks begin together, so that they contend as usual
  const double begin = runtime::host_clock();
  std::vector<double> mine = drawn < count ? samples_and_check(count, drawn) : samples(count);
  if (keep) {
    blocks_s_ += runtime::host_clock() - begin;
    checked_last_ = drawn < count;
    times_.add(mine);
  }
  communicator_.max(mine);
  return mine;
}

RoundOptions KernelBenchmark::options(const core::StoppingRule& rule, double seconds, bool bounded) const {
  const double sample_s = probe_s_ * static_cast<double>(calls_per_sample_);
  RoundOptions o{.rule = rule,
                 .warmup_min = 3,
                 .discarded = 1,
                 .settling = core::Seconds{0.01},
                 .block = usual_block,
                 .most_block_iterations = 250};
  o.warmup_budget = core::Seconds{std::clamp(0.2 * seconds, 0.0, 0.5)};
  o.rule.budget = core::Seconds{std::max(0.0, seconds - o.warmup_budget.value)};
  if (sample_s > o.block.value) {  // a long call's start does not matter
    o.warmup_min = 1;
    o.discarded = 0;
    o.settling = core::Seconds{0};
  }
  // The rule asks for six samples whatever the budget; a call that is long for the budget gets fewer.
  constexpr double fewest_calls = 8;
  if (bounded && seconds < fewest_calls * sample_s) {
    o.exact_warmup = 1;
    o.exact_samples = static_cast<std::size_t>(std::max(1.0, seconds / sample_s - 1));
    o.discarded = 0;
    o.settling = core::Seconds{0};
  }
  return o;
}

void KernelBenchmark::start(const core::StoppingRule& rule, double seconds, bool bounded, double check_flops,
                            std::size_t kernels_in_turn) {
  check_flops_ = check_flops;
  if (bounded && seconds < 2 * probe_s_ * static_cast<double>(calls_per_sample_)) {  // a second call would overrun
    times_.add({&own_probe_s_, 1});
    return;
  }
  const RoundOptions o = options(rule, seconds, bounded);
  has_exact_samples_ = o.exact_samples > 0;
  rounds_.emplace(session_, communicator_, o, [this](std::size_t n, bool keep) { return run_block(n, keep); });
  noise_.begin();
  rounds_->warm_up();
  noise_.end();
  rebuilder_.start(kernels_in_turn);
}

bool KernelBenchmark::turn() {
  if (!rounds_ || rounds_->stop() != core::Stop::none) return true;
  noise_.begin();
  const bool is_enough = rounds_->round() != core::Stop::none;
  noise_.end();
  if (is_enough || !may_build_anew()) return is_enough;
  built_anew_ = true;
  if (const auto why = make_case(); !why.empty()) throw core::BackendError("kernel", "make_kernel_case", why);
  return false;
}

void KernelBenchmark::finish(KernelResults& results) {
  results.stop = !rounds_ || has_exact_samples_ ? core::Stop::budget : rounds_->stop();
  if (rounds_) {
    results.warmup_s = rounds_->warmup_s();
    results.warmup_samples = rounds_->warmup_iterations();
  }
  results.noise = noise_.over(communicator_);
  // This check is after the last block, since a kernel that was built anew may be right only in its first calls.
  if (check_flops_ > 0 && (!checked_last_ || built_anew_)) checked_sample();
  if (timed_checks_ > 0) results.timed_checks = over_all(communicator_, timed_call_findings_);
  gather(results);
}

void KernelBenchmark::gather(KernelResults& results) const {
  results.times = slowest_blocks(communicator_, times_, results.medians);
  results.calls = calls_per_sample_;
  results.sets = sets_;
  results.implementation = communicator_.broadcast_text(kernel_case_->implementation());
}

}  // namespace gradmeter::bench
