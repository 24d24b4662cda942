// SPDX-License-Identifier: Apache-2.0
#include "bench/replay/replay.hpp"

#include "core/format.hpp"
#include "core/result.hpp"
#include "report/cells.hpp"

namespace gradmeter::bench {

using namespace report;  // cells and columns
namespace {

using core::Factor;
using core::Metric;
using core::Point;

std::string replay_heading(const Point& p) { return text(p.factors[Factor::problem]); }

std::string replay_note(const Point& p) { return p.status == core::Status::ok ? p.reason : why_not(p); }

Columns<Point> replay_columns() {
  using enum core::Align;
  const auto in_ms = [](Metric m) { return [m](const Point& p) { return digits(1e3 * p.metrics.number(m)); }; };
  Columns<Point> c;
  c.add({"", "", left},
        [](const Point& p) { return std::string(core::is_null(p.factors[Factor::overlap]) ? "trace" : "replay"); });
  c.add({"ranks", "", right}, [](const Point& p) { return text(p.factors[Factor::ranks]); });
  c.add({"device", "", left}, [](const Point& p) { return text(p.factors[Factor::device]); });
  c.add({"step", "ms", right}, [](const Point& p) {
    return fmt::format("{}{}{}", oversubscribed(p) ? "*" : "", core::is_disturbed(p.metrics) ? "~" : "",
                       digits(1e3 * p.metrics.number(Metric::time_s)));
  });
  c.add({"95 %", "ms", right, 2}, [](const Point& p) { return interval(p.metrics[Metric::time_s], 1e3); });
  c.add({"÷ trace", "", right}, [](const Point& p) {
    return digits(p.metrics.number(Metric::time_s) / p.metrics.number(Metric::baseline_time_s));
  });
  c.add({"busy", "ms", right}, in_ms(Metric::compute_s));
  c.add({"exchange", "ms", right}, in_ms(Metric::comm_s));
  c.add({"exposed", "ms", right}, in_ms(Metric::exposed_union_s));
  c.add({"hidden", "ms", right}, in_ms(Metric::overlap_s));
  return c;
}

}  // namespace

std::string replay_tables(std::span<const Point> points, std::size_t width) {
  const auto columns = replay_columns();
  std::string out;
  const auto heading = distinguishing_headings(points, replay_heading, [](const Point& p) {
    const auto& f = p.factors;
    return fmt::format("{} {} {}", core::is_null(f[Factor::overlap]), text(f[Factor::ranks]), text(f[Factor::device]));
  });
  for (const auto& [name, trace_points] : by_name(points, heading)) {
    auto table = columns.table();
    for (const Point* p : trace_points) table.add_row(columns.cells(*p), replay_note(*p));
    out += fmt::format("{}\n{}\n", name, table.to_string(width));
  }
  return out;
}

std::string replay_legend(Legend how) {
  if (how == Legend::brief) {
    return fmt::format(
        "busy: not communicating; exposed: communication during which the rank was idle\n"
        "~ disturbed: measure again; * oversubscribed: more busy threads than cores\n{}",
        whole_legend_line);
  }
  return "device    none: the rank slept while the trace computes (--computation sleep)\n"
         "step      of a trace: the median of its steps; of a replay: the mean step of the slowest rank\n"
         "÷ trace   this step / the mean step of the trace\n"
         "busy      of a trace: computation; of a replay: all time without communication, also the host's work between "
         "kernels\n"
         "exposed   communication during which the rank was not busy; hidden: the rest of the communication\n"
         "*         oversubscribed, more busy threads than cores\n" +
         report::disturbed_legend(10, false);
}

const CsvColumns& replay_csv() {
  using enum Metric;
  static const CsvColumns columns = CsvColumns()
                                        .add({Factor::problem, Factor::ranks, Factor::nodes, Factor::algorithm,
                                              Factor::transport, Factor::overlap, Factor::device, Factor::interconnect})
                                        .statistics(time_s, {"median", "ci95_low", "ci95_high"})
                                        .samples(time_s, "samples")
                                        .stop(time_s)
                                        .add({baseline_time_s, compute_s, comm_s, exposed_union_s, overlap_s,
                                              oversubscribed, noise_steal, noise_run_delay});
  return columns;
}

}  // namespace gradmeter::bench
