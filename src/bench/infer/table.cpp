// SPDX-License-Identifier: Apache-2.0
#include "bench/infer/infer.hpp"

#include <cmath>

#include "core/format.hpp"
#include "core/result.hpp"
#include "report/cells.hpp"

namespace gradmeter::bench {

using namespace report;  // cells and columns
namespace {

using core::Factor;
using core::Metric;
using core::Point;

std::string infer_heading(const Point& p) {
  const auto& f = p.factors;
  const bool is_one = integer(f[Factor::ranks]) == 1, is_one_thread = integer(f[Factor::threads]) == 1;
  return fmt::format("{} · {} rank{} at once · {} thread{} each", text(f[Factor::model]), text(f[Factor::ranks]),
                     is_one ? "" : "s", text(f[Factor::threads]), is_one_thread ? "" : "s");
}

std::string infer_note(const Point& p) {
  if (p.status != core::Status::ok) return why_not(p);
  if (std::string named = slow_and_busy(p); !named.empty()) return named;
  return is_true(p.metrics[Metric::emulated]) ? "emulated: its accuracy, without a time" : p.reason;
}

/// A number of the time's summary, in microseconds.
std::string in_us(const Point& p, double core::Summary::*number) {
  const auto* const time = p.metrics[Metric::time_s].as<core::Summary>();
  return time ? digits(1e6 * time->*number) : "-";
}

std::string in_percent(double share) { return std::isfinite(share) ? fmt::format("{:.2f}", 100 * share) : "-"; }
std::string lost_interval(const Point& p) {
  const double low = p.metrics.number(Metric::accuracy_lost_ci95_low);
  if (!std::isfinite(low)) return "-";
  return fmt::format("{:.2f}–{:.2f}", 100 * low, 100 * p.metrics.number(Metric::accuracy_lost_ci95_high));
}

Columns<Point> infer_columns() {
  using enum core::Align;
  const auto number = [](Metric m) { return [m](const Point& p) { return digits(p.metrics.number(m)); }; };
  const auto share = [](Metric m) { return [m](const Point& p) { return in_percent(p.metrics.number(m)); }; };
  Columns<Point> c;
  c.add({"batch", "", right}, [](const Point& p) { return text(p.factors[Factor::batch_per_rank]); });
  c.add({"precision", "", left}, [](const Point& p) { return text(p.factors[Factor::precision]); });
  c.add({"p50", "us", right}, [](const Point& p) {
    return fmt::format("{}{}{}", oversubscribed(p) ? "*" : "", core::is_disturbed(p.metrics) ? "~" : "",
                       in_us(p, &core::Summary::median));
  });
  c.add({"95 %", "us", right, 3}, [](const Point& p) { return interval(p.metrics[Metric::time_s], 1e6); });
  c.add({"p95", "us", right, 1}, [](const Point& p) { return in_us(p, &core::Summary::p95); });
  c.add({"p99", "us", right}, [](const Point& p) { return in_us(p, &core::Summary::p99); });
  c.add({"samples/s", "", right}, number(Metric::samples_per_s));
  c.add({"× fp32", "", right}, number(Metric::speedup));
  c.add({"accuracy", "%", right}, share(Metric::accuracy));
  c.add({"lost", "points", right}, share(Metric::accuracy_lost));
  c.add({"95 %", "points", right, 2}, lost_interval);
  c.add({"error", "", right, 4}, [](const Point& p) { return error_text(p.metrics.number(Metric::error)); });
  c.add({"implementation", "", left, 5}, [](const Point& p) { return text(p.metrics[Metric::implementation]); });
  return c;
}

}  // namespace

std::string infer_tables(std::span<const Point> points, std::size_t width) {
  const auto columns = infer_columns();
  std::string out;
  const auto heading = distinguishing_headings(points, infer_heading, [](const Point& p) {
    return fmt::format("{} {}", text(p.factors[Factor::batch_per_rank]), text(p.factors[Factor::precision]));
  });
  for (const auto& [name, group] : by_name(points, heading)) {
    auto table = columns.table();
    for (const Point* p : group) table.add_row(columns.cells(*p), infer_note(*p));
    out += fmt::format("{}\n{}\n", name, table.to_string(width));
  }
  return out;
}

std::string infer_legend(Legend legend) {
  if (legend == Legend::brief) {
    return fmt::format(
        "p50, p95, p99: latency of a forward pass; lost: accuracy below that of fp32\n"
        "~ disturbed: measure again; * oversubscribed: more busy threads than cores\n{}",
        whole_legend_line);
  }
  return "p50       latency of one forward pass, with the batch in memory: the median of the slowest rank; 95 %: its "
         "interval\n"
         "p95, p99  latency that 5 % and 1 % of the passes exceed\n"
         "samples/s of all ranks, at the median\n"
         "× fp32    time of fp32 at the same batch / this time: above 1 this precision is faster\n"
         "lost      accuracy of the same weights in fp32 minus this one's, on the same samples; 95 %: interval of the "
         "paired\n"
         "          difference\n"
         "error     ‖logits - fp32's‖ / ‖fp32's‖ on the validation set\n"
         "*         oversubscribed, more busy threads than cores\n" +
         report::disturbed_legend(10, false);
}

const CsvColumns& infer_csv() {
  using enum Metric;
  static const CsvColumns columns = CsvColumns()
                                        .add({Factor::model, Factor::batch_per_rank, Factor::precision, Factor::ranks,
                                              Factor::ranks_per_node, Factor::threads, Factor::device})
                                        .statistics(time_s, {"median", "ci95_low", "ci95_high", "p95", "p99"})
                                        .samples(time_s, "samples")
                                        .stop(time_s)
                                        .add({samples_per_s, speedup, accuracy, accuracy_lost, accuracy_lost_ci95_low,
                                              accuracy_lost_ci95_high, error, emulated, ranks_spread, slowest_rank,
                                              slowest_host, implementation, noise_steal, noise_run_delay, busy_host});
  return columns;
}

}  // namespace gradmeter::bench
