#include "report/tables.hpp"

#include "core/format.hpp"

namespace gradmeter::report {

using core::Metric;

std::string train_header() {
  return fmt::format("{:>7} {:>9} {:>10} {:>12} {:>12} {:>12}\n{:>7} {:>9} {:>10} {:>12} {:>12} {:>12}\n", "epoch",
                     "step", "loss", "validation", "step time", "rate", "", "", "nats", "% right", "ms", "samples/s");
}

std::string train_row(const core::Point& p) {
  const bool is_timed = !core::is_null(p.metrics[Metric::samples_per_s]);
  return fmt::format("{:>7.2f} {:>9} {:>10.5f} {:>12.2f} {:>12} {:>12}\n", p.metrics.number(Metric::epoch),
                     core::to_text(p.metrics[Metric::step]), p.metrics.number(Metric::loss),
                     100 * p.metrics.number(Metric::accuracy),
                     is_timed ? fmt::format("{:.3f}", 1e3 * p.metrics.number(Metric::time_s)) : "-",
                     is_timed ? fmt::format("{:.0f}", p.metrics.number(Metric::samples_per_s)) : "-");
}

}  // namespace gradmeter::report
