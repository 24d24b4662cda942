#include <algorithm>
#include <cmath>
#include <vector>

#include "analysis/findings.hpp"
#include "core/format.hpp"
#include "report/cells.hpp"
#include "report/tables.hpp"

namespace gradmeter::report {
namespace {

using analysis::Finding;
using core::Factor;
using core::Metric;
using core::Point;

/// The fastest of a finding's points, and a vendor's beside it.
struct Winner {
  const Finding* finding;
  const Point* best;
  const Point* vendor = nullptr;  ///< null: none was measured, or it is the fastest
  analysis::Figure faster = {};   ///< how many times as fast as the vendor's
};

Winner winner_of(const Finding& f, std::span<const Point> points) {
  Winner w{&f, &points[f.rows.front().point]};
  for (const auto& row : f.rows) {
    const Point& p = points[row.point];
    if (p.metrics.number(Metric::time_s) < w.best->metrics.number(Metric::time_s)) w.best = &p;
    const auto figure = f.figures.find("speed_against_" + text(p.factors[Factor::algorithm]));
    if (figure == f.figures.end()) continue;
    w.vendor = &p;
    w.faster = figure->second;
  }
  return w;
}

/// Factors in which the findings differ, so that no row stands for two of them.
std::vector<Factor> telling(const std::vector<Winner>& winners) {
  std::vector<Factor> out;
  for (std::size_t i = 0; i < core::factor_count; ++i) {
    const auto factor = static_cast<Factor>(i);
    const auto& first = winners.front().finding->factors[factor];
    const bool differs = std::any_of(winners.begin(), winners.end(),
                                     [&](const Winner& w) { return text(w.finding->factors[factor]) != text(first); });
    if (differs && factor != Factor::size_bytes && factor != Factor::in_place) out.push_back(factor);
  }
  return out;
}

std::string time_text(const Point* p) { return p ? digits(1e6 * p->metrics.number(Metric::time_s)) : "-"; }

Columns<Winner> winner_columns(const std::vector<Winner>& winners) {
  using enum core::Align;
  Columns<Winner> c;
  for (const Factor factor : telling(winners)) {
    c.add({std::string(core::name(factor)), "", left},
          [factor](const Winner& w) { return text(w.finding->factors[factor]); });
  }
  c.add({"size", "B", right}, [](const Winner& w) { return text(w.best->factors[Factor::size_bytes]); });
  c.add({"place", "", left}, [](const Winner& w) { return is_true(w.best->factors[Factor::in_place]) ? "in" : "out"; });
  c.add({"fastest", "", left}, [](const Winner& w) { return exchange(*w.best, {}); });
  c.add({"time", "us", right}, [](const Winner& w) { return time_text(w.best); });
  c.add({"95 %", "us", right}, [](const Winner& w) { return interval(w.best->metrics[Metric::time_s], 1e6); });
  c.add({"vendor", "", left}, [](const Winner& w) { return w.vendor ? exchange(*w.vendor, {}) : "-"; });
  c.add({"time", "us", right}, [](const Winner& w) { return time_text(w.vendor); });
  c.add({"x vendor", "", right}, [](const Winner& w) {
    if (!w.vendor) return std::string("-");
    return std::isfinite(w.faster.low)
               ? fmt::format("{} ({}–{})", digits(w.faster.value), digits(w.faster.low), digits(w.faster.high))
               : digits(w.faster.value);
  });
  return c;
}

}  // namespace

std::string collective_winners(std::span<const Point> points, std::size_t width) {
  const core::Run run{.info = {}, .points = {points.begin(), points.end()}};
  const auto found = analysis::findings({&run, 1});
  std::vector<Winner> winners;
  for (const Finding& f : found) {
    if (f.kind == analysis::FindingKind::fastest_exchange && f.rows.size() > 1)
      winners.push_back(winner_of(f, run.points));
  }
  if (winners.empty()) return {};
  std::stable_sort(winners.begin(), winners.end(), [](const Winner& a, const Winner& b) {
    return integer(a.best->factors[Factor::size_bytes]) < integer(b.best->factors[Factor::size_bytes]);
  });
  const auto columns = winner_columns(winners);
  auto table = columns.table();
  for (const Winner& w : winners) {
    table.add_row(columns.cells(w), w.finding->severity > 0 ? "" : "not shown to be faster than all others");
  }
  return fmt::format(
      "the fastest of each size, in place and out of place apart; x vendor: the vendor's time over its\n{}\n",
      table.to_string(width));
}

}  // namespace gradmeter::report
