#include "report/scale_table.hpp"

#include <cmath>
#include <vector>

#include "core/format.hpp"
#include "core/table.hpp"

namespace gradmeter::report {
namespace {

using core::Factor;
using core::Metric;
using core::Point;

std::string text(const core::Value& v) { return core::is_null(v) ? "-" : core::to_text(v); }

std::string milliseconds(double seconds) {
  if (!std::isfinite(seconds)) return "-";
  const double ms = seconds * 1e3;
  return std::fabs(ms) >= 100 ? fmt::format("{:.0f}", ms) : std::fabs(ms) >= 10 ? fmt::format("{:.1f}", ms) : fmt::format("{:.2f}", ms);
}

std::string interval(const core::Value& v) {
  const auto* s = std::get_if<core::Summary>(&v);
  if (!s || !std::isfinite(s->ci95_low)) return "-";
  return fmt::format("{}–{}", milliseconds(s->ci95_low), milliseconds(s->ci95_high));
}

std::string percent(double share) { return std::isfinite(share) ? fmt::format("{:.0f}", share * 100) : "-"; }

std::string rate(double per_s) {
  if (!std::isfinite(per_s)) return "-";
  return per_s >= 1e4 ? fmt::format("{:.1f}k", per_s / 1e3) : fmt::format("{:.0f}", per_s);
}

/// "*" marks times taken with more busy threads than cores.
std::string ranks_cell(const Point& p) {
  const auto* over = std::get_if<bool>(&p.metrics[Metric::oversubscribed]);
  return fmt::format("{}{}", text(p.factors[Factor::ranks]), over && *over ? "*" : " ");
}

std::string exchange_cell(const Point& p) {
  if (core::is_null(p.factors[Factor::algorithm])) return "-";
  const std::string algorithm = text(p.factors[Factor::algorithm]);
  if (core::is_null(p.factors[Factor::transport])) return algorithm;
  return fmt::format("{}/{}", algorithm, text(p.factors[Factor::transport]));
}

std::vector<std::string> row(const Point& p) {
  const auto ms = [&](Metric m) { return milliseconds(p.metrics.number(m)); };
  std::vector<std::string> cells{ranks_cell(p), text(p.factors[Factor::scaling]), text(p.factors[Factor::batch_per_rank]),
                                 text(p.factors[Factor::strategy]), exchange_cell(p), text(p.factors[Factor::overlap])};
  if (p.status != core::Status::ok) {
    cells.insert(cells.end(), {"-", "-", "-", "-", "-", "-", "-", fmt::format("{}: {}", core::name(p.status), p.reason)});
    return cells;
  }
  const std::string limit = text(p.metrics[Metric::limit]);
  cells.insert(cells.end(),
               {percent(p.metrics.number(Metric::efficiency)), rate(p.metrics.number(Metric::samples_per_s)),
                ms(Metric::time_s), interval(p.metrics[Metric::time_s]), ms(Metric::compute_s), ms(Metric::exposed_s),
                ms(Metric::skew_s), limit});
  return cells;
}

std::vector<core::Column> columns() {
  using enum core::Align;
  return {{"ranks", "", right},       {"scaling", "", left},  {"batch", "/rank", right}, {"strategy", "", left},
          {"exchange", "", left},     {"overlap", "", left},  {"efficiency", "%", right}, {"rate", "samples/s", right},
          {"step", "ms", right},      {"95 %", "ms", right},  {"compute", "ms", right},  {"exposed", "ms", right},
          {"skew", "ms", right},      {"bound by", "", left}};
}

/// The batch that names a curve: that of its one-rank baseline, which is also strong scaling's batch in all.
std::string curve_batch(const Point& p) {
  const bool strong = text(p.factors[Factor::scaling]) == "strong";
  return text(p.factors[strong ? Factor::batch_global : Factor::batch_per_rank]);
}

std::string curve_name(const Point& p) {
  std::string name = fmt::format("{} · batch {} · {} thread{} a rank · cadence {}", text(p.factors[Factor::model]), curve_batch(p),
                                 text(p.factors[Factor::threads]), text(p.factors[Factor::threads]) == "1" ? "" : "s",
                                 text(p.factors[Factor::cadence]));
  return name;
}

std::string baseline_line(std::span<const Point> curve) {
  for (const Point& p : curve) {
    const double base = p.metrics.number(Metric::baseline_time_s);
    if (text(p.factors[Factor::ranks]) == "1" && std::isfinite(base)) {
      return fmt::format("baseline: 1 rank, batch {}, {} ms a step ({})\n", text(p.factors[Factor::batch_per_rank]),
                         milliseconds(base), text(p.factors[Factor::strategy]));
    }
  }
  return "no baseline was measured: no efficiency is shown\n";
}

}  // namespace

std::string scale_tables(std::span<const Point> points) {
  std::string out;
  for (std::size_t i = 0; i < points.size();) {
    std::size_t end = i;
    while (end < points.size() && curve_name(points[end]) == curve_name(points[i])) ++end;
    core::Table table(columns());
    for (std::size_t k = i; k < end; ++k) table.add_row(row(points[k]));
    out += fmt::format("{}\n{}{}\n", curve_name(points[i]), baseline_line(points.subspan(i, end - i)), table.to_string());
    i = end;
  }
  return out;
}

std::string scale_legend() {
  return
      "efficiency  samples/s for each rank ÷ the same of the 1-rank row of that strategy\n"
      "step        median over iterations of the slowest rank's time; 95 %: rank-based interval of the median\n"
      "compute     inside kernels; exposed: step − step of independent at the same factors (contention apart)\n"
      "skew        of the exposed time, waiting for ranks that had not begun the exchange\n"
      "bound by    where most lost time went: compute (little lost), cores or memory (shared by ranks), wire, skew\n"
      "*           more busy threads than cores: shares cores, says nothing of a machine with a core for each\n";
}

}  // namespace gradmeter::report
