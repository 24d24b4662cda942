#include "bench/infer/latency.hpp"

#include <algorithm>

#include "bench/engine/own_times.hpp"
#include "bench/engine/refusal.hpp"
#include "runtime/agreement.hpp"
#include "runtime/time/clock.hpp"

namespace gradmeter::bench {
namespace {

/// A fifth of the time at most goes into warm-up. What other points left in the caches is gone after `settling`.
RoundOptions latency_rounds(core::StoppingRule rule) {
  const double warmup = std::clamp(0.2 * rule.budget.value, 0.0, 0.5);
  rule.budget = core::Seconds{rule.budget.value - warmup};
  return {.rule = rule,
          .warmup_min = 3,
          .warmup_budget = core::Seconds{warmup},
          .discarded = 1,
          .settling = core::Seconds{0.005},
          .block = core::Seconds{0.03},
          .longest_block = 250};
}

}  // namespace

LatencyBenchmark::LatencyBenchmark(Session& s, const runtime::Communicator& c, TimedPass pass,
                                   std::function<TimedPass()> anew, Rebuilding building, const core::StoppingRule& rule)
    : session_(s),
      c_(c),
      pass_(std::move(pass)),
      anew_(std::move(anew)),
      building_(std::move(building)),
      places_(core::unpredictable_seed(), 0),
      rounds_(s, c, latency_rounds(rule), [this](std::size_t n, bool keep) { return run_block(n, keep); }) {}

void LatencyBenchmark::build_anew() {
  const auto why = refused_anywhere(c_, refusal_of([this] {
                                      building_.build([this] {
                                        pass_ = {};
                                        pass_ = anew_();
                                      });
                                    }));
  if (!why.empty()) throw core::BackendError("inference", "anew", why);
}

std::string LatencyBenchmark::check() {
  constexpr double most = 0.1;
  const double now = runtime::host_clock();
  if (checks_s_ > most * (now - begin_)) return {};
  std::string fault = pass_.check();
  checks_s_ += runtime::host_clock() - now;
  return fault;
}

void LatencyBenchmark::warm_up() {
  begin_ = runtime::host_clock();
  rounds_.warm_up();
  building_.start();
}

std::vector<double> LatencyBenchmark::run_block(std::size_t passes, bool keep) {
  const runtime::Computing note(session_.activity(), "forward pass");
  std::vector<double> mine(passes);
  const std::size_t judged = keep ? places_.below(blocks_++, passes) : passes;
  const auto note_fault = [this](std::string fault) {
    if (fault_.empty()) fault_ = std::move(fault);
  };
  c_.barrier();
  for (std::size_t i = 0; i < passes; ++i) {
    if (i == judged) pass_.renew();
    const double begin = runtime::host_clock();
    pass_.run();
    mine[i] = runtime::host_clock() - begin;
    if (i == judged) note_fault(pass_.judge());
  }
  if (keep) {
    note_fault(check());
    times_.add(mine);
  }
  c_.max(mine);
  return mine;
}

bool LatencyBenchmark::turn() {
  const bool on_host = &session_.device() == &runtime::host_device();
  if (!rounds_.times().empty() && on_host && building_.has_time(c_)) build_anew();
  noise_.begin();
  const core::Stop stop = rounds_.round();
  noise_.end();
  return stop != core::Stop::none;
}

LatencyFindings LatencyBenchmark::findings() const {
  LatencyFindings f{.fault = runtime::first_report(c_, fault_).text,
                    .stop = rounds_.stop(),
                    .warmup_s = rounds_.warmup_s(),
                    .warmup_samples = rounds_.warmup_iterations(),
                    .noise = noise_.over(c_)};
  f.times = slowest_blocks(c_, times_, f.medians);
  return f;
}

}  // namespace gradmeter::bench
