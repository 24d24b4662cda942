// SPDX-License-Identifier: Apache-2.0
#include "bench/kernels/kernels.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "core/format.hpp"
#include "core/result.hpp"
#include "report/cells.hpp"

namespace gradmeter::bench {

using namespace report;  // cells and columns
namespace {

using core::Factor;
using core::Metric;
using core::Point;

/// The operation and the shape are the two parts of the problem's text, "gemm:m=16,…".
std::string operation(const Point& p) {
  const std::string problem = text(p.factors[Factor::problem]);
  return problem.substr(0, problem.find(':'));
}
std::string shape(const Point& p) {
  const std::string problem = text(p.factors[Factor::problem]);
  const std::size_t colon = problem.find(':');
  return colon == std::string::npos ? problem : problem.substr(colon + 1);
}

/// A note on the search among the library's algorithms.
std::string search_note(const Point& p) {
  const auto& search = p.factors[Factor::search];
  return core::is_null(search) ? "" : fmt::format(" · {} search", text(search));
}

std::string kernel_heading(const Point& p) {
  const auto& f = p.factors;
  return fmt::format("{} · {} · {} · {}{} · {} rank{} at once · {} thread{} each", operation(p), text(f[Factor::pass]),
                     text(f[Factor::precision]), text(f[Factor::cache]), search_note(p), text(f[Factor::ranks]),
                     integer(f[Factor::ranks]) == 1 ? "" : "s", text(f[Factor::threads]),
                     integer(f[Factor::threads]) == 1 ? "" : "s");
}

std::string repeat_mark(const Point& p) {
  const auto& repeat = p.factors[Factor::repeat];
  return core::is_null(repeat) ? "" : fmt::format(" #{}", text(repeat));
}

std::string scaled(double value, double by) { return std::isfinite(value) ? digits(value * by) : "-"; }

std::string kernel_marks(const Point& p) {
  return fmt::format("{}{}", oversubscribed(p) ? "*" : "", core::is_disturbed(p.metrics) ? "~" : "");
}

std::string kernel_note(const Point& p) { return p.status == core::Status::ok ? slow_and_busy(p) : why_not(p); }

/// The set of published times beside the points; empty: none.
std::string published_set(const std::vector<const Point*>& points) {
  std::string name;
  for (const Point* p : points) {
    if (const auto& set = p->metrics[Metric::published]; !core::is_null(set)) name = text(set);
  }
  return name;
}

/// The cell of a metric, multiplied by `factor`.
Columns<Point>::Cell metric_cell(Metric m, double factor) {
  return [m, factor](const Point& p) { return scaled(p.metrics.number(m), factor); };
}

/// The columns of a table. Some are left out if no point has anything in them.
Columns<Point> columns_of(const std::vector<const Point*>& points) {
  using enum core::Align;
  constexpr double us = 1e6, giga = 1e-9;
  const auto any = [&points](const auto& has) {
    return std::ranges::any_of(points, [&has](const Point* p) { return has(*p); });
  };
  const auto words = [](Metric m) { return [m](const Point& p) { return text(p.metrics[m]); }; };
  Columns<Point> c;
  c.add({"problem", "", left}, [](const Point& p) { return shape(p) + repeat_mark(p); });
  if (any([](const Point& p) { return !core::is_null(p.metrics[Metric::application]); }))
    c.add({"application", "", left, 7}, words(Metric::application));
  c.add({"time", "us", right},
        [](const Point& p) { return kernel_marks(p) + scaled(p.metrics.number(Metric::time_s), us); });
  c.add({"95 %", "us", right, 3}, [](const Point& p) { return interval(p.metrics[Metric::time_s], us); });
  if (any([](const Point& p) { return integer(p.factors[Factor::ranks]) > 1; }))
    c.add({"spread", "", right, 1}, metric_cell(Metric::ranks_spread, 1));
  c.add({"GFLOP/s", "", right}, metric_cell(Metric::flops_per_s, giga));
  if (any([](const Point& p) {
        return p.metrics.number(Metric::full_flops_per_s) > 1.001 * p.metrics.number(Metric::flops_per_s);
      }))
    c.add({"in full", "", right, 6}, metric_cell(Metric::full_flops_per_s, giga));
  c.add({"GB/s", "", right, 4}, metric_cell(Metric::bytes_per_s, giga));
  c.add({"roofline", "%", right}, [](const Point& p) {
    const double share = p.metrics.number(Metric::roofline);
    return std::isfinite(share) ? fmt::format("{:.0f}", 100 * share) : "-";
  });
  c.add({"bound", "", left, 2}, words(Metric::limit));
  c.add({"error", "", right, 5}, [](const Point& p) { return error_text(p.metrics.number(Metric::error)); });
  if (const auto published = published_set(points); !published.empty()) {
    c.add({published, "us", right}, metric_cell(Metric::published_time_s, us));
    c.add({"theirs/ours", "", right}, [](const Point& p) {
      return scaled(p.metrics.number(Metric::published_time_s) / p.metrics.number(Metric::time_s), 1);
    });
  }
  c.add({"implementation", "", left, 8}, words(Metric::implementation));
  return c;
}

}  // namespace

/// One table for each shape, pass and cache state among the points that have a batch, with a line for each batch: the
/// GFLOP/s and the share of the roofline in each precision, and the rate as a multiple of the first precision's. Empty
/// if no point has a batch.
std::string kernel_curves(std::span<const Point> points, std::size_t width);

std::string kernel_tables(std::span<const Point> points, std::size_t width) {
  const auto heading =
      distinguishing_headings(points, kernel_heading, [](const Point& p) { return shape(p) + repeat_mark(p); });
  std::string out;
  for (const auto& [name, table_points] : by_name(points, heading)) {
    const auto columns = columns_of(table_points);
    auto table = columns.table();
    for (const Point* p : table_points) table.add_row(columns.cells(*p), kernel_note(*p));
    out += fmt::format("{}\n{}\n", name, table.to_string(width));
  }
  return out + kernel_curves(points, width);
}

std::string kernel_legend(Legend how) {
  if (how == Legend::brief) {
    return fmt::format(
        "GFLOP/s: multiply and add are two; roofline: share of what this machine allows\n"
        "~ disturbed: measure again; * oversubscribed: more busy threads than cores\n{}",
        whole_legend_line);
  }
  return "time        of one call: the median of the slowest rank; 95 %: interval of that median\n"
         "spread      slowest / fastest of the ranks' medians; slow: a rank over 10 % slower than the median rank\n"
         "GFLOP/s     by DeepBench's count, where multiply and add are two\n"
         "in full     of a recurrent layer: GFLOP/s that also count what DeepBench leaves out: the products of its "
         "inputs,\n"
         "            and of a backward pass, which makes all gradients, both products\n"
         "GB/s        every operand moved once, which is the least that must move\n"
         "roofline    share of what arithmetic and memory allow, measured in this run on all ranks at once; -: the "
         "call is faster\n"
         "            than that, since caches hold more than assumed, padding was counted, or the best square product "
         "is "
         "slower\n"
         "bound       what sets the roofline: compute, memory, or cache (the operands stay in a cache: hot)\n"
         "error       ‖result - reference‖ / ‖reference‖, in float64 on the same inputs\n"
         "theirs/ours the published time over the measured one: above 1 this rank is faster\n"
         "*           oversubscribed, more busy threads than cores\n" +
         report::disturbed_legend(12, false) +
         "busy        the host where ranks waited longest for a core, which medians of short calls may not show\n";
}

const CsvColumns& kernel_csv() {
  using enum Metric;
  static const CsvColumns columns =
      CsvColumns()
          .add({Factor::problem, Factor::pass, Factor::precision, Factor::cache, Factor::ranks, Factor::ranks_per_node,
                Factor::threads, Factor::device, Factor::batch_per_rank, Factor::search, Factor::repeat})
          .statistics(time_s, {"median", "ci95_low", "ci95_high"})
          .samples(time_s, "samples")
          .stop(time_s)
          .add({flops_per_s, full_flops_per_s, bytes_per_s, peak_flops_per_s, memory_bytes_per_s, roofline, limit,
                limit_s, error, ranks_spread, slowest_rank, slowest_host, implementation})
          .add({published, published_time_s, application, calls_per_sample, noise_steal, noise_run_delay, busy_host});
  return columns;
}

using namespace report;  // cells and columns
namespace {

using core::Factor;
using core::Metric;
using core::Point;

/// The problem's text without its batch, which is the value of `batch` if the problem has that key, else of `n`.
std::string text_without_batch(const Point& p) {
  std::string problem = text(p.factors[Factor::problem]);
  const std::size_t colon = problem.find(':') + 1;
  const std::string values = fmt::format(",{}", problem.substr(colon));
  for (const char* key : {",batch=", ",n="}) {
    const std::size_t at = values.find(key);
    if (at == std::string::npos) continue;
    const std::size_t end = std::min(values.find(',', at + 1), values.size());
    const std::string rest = values.substr(0, at) + values.substr(end);
    return problem.substr(0, colon) + (rest.empty() ? "" : rest.substr(1));
  }
  return problem;
}

std::string curve_heading(const Point& p) {
  const auto& search = p.factors[Factor::search];
  return fmt::format("{} · {} · {}{} · over the mini-batch", text_without_batch(p), text(p.factors[Factor::pass]),
                     text(p.factors[Factor::cache]),
                     core::is_null(search) ? "" : fmt::format(" · {} search", text(search)));
}

std::string curve(const std::vector<const Point*>& points, std::size_t width) {
  using enum core::Align;
  std::vector<std::string> precisions;
  std::map<std::int64_t, std::map<std::string, const Point*>> by_batch;
  for (const Point* p : points) {
    const std::string precision = text(p->factors[Factor::precision]);
    if (std::ranges::find(precisions, precision) == precisions.end()) precisions.push_back(precision);
    by_batch[integer(p->factors[Factor::batch_per_rank])][precision] = p;
  }
  std::vector<core::Column> columns{{"batch", "", right}};
  for (const auto& name : precisions) {
    columns.insert(columns.end(), {{name, "GFLOP/s", right}, {"roofline", "%", right, 2}});
    if (name != precisions.front()) columns.push_back({fmt::format("/{}", precisions.front()), "", right, 1});
  }
  core::Table table(columns);
  for (const auto& [batch, by_precision] : by_batch) {
    std::vector<std::string> cells{fmt::format("{}", batch)}, notes;
    const auto first = by_precision.find(precisions.front());
    const double base = first == by_precision.end() ? NAN : first->second->metrics.number(Metric::flops_per_s);
    for (const auto& name : precisions) {
      const auto it = by_precision.find(name);
      const double rate = it == by_precision.end() ? NAN : it->second->metrics.number(Metric::flops_per_s);
      const double share = it == by_precision.end() ? NAN : it->second->metrics.number(Metric::roofline);
      cells.insert(cells.end(), {digits(rate * 1e-9), std::isfinite(share) ? fmt::format("{:.0f}", 100 * share) : "-"});
      if (name != precisions.front()) cells.push_back(digits(rate / base));
      if (it != by_precision.end() && !why_not(*it->second).empty())
        notes.push_back(fmt::format("{} {}", name, why_not(*it->second)));
    }
    table.add_row(std::move(cells), fmt::format("{}", fmt::join(notes, "; ")));
  }
  return table.to_string(width);
}

}  // namespace

std::string kernel_curves(std::span<const Point> points, std::size_t width) {
  std::vector<Point> swept;
  for (const Point& p : points) {
    if (!core::is_null(p.factors[Factor::batch_per_rank])) swept.push_back(p);
  }
  const auto heading = distinguishing_headings(swept, curve_heading, [](const Point& p) {
    return fmt::format("{} {}", text(p.factors[Factor::batch_per_rank]), text(p.factors[Factor::precision]));
  });
  std::string out;
  for (const auto& [name, curve_points] : separate_runs(swept, heading))
    out += fmt::format("{}\n{}\n", name, curve(curve_points, width));
  return out;
}

}  // namespace gradmeter::bench
