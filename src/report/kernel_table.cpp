#include "report/kernel_table.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/format.hpp"
#include "report/cells.hpp"
#include "report/kernel_curve.hpp"

namespace gradmeter::report {
namespace {

using core::Factor;
using core::Metric;
using core::Point;

/// "gemm:m=16,…" in its two parts.
std::string operation(const Point& p) {
  const std::string all = text(p.factors[Factor::problem]);
  return all.substr(0, all.find(':'));
}
std::string shape(const Point& p) {
  const std::string all = text(p.factors[Factor::problem]);
  const std::size_t colon = all.find(':');
  return colon == std::string::npos ? all : all.substr(colon + 1);
}

std::string heading(const Point& p) {
  const auto& f = p.factors;
  return fmt::format("{} · {} · {} · {} · {} rank{} at once · {} thread{} each", operation(p), text(f[Factor::pass]),
                     text(f[Factor::precision]), text(f[Factor::cache]), text(f[Factor::ranks]),
                     integer(f[Factor::ranks]) == 1 ? "" : "s", text(f[Factor::threads]),
                     integer(f[Factor::threads]) == 1 ? "" : "s");
}

/// Which columns a table needs beyond the usual ones.
struct Extra {
  bool application = false, full = false, spread = false, published = false;
};
Extra extra_of(const std::vector<const Point*>& points) {
  Extra e;
  for (const Point* p : points) {
    const auto& m = p->metrics;
    e.application |= !core::is_null(m[Metric::application]);
    e.full |= m.number(Metric::full_flops_per_s) > 1.001 * m.number(Metric::flops_per_s);
    e.spread |= integer(p->factors[Factor::ranks]) > 1;
    e.published |= !core::is_null(m[Metric::published]);
  }
  return e;
}

std::vector<core::Column> columns(const Extra& e, const std::string& published) {
  using enum core::Align;
  std::vector<core::Column> out{{"problem", "", left}};
  if (e.application) out.push_back({"application", "", left, 7});
  out.insert(out.end(), {{"time", "us", right}, {"95 %", "us", right, 3}});
  if (e.spread) out.push_back({"spread", "", right, 1});
  out.push_back({"GFLOP/s", "", right});
  if (e.full) out.push_back({"in full", "", right, 6});
  out.insert(out.end(),
             {{"GB/s", "", right, 4}, {"roofline", "%", right}, {"bound", "", left, 2}, {"error", "", right, 5}});
  if (e.published) out.insert(out.end(), {{published, "us", right}, {"theirs/ours", "", right}});
  out.push_back({"implementation", "", left, 8});
  return out;
}

std::string scaled(double value, double by) { return std::isfinite(value) ? digits(value * by) : "-"; }

std::string marks(const Point& p) { return fmt::format("{}{}", oversubscribed(p) ? "*" : "", noisy(p) ? "~" : ""); }

std::string note(const Point& p) {
  if (p.status != core::Status::ok) return why_not(p);
  const auto& late = p.metrics[Metric::slowest_rank];
  return core::is_null(late) ? ""
                             : fmt::format("slow: rank {} on {}", text(late), text(p.metrics[Metric::slowest_host]));
}

std::vector<std::string> row(const Point& p, const Extra& e) {
  const auto& m = p.metrics;
  constexpr double us = 1e6, giga = 1e-9;
  std::vector<std::string> cells{shape(p)};
  if (e.application) cells.push_back(text(m[Metric::application]));
  cells.insert(cells.end(),
               {fmt::format("{}{}", marks(p), scaled(m.number(Metric::time_s), us)), interval(m[Metric::time_s], us)});
  if (e.spread) cells.push_back(scaled(m.number(Metric::ranks_spread), 1));
  cells.push_back(scaled(m.number(Metric::flops_per_s), giga));
  if (e.full) cells.push_back(scaled(m.number(Metric::full_flops_per_s), giga));
  const double share = m.number(Metric::roofline);
  cells.insert(cells.end(), {scaled(m.number(Metric::bytes_per_s), giga),
                             std::isfinite(share) ? fmt::format("{:.0f}", 100 * share) : "-", text(m[Metric::limit]),
                             error_text(m.number(Metric::error))});
  if (e.published) {
    const double theirs = m.number(Metric::published_time_s);
    cells.insert(cells.end(), {scaled(theirs, us), scaled(theirs / m.number(Metric::time_s), 1)});
  }
  cells.push_back(text(m[Metric::implementation]));
  return cells;
}

constexpr std::array csv_factors{Factor::problem, Factor::pass,   Factor::precision,
                                 Factor::cache,   Factor::ranks,  Factor::ranks_per_node,
                                 Factor::threads, Factor::device, Factor::batch_per_rank};
constexpr std::array csv_metrics{Metric::flops_per_s,
                                 Metric::full_flops_per_s,
                                 Metric::bytes_per_s,
                                 Metric::peak_flops_per_s,
                                 Metric::memory_bytes_per_s,
                                 Metric::roofline,
                                 Metric::limit,
                                 Metric::limit_s,
                                 Metric::error,
                                 Metric::ranks_spread,
                                 Metric::slowest_rank,
                                 Metric::slowest_host,
                                 Metric::implementation,
                                 Metric::published,
                                 Metric::published_time_s,
                                 Metric::application,
                                 Metric::calls_per_sample,
                                 Metric::noise_steal,
                                 Metric::noise_run_delay};

}  // namespace

std::string kernel_tables(std::span<const Point> points, std::size_t width) {
  std::string out;
  for (const auto& [name, of] : by_name(points, heading)) {
    const Extra extra = extra_of(of);
    std::string published;
    for (const Point* p : of) {
      if (const auto& set = p->metrics[Metric::published]; !core::is_null(set)) published = text(set);
    }
    core::Table table(columns(extra, published));
    for (const Point* p : of) table.add_row(row(*p, extra), note(*p));
    out += fmt::format("{}\n{}\n", name, table.to_string(width));
  }
  return out + kernel_curves(points, width);
}

std::string kernel_legend() {
  return "time        of one call: the median of the rank with the longest one; 95 %: interval of that median\n"
         "spread      longest over shortest of the ranks' medians; slow: a rank more than 10 % behind the median rank\n"
         "GFLOP/s     by DeepBench's count, multiply and add are two; in full: with a recurrent layer's products of "
         "its "
         "inputs\n"
         "GB/s        each operand once: what must move at least\n"
         "roofline    share of what arithmetic and memory allow, measured in this run on all ranks at once; -: "
         "faster,\n"
         "            caches hold more than was supposed, or padding was counted\n"
         "bound       what sets the roofline: compute, or memory; cache: operands stay in a cache (hot)\n"
         "error       ‖result - reference‖ / ‖reference‖ in float64 on the same inputs\n"
         "theirs/ours the published time over ours: above 1 this rank is faster\n"
         "*           more busy threads than cores\n"
         "~           over 5 % of the machine was with other processes or the hypervisor meanwhile: measure again\n";
}

std::string kernel_csv_header() {
  std::vector<std::string> names{"status", "reason"};
  for (const Factor f : csv_factors) names.emplace_back(core::name(f));
  names.insert(names.end(), {"time_median_s", "time_ci95_low_s", "time_ci95_high_s", "samples", "stop"});
  for (const Metric m : csv_metrics) names.emplace_back(core::name(m));
  return fmt::format("{}\n", fmt::join(names, ","));
}

std::string kernel_csv_row(const Point& p) {
  std::vector<std::string> cells{std::string(core::name(p.status)), csv_cell(p.reason)};
  for (const Factor f : csv_factors) cells.push_back(csv_cell(p.factors[f]));
  const auto* s = std::get_if<core::Summary>(&p.metrics[Metric::time_s]);
  for (double core::Summary::*part : {&core::Summary::median, &core::Summary::ci95_low, &core::Summary::ci95_high}) {
    cells.push_back(s ? csv_cell(s->*part) : "");
  }
  cells.insert(cells.end(), {s ? fmt::format("{}", s->n) : "", s ? std::string(core::name(s->stop)) : ""});
  for (const Metric m : csv_metrics) cells.push_back(csv_cell(p.metrics[m]));
  return fmt::format("{}\n", fmt::join(cells, ","));
}

}  // namespace gradmeter::report
