#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <span>

#include "core/format.hpp"
#include "report/cells.hpp"
#include "report/columns.hpp"
#include "report/watch.hpp"

namespace gradmeter::report {
namespace {

using core::Factor;
using core::Metric;
using core::Point;

/// A metric as a column, in a unit that people read.
struct ShownMetric {
  Metric metric;
  const char* head;
  const char* unit;
  double factor;
  unsigned expendable;  ///< core::Column
};
constexpr std::array shown_metrics{
    ShownMetric{Metric::step, "step", "", 1, 0},
    ShownMetric{Metric::epoch, "epoch", "", 1, 3},
    ShownMetric{Metric::loss, "loss", "", 1, 0},
    ShownMetric{Metric::accuracy, "accuracy", "%", 100, 0},
    ShownMetric{Metric::efficiency, "efficiency", "%", 100, 0},
    ShownMetric{Metric::samples_per_s, "samples", "1/s", 1, 2},
    ShownMetric{Metric::busbw_bytes_per_s, "busbw", "GB/s", 1e-9, 0},
    ShownMetric{Metric::flops_per_s, "rate", "GFLOP/s", 1e-9, 3},
    ShownMetric{Metric::roofline, "roofline", "%", 100, 2},
    ShownMetric{Metric::link_bytes_per_s, "link", "GB/s", 1e-9, 3},
    ShownMetric{Metric::wire_bits, "wire", "bits", 1, 2},
    ShownMetric{Metric::encode_s, "encode", "us", 1e6, 2},
    ShownMetric{Metric::error, "error", "", 1, 2},
};

constexpr std::array time_units{std::pair{1.0, "s"}, std::pair{1e3, "ms"}, std::pair{1e6, "us"}};

/// The largest unit in which the geometric mean of the shortest and the longest of these times is not below 1.
std::pair<double, const char*> time_unit(std::span<const Point> points) {
  double least = INFINITY, most = 0;
  for (const Point& p : points) {
    const double t = p.metrics.number(Metric::time_s);
    if (t > 0) least = std::min(least, t), most = std::max(most, t);
  }
  const double middle = most > 0 ? std::sqrt(least * most) : 0;
  const auto fits = [middle](const auto& u) { return middle * u.first >= 1; };
  const auto unit = std::ranges::find_if(time_units, fits);
  return unit == time_units.end() ? time_units.back() : *unit;
}

bool has(std::span<const Point> points, Metric m) {
  return std::ranges::any_of(points, [m](const Point& p) { return std::isfinite(p.metrics.number(m)); });
}

/// In which the points differ, those last that follow from others, or have one value where they apply; the number of
/// ranks always.
std::vector<Factor> factors_shown(std::span<const Point> points) {
  std::vector<Factor> out;
  std::set<Factor> vary = {Factor::ranks};
  for (std::size_t i = 0; i < core::factor_count; ++i) {
    const auto f = static_cast<Factor>(i);
    std::set<std::string> values;
    for (const Point& p : points) values.insert(text(p.factors[f]));
    if (values.size() > 1 || (f == Factor::ranks && !values.contains("-"))) out.push_back(f);
    const bool follows = f == Factor::ranks_per_node || f == Factor::batch_global;
    if (values.size() - values.count("-") > 1 && !follows) vary.insert(f);
  }
  std::ranges::stable_partition(out, [&vary](Factor f) { return vary.contains(f); });
  return out;
}

core::Column factor_column(Factor f, bool is_text, unsigned expendable) {
  std::string head(core::name(f));
  const bool bytes = core::factor_table()[static_cast<std::size_t>(f)].unit == "B" || head.ends_with("_bytes");
  return {.header = std::move(head),
          .unit = bytes ? "B" : "",
          .align = is_text ? core::Align::left : core::Align::right,
          .expendable = expendable};
}

}  // namespace

std::string recent_table(const core::Run& run, std::size_t most, std::size_t width) {
  const std::span<const Point> all = run.points, last = all.last(std::min(most, all.size()));
  Columns<Point> columns;
  unsigned expendable = 0;  // the first of them say most
  for (const Factor f : factors_shown(all)) {
    const bool is_text = core::factor_table()[static_cast<std::size_t>(f)].kind == core::KeyKind::label;
    columns.add(factor_column(f, is_text, expendable > 4 ? expendable : 0),
                [f](const Point& p) { return text(p.factors[f]); });
    ++expendable;
  }
  const auto [per_second, unit] = time_unit(last);
  if (has(last, Metric::time_s)) {
    columns.add({"time", unit},
                [s = per_second](const Point& p) { return digits(s * p.metrics.number(Metric::time_s)); });
    columns.add({"95 %", unit, core::Align::right, 1},
                [s = per_second](const Point& p) { return interval(p.metrics[Metric::time_s], s); });
  }
  for (const ShownMetric& m : shown_metrics) {
    if (!has(last, m.metric)) continue;
    columns.add({m.head, m.unit, core::Align::right, m.expendable}, [&m](const Point& p) {
      if (const auto* i = p.metrics[m.metric].as<std::int64_t>()) return fmt::format("{}", *i);
      const double x = m.factor * p.metrics.number(m.metric);
      return m.metric == Metric::error ? error_text(x) : digits(x);
    });
  }
  core::Table table = columns.table();
  for (const Point& p : last) {
    const bool is_ok = p.status == core::Status::ok;
    table.add_row(columns.cells(p), is_ok ? "" : std::string(core::name(p.status)));
  }
  return table.to_string(width);
}

std::string point_line(const Point& p) {
  std::string line = fmt::format("{} {}", p.experiment, p.factors.key());
  for (const ShownMetric& m : shown_metrics) {
    const double x = p.metrics.number(m.metric);
    if (std::isfinite(x)) line += fmt::format("  {} {:.4g}{}{}", m.head, m.factor * x, *m.unit ? " " : "", m.unit);
  }
  const double time = p.metrics.number(Metric::time_s);
  if (std::isfinite(time)) line += "  time " + core::to_text(core::Seconds{time});
  const std::string why = why_not(p);
  return why.empty() ? line : fmt::format("{}  {}", line, why);
}

}  // namespace gradmeter::report
