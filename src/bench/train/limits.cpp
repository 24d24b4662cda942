#include "bench/train/limits.hpp"

#include <algorithm>

#include "core/format.hpp"
#include "core/statistics.hpp"

namespace gradmeter::bench {
namespace {

using core::Metric;

constexpr core::Seconds operations_budget{3e-3};

/// The least of all ranks together, from that of each.
double of_all(const runtime::Communicator& c, double mine, bool lock_step) {
  if (lock_step) return c.max(mine);
  const double workers = c.sum(mine > 0 ? 1 : 0), rate = c.sum(mine > 0 ? 1 / mine : 0);
  return workers > 0 ? workers / rate : 0;
}

}  // namespace

void StepLimits::round(const StepDemand& d) {
  if (!is_host_) return;
  c_.barrier();
  {
    const runtime::Computing note(session_.activity(), "a step's operations");
    operations_.round(d.operations, operations_budget);
  }
  if (!d.exchanges()) return;
  if (!link_) link_.emplace(session_, c_, threads_);
  link_->round();
}

StepBound StepLimits::bound(const StepDemand& d) const {
  if (!is_host_) return {.is_known = false};
  const OperationTimes mine = operations_.times(d.operations);
  StepBound b{.is_known = true,
              .compute = {of_all(c_, mine.library, d.lock_step)},
              .roofline = {of_all(c_, mine.roofline, d.lock_step)}};
  b.machine.flops_per_s = -c_.max(-operations_.peak().value);
  if (!d.exchanges()) return b;
  link_->fill(b.machine);
  b.exchange = least_exchange_time(d.least, b.machine);
  return b;
}

void fill_bound(const StepBound& b, core::Point& row) {
  if (!b.is_known) return;
  auto& m = row.metrics;
  const double limit = b.seconds().value;
  m[Metric::limit_s] = limit;
  m[Metric::limit] = std::string(b.name());
  m[Metric::limit_compute_s] = b.compute.value;
  m[Metric::limit_roofline_s] = b.roofline.value;
  m[Metric::peak_flops_per_s] = b.machine.flops_per_s;
  m[Metric::roofline] = limit / m.number(Metric::time_s);
  if (b.exchange.value > 0) {
    m[Metric::limit_exchange_s] = b.exchange.value;
    m[Metric::link_bytes_per_s] = link_rate(b.machine);
  }
  const auto* time = m[Metric::time_s].as<core::Summary>();
  const double highest = time == nullptr ? m.number(Metric::time_s) : std::max(time->median, time->ci95_high);
  if (row.status != core::Status::ok || !(highest < limit)) return;
  row.status = core::Status::mistrusted;
  row.reason = fmt::format(
      "a step of {} (at most {}) is below its limit of {} ({}): the machine was in another state "
      "while it was measured; measure again",
      core::to_text(core::Seconds{m.number(Metric::time_s)}), core::to_text(core::Seconds{highest}),
      core::to_text(b.seconds()), b.name());
}

}  // namespace gradmeter::bench
