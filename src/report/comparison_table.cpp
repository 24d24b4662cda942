// SPDX-License-Identifier: Apache-2.0
#include "report/comparison_table.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include "core/format.hpp"
#include "core/result.hpp"
#include "report/cells.hpp"

namespace gradmeter::report {
namespace {

using analysis::ComparedPoint;
using analysis::Comparison;
using core::Factor;

/// Factors in which the points differ; all others stand once above the table.
std::vector<Factor> varying_factors(const Comparison& comparison) {
  std::vector<Factor> out;
  for (std::size_t i = 0; i < core::factor_count; ++i) {
    std::set<std::string> values;
    for (const auto& p : comparison.points) values.insert(core::to_text(p.last_point.factors[static_cast<Factor>(i)]));
    if (values.size() > 1) out.push_back(static_cast<Factor>(i));
  }
  return out;
}

core::Factors common_factors(const Comparison& comparison, const std::vector<Factor>& varying) {
  core::Factors common = comparison.points.front().last_point.factors;
  for (const Factor f : varying) common[f] = {};
  return common;
}

std::string plural(std::size_t n, std::string_view what) { return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s"); }

/// The geometric mean of a side; NaN without launches. The ratio is the quotient of two of these.
double mean_of(const std::vector<double>& launches) {
  return launches.empty() ? NAN : analysis::geometric_mean(launches);
}

/// The unit in which numbers are shown: s, ms or µs for times, by their median; 10⁹ for rates of bytes and FLOP; else
/// the unit of the metric.
struct Scale {
  double factor;
  std::string unit;
};
std::string_view unit_of(const Comparison& comparison) {
  return core::metric_table()[static_cast<std::size_t>(comparison.selection.metric)].unit;
}
Scale scale_of(const Comparison& comparison, std::span<const ComparedPoint> points) {
  const std::string unit(unit_of(comparison));
  if (unit == "B/s" || unit == "FLOP/s") return {1e-9, fmt::format("G{}", unit)};
  if (unit != "s") return {1, unit == "1" ? "" : unit};
  std::vector<double> times;
  for (const auto& p : points) times.insert(times.end(), p.a.begin(), p.a.end());
  const double typical = times.empty() ? NAN : core::median(times);
  if (typical < 1e-3) return {1e6, "µs"};
  return typical < 1 ? Scale{1e3, "ms"} : Scale{1, "s"};
}

/// A number with three digits, also below 1: 20.0, 0.00100.
std::string three_digits(double x) { return std::fabs(x) < 1 && x != 0 ? fmt::format("{:#.3g}", x) : digits(x); }

/// A ratio with two decimals, or with two digits below 0.1.
std::string ratio_text(double x) { return x < 0.1 ? fmt::format("{:#.2g}", x) : digits(x); }

std::string remark(const ComparedPoint& p) {
  std::string text = p.reason;
  for (const auto& [side, left_out] : {std::pair{"first", &p.left_out_of_first}, {"second", &p.left_out_of_second}})
    if (!left_out->empty()) text += fmt::format("{}{} side: {}", text.empty() ? "" : "; ", side, *left_out);
  if (p.verdict == analysis::Verdict::undecided && text.empty()) {
    text = p.launches_needed > 0 ? fmt::format("about {} launches of each would decide", p.launches_needed)
                                 : fmt::format("over {} launches of each would decide", analysis::most_launches);
  }
  return text;
}

core::Column column(std::string header, std::string unit = {}, core::Align align = core::Align::right,
                    unsigned expendable = 0) {
  return {std::move(header), std::move(unit), align, expendable};
}
core::Column text_column(std::string header) { return column(std::move(header), {}, core::Align::left); }

}  // namespace

std::string comparison_summary(const Comparison& comparison) {
  using enum analysis::Verdict;
  std::string text = plural(comparison.points.size(), "point") + ":";
  std::string_view comma = " ";
  for (const auto v : {slower, faster, undecided, same, missing}) {
    if (comparison.count(v) == 0) continue;
    text += fmt::format("{}{} {}", comma, comparison.count(v), analysis::name(v));
    comma = ", ";
  }
  return text;
}

analysis::Finding comparison_verdict(const Comparison& comparison) {
  using enum analysis::Verdict;
  // A figure that is inverted, so that above 1 is better, or that is a share, has no rate.
  const bool has_rate = unit_of(comparison) == "s" || unit_of(comparison).ends_with("/s");
  const auto varying = varying_factors(comparison);
  const std::string& experiment = comparison.points.front().last_point.experiment;
  const bool is_one_experiment =
      std::ranges::all_of(comparison.points, [&](const auto& p) { return p.last_point.experiment == experiment; });
  analysis::Finding out{.kind = analysis::FindingKind::compared,
                        .experiment = is_one_experiment ? experiment : "",
                        .factors = common_factors(comparison, varying),
                        .over = varying};
  std::vector<std::string> phrases;
  for (const auto v : {slower, faster}) {
    const auto extreme = std::ranges::find_if(comparison.points, [v](const auto& p) { return p.verdict == v; });
    if (extreme == comparison.points.end()) continue;
    out.figures[fmt::format("most_{}", analysis::name(v))] = {extreme->ratio.value, extreme->ratio.low,
                                                              extreme->ratio.high};
    out.severity = std::max(out.severity, std::abs(1 - extreme->ratio.value));
    const std::string where = out.factors.key() == extreme->last_point.factors.key()
                                  ? ""
                                  : fmt::format(", most at {}", comparison_label(comparison, *extreme));
    const Scale scale = scale_of(comparison, {&*extreme, 1});
    phrases.push_back(
        fmt::format("{} at {} of {}{}: {} instead of {}{}, × {} ({}–{}){}", analysis::name(v), comparison.count(v),
                    plural(comparison.points.size(), "point"), where, three_digits(mean_of(extreme->b) * scale.factor),
                    three_digits(mean_of(extreme->a) * scale.factor), scale.unit.empty() ? "" : " " + scale.unit,
                    ratio_text(extreme->ratio.value), ratio_text(extreme->ratio.low), ratio_text(extreme->ratio.high),
                    has_rate ? " of the rate" : ""));
  }
  for (const auto v : {slower, faster, same, undecided, missing})
    out.figures[std::string(analysis::name(v))] = {.value = static_cast<double>(comparison.count(v))};
  if (!phrases.empty()) {
    out.sentence =
        fmt::format("{} against {} is {}.", comparison.b_name, comparison.a_name, fmt::join(phrases, "; and "));
    return out;
  }
  const std::string without_verdict =
      comparison.count(undecided) + comparison.count(missing) == 0
          ? ""
          : fmt::format(", but {} undecided and {} missing", comparison.count(undecided), comparison.count(missing));
  out.sentence = fmt::format("No difference is shown between {} and {}: {} of {} the same{}.", comparison.a_name,
                             comparison.b_name, comparison.count(same), plural(comparison.points.size(), "point"),
                             without_verdict);
  return out;
}

std::string comparison_table(const Comparison& comparison, std::size_t most, std::size_t width) {
  const auto varying = varying_factors(comparison);
  const Scale scale = scale_of(comparison, comparison.points);
  Columns<ComparedPoint> columns;
  std::set<std::string> experiments;
  for (const auto& p : comparison.points) experiments.insert(p.last_point.experiment);
  if (experiments.size() > 1)
    columns.add(text_column("experiment"), [](const auto& p) { return p.last_point.experiment; });
  for (const Factor f : varying)
    columns.add(text_column(std::string(core::name(f))), [f](const auto& p) { return text(p.last_point.factors[f]); });
  const std::string unit = fmt::format("geom. mean{}", scale.unit.empty() ? "" : ", " + scale.unit);
  columns.add(column("first", unit), [scale](const auto& p) { return three_digits(mean_of(p.a) * scale.factor); });
  columns.add(column("second", unit), [scale](const auto& p) { return three_digits(mean_of(p.b) * scale.factor); });
  columns.add(column("ratio"), [](const auto& p) { return ratio_text(p.ratio.value); });
  columns.add(column("95 % interval"), [](const auto& p) {
    if (std::isnan(p.ratio.low)) return std::string("-");
    return p.ratio.low < 0.1 ? fmt::format("{:#.3g}–{:#.3g}", p.ratio.low, p.ratio.high)
                             : fmt::format("{:.3f}–{:.3f}", p.ratio.low, p.ratio.high);
  });
  columns.add(column("q", {}, core::Align::right, 1),
              [](const auto& p) { return std::isnan(p.q_value) ? "-" : fmt::format("{:.2g}", p.q_value); });
  columns.add(column("launches", {}, core::Align::right, 2),
              [](const auto& p) { return fmt::format("{}+{}", p.a.size(), p.b.size()); });
  columns.add(text_column("verdict"), [](const auto& p) {
    return fmt::format("{}{}{}", analysis::name(p.verdict), p.oversubscribed ? "*" : "", p.disturbed ? "~" : "");
  });
  core::Table table = columns.table();
  const std::size_t shown = std::min(most, comparison.points.size());
  for (std::size_t i = 0; i < shown; ++i)
    table.add_row(columns.cells(comparison.points[i]), remark(comparison.points[i]));
  std::string out = fmt::format("{}\n\n{}", common_factors(comparison, varying).key(), table.to_string(width));
  if (shown < comparison.points.size())
    out += fmt::format("{} more; --all shows them\n", plural(comparison.points.size() - shown, "point"));
  return out;
}

std::string comparison_label(const Comparison& comparison, const ComparedPoint& p) {
  const core::Factors common = common_factors(comparison, varying_factors(comparison));
  core::Factors own = p.last_point.factors;
  for (std::size_t i = 0; i < core::factor_count; ++i)
    if (!core::is_null(common[static_cast<Factor>(i)])) own[static_cast<Factor>(i)] = {};
  return fmt::format("{} {}", p.last_point.experiment, own.key());
}

std::string comparison_legend(double tolerance, Legend how) {
  if (how == Legend::brief) {
    return fmt::format(
        "ratio: of rates, above 1 the second is better; same: within {:.3f} to {:.3f}\n"
        "~ disturbed: measure again; * more busy threads than cores: no measurement\n{}",
        1 / (1 + tolerance), 1 + tolerance, whole_legend_line);
  }
  return fmt::format(
      "first, second: geometric means of each side's launches, whose quotient is the ratio\n"
      "ratio: of rates, above 1 the second side is better; its interval is over launches (Welch, of logarithms)\n"
      "faster, slower: the interval excludes 1, also corrected for the number of points (q at most 0.05,\n"
      "Benjamini-Hochberg)\n"
      "same: the interval lies within {:.3f} to {:.3f}; else undecided\n"
      "*: oversubscribed (more busy threads than cores), no measurement of scaling; ~: disturbed, measure again\n",
      1 / (1 + tolerance), 1 + tolerance);
}

std::string comparison_csv(const Comparison& comparison) {
  const auto varying = varying_factors(comparison);
  std::string out = "experiment";
  for (const Factor f : varying) out += fmt::format(",{}", core::name(f));
  out += fmt::format(
      ",first_geometric_mean_{0},second_geometric_mean_{0},ratio,ci95_low,ci95_high,p,q,first_launches,second_launches,"
      "verdict,reason\n",
      core::name(comparison.selection.metric));
  for (const auto& p : comparison.points) {
    out += csv_cell(p.last_point.experiment);
    for (const Factor f : varying) out += fmt::format(",{}", csv_cell(p.last_point.factors[f]));
    for (const double v :
         {mean_of(p.a), mean_of(p.b), p.ratio.value, p.ratio.low, p.ratio.high, p.p_value, p.q_value}) {
      out += fmt::format(",{}", csv_cell(v));
    }
    out += fmt::format(",{},{},{},{}\n", p.a.size(), p.b.size(), analysis::name(p.verdict), csv_cell(remark(p)));
  }
  return out;
}

namespace {

/// The ratio, and the figures of which it is the quotient.
std::string properties(const analysis::Comparison& comparison, const analysis::ComparedPoint& p) {
  if (p.a.empty() || p.b.empty()) return "";
  std::string out = "      <properties>\n";
  const auto add = [&](const std::string& name, double value) {
    out += fmt::format("        <property name=\"{}\" value=\"{}\"/>\n", name, value);
  };
  add(fmt::format("first_geometric_mean_{}", core::name(comparison.selection.metric)), analysis::geometric_mean(p.a));
  add(fmt::format("second_geometric_mean_{}", core::name(comparison.selection.metric)), analysis::geometric_mean(p.b));
  add("ratio", p.ratio.value);
  return out + "      </properties>\n";
}

std::string test_case(const analysis::Comparison& comparison, const analysis::ComparedPoint& p, double bar) {
  const auto why = analysis::why_below(p, bar);
  const std::string open = fmt::format(R"(    <testcase classname="gradmeter.{}" name="{}")",
                                       markup_text(p.last_point.experiment), markup_text(p.last_point.factors.key()));
  const std::string failure = why ? fmt::format("      <failure message=\"{}\"/>\n", markup_text(*why)) : "";
  return fmt::format("{}>\n{}{}    </testcase>\n", open, properties(comparison, p), failure);
}

}  // namespace

std::string comparison_junit(std::span<const analysis::Comparison> comparisons, double bar) {
  std::string out = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n";
  for (const auto& comparison : comparisons) {
    out += fmt::format(
        "  <testsuite name=\"{} against {}, bar {}\" tests=\"{}\" failures=\"{}\">\n", markup_text(comparison.b_name),
        markup_text(comparison.a_name), bar, comparison.points.size(),
        std::ranges::count_if(comparison.points, [bar](const auto& p) { return why_below(p, bar).has_value(); }));
    for (const auto& p : comparison.points) out += test_case(comparison, p, bar);
    out += "  </testsuite>\n";
  }
  return out + "</testsuites>\n";
}

}  // namespace gradmeter::report
