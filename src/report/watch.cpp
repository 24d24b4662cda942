// SPDX-License-Identifier: Apache-2.0
#include "report/watch.hpp"

#include <time.h>  // timegm, strptime

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <utility>

#include "core/format.hpp"
#include "core/print.hpp"
#include "core/table.hpp"
#include "core/units.hpp"
#include "report/cells.hpp"

namespace gradmeter::report {
namespace {

using core::Point;
using core::Run;

/// The seconds since 1970 of "2026-11-26T17:05:19Z"; nothing for other texts.
std::optional<double> seconds_of(const std::string& time) {
  std::tm utc{};
  const char* end = ::strptime(time.c_str(), "%Y-%m-%dT%H:%M:%SZ", &utc);
  if (!end || *end != '\0') return std::nullopt;
  return static_cast<double>(::timegm(&utc));
}

RunState state_of(const Run& run, const Observation& observation, double quiet_s, double per_point_s) {
  if (run.end) return RunState::ended;
  if (observation.is_held) return RunState::running;
  const bool is_local = !run.info.hosts.empty() && run.info.hosts.front() == observation.host;
  if (observation.is_free && is_local) return RunState::gone;
  constexpr double least_silence_s = 60, silent_points = 5;
  return quiet_s > std::max(least_silence_s, silent_points * per_point_s) ? RunState::silent : RunState::running;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t from = 0, end; (end = text.find('\n', from)) != std::string::npos; from = end + 1)
    lines.push_back(text.substr(from, end - from));
  return lines;
}

std::string machine_text(const core::RunInfo& info) {
  std::string hosts = info.hosts.empty() ? "" : info.hosts.front();
  if (info.hosts.size() > 1) hosts += fmt::format(" … {}", info.hosts.back());
  std::string text = info.ranks > 0 ? counted(info.ranks, "rank") : "unknown ranks";
  if (info.nodes > 0) text += fmt::format(" on {}", counted(info.nodes, "node"));
  if (!hosts.empty()) text += fmt::format(" ({})", hosts);
  if (info.cores_per_node > 0) text += fmt::format(", {} cores a node", info.cores_per_node);
  for (const std::string& more : {info.cpu, info.gpus.empty() ? "" : info.gpus.front(), info.mpi})
    if (!more.empty()) text += fmt::format("; {}", more);
  return text;
}

/// "skipped 3: needs 2 GiB of memory", the most frequent first.
std::vector<std::string> not_measured(const Run& run, std::size_t most) {
  std::map<std::string, std::size_t> counts;
  for (const Point& p : run.points)
    if (p.status != core::Status::ok) ++counts[why_not(p)];
  std::vector<std::pair<std::size_t, std::string>> reasons;
  for (const auto& [why, n] : counts) reasons.emplace_back(n, why);
  std::ranges::stable_sort(reasons, std::greater(), &std::pair<std::size_t, std::string>::first);
  std::vector<std::string> out;
  for (const auto& [n, why] : reasons) {
    if (out.size() == most) {
      out.push_back(fmt::format("… and {} more reasons", reasons.size() - most));
      break;
    }
    out.push_back(fmt::format("{:3} {}", n, why));
  }
  return out;
}

std::string end_reason(const core::RunEnd& end) {
  switch (end.exit) {
    case 0:
      return "";
    case 1:
      return "below the bar that was set";
    case 2:
      return "the input was wrong";
    case 3:
      return "a library or a rank failed";
    case 4:
      return "a result was wrong";
    case 5:
      return "a GPU was lost";
    default:
      return end.exit > 128 ? fmt::format("signal {}", end.exit - 128) : "";
  }
}

}  // namespace

std::string truncated_to(std::string_view line, std::size_t width) {
  const std::string text = core::printable(line);
  std::string out;
  std::size_t cells = 0;
  for (std::size_t i = 0; i < text.size();) {
    std::size_t n = 1;
    while (i + n < text.size() && (static_cast<unsigned char>(text[i + n]) & 0xC0u) == 0x80u) ++n;
    const auto character = std::string_view(text).substr(i, n);
    const std::size_t wide = core::display_width(character);
    if (cells + wide > width) break;
    out += character;
    cells += wide;
    i += n;
  }
  return out;
}

RunProgress progress_of(const core::ResultFile& file, const Observation& observation) {
  RunProgress p;
  if (file.runs.empty()) return p;
  const Run& run = file.runs.back();
  p.done = run.points.size();
  p.plan = run.plan;
  const double growth = std::min(observation.last_growth, observation.now);  // clocks of other machines may be ahead
  const double start = seconds_of(run.info.time).value_or(growth), spent = std::max(0.0, growth - start);
  const double per_point = p.done > 0 ? spent / static_cast<double>(p.done) : 0;
  p.quiet_s = observation.now - growth;
  p.state = state_of(run, observation, p.quiet_s, per_point);
  const bool is_over = p.state == RunState::ended || p.state == RunState::gone;
  const double end = run.end ? seconds_of(run.end->time).value_or(growth) : is_over ? growth : observation.now;
  p.elapsed_s = std::max(0.0, end - start);
  if (is_over || !p.plan || p.done == 0) return p;
  const double rest =
      static_cast<double>(std::max<std::int64_t>(0, p.plan->points - static_cast<std::int64_t>(p.done)));
  p.left_s = std::max(0.0, per_point * rest - p.quiet_s);
  return p;
}

std::string progress_text(const RunProgress& p) {
  std::string text = p.plan
                         ? fmt::format("{} of {} points", p.done, p.plan->points)
                         : fmt::format("{} point{}; how many are planned is unknown", p.done, p.done == 1 ? "" : "s");
  if (p.plan && p.plan->kept > 0) text += fmt::format(" and {} kept", p.plan->kept);
  text += fmt::format(" · {} elapsed", core::clock_text({p.elapsed_s}));
  if (p.state == RunState::ended || p.state == RunState::gone) return text;
  return text + (p.left_s ? fmt::format(" · {} left", core::clock_text({*p.left_s})) : " · time left unknown");
}

ScreenLine state_text(const core::ResultFile& file, const RunProgress& p) {
  const std::string quiet = core::clock_text({p.quiet_s});
  switch (p.state) {
    case RunState::none:
      return {"no run in the file yet", Style::plain};
    case RunState::running:
      return {fmt::format("running; it wrote {} ago", quiet), Style::good};
    case RunState::gone: {
      const bool may_be_done = p.plan && p.done >= static_cast<std::size_t>(p.plan->points);
      const char* how = may_be_done ? "all points are there"
                        : p.plan    ? "it was killed"
                                    : "no plan says whether it was done";
      return {fmt::format("the writer is gone and left no end: {}; it wrote {} ago", how, quiet), Style::bad};
    }
    case RunState::silent:
      return {fmt::format("silent for {}: the writer may be dead (its lock cannot be seen from this machine)", quiet),
              Style::bad};
    case RunState::ended:
      break;
  }
  const core::RunEnd& end = *file.runs.back().end;
  std::string why = end.reason.empty() ? end_reason(end) : end.reason;
  if (end.exit > 128) why = fmt::format("{} by {}", why == end_reason(end) ? "ended" : why, end_reason(end));
  return {fmt::format("ended with exit status {}{}{}", end.exit, why.empty() ? "" : ": ", why),
          end.exit == 0 ? Style::good : Style::bad};
}

std::vector<ScreenLine> watch_screen(const core::ResultFile& file, const Observation& observation, std::size_t width,
                                     std::size_t height) {
  const RunProgress progress = progress_of(file, observation);
  std::vector<ScreenLine> lines;
  const auto add = [&](std::string_view text, Style style = Style::plain) {
    if (lines.size() < height) lines.push_back({truncated_to(text, width), style});
  };
  if (file.runs.empty()) {
    add(state_text(file, progress).text);
    return lines;
  }
  const Run& run = file.runs.back();
  add(run.info.command, Style::heading);
  add(fmt::format("on {}", machine_text(run.info)));
  add(progress_text(progress));
  const ScreenLine state = state_text(file, progress);
  add(state.text, state.style);
  if (!file.left_out.empty())
    add(fmt::format("{} lines cannot be read; the last: {}", file.left_out.size(), file.left_out.back()), Style::bad);
  constexpr std::size_t most_reasons = 4;
  const auto reasons = not_measured(run, most_reasons);
  const std::size_t below = reasons.empty() ? 0 : reasons.size() + 2, used = lines.size() + below;
  // lines besides the rows: an empty one, two of column heads, a rule, a note on left-out columns
  constexpr std::size_t head = 5;
  if (!run.points.empty() && used + head < height) {
    add("");
    for (const std::string& line : lines_of(recent_table(run, height - used - head, width))) add(line);
  }
  if (reasons.empty()) return lines;
  add("");
  add("not measured, or not to be trusted:", Style::heading);
  for (const std::string& why : reasons) add(why, Style::bad);
  return lines;
}

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

/// The factors in which the points differ, and always the number of ranks. Those that follow from others come last, as
/// do those that have one value wherever they apply.
std::vector<Factor> factors_shown(std::span<const Point> points) {
  std::vector<Factor> out;
  std::set<Factor> varying = {Factor::ranks};
  for (std::size_t i = 0; i < core::factor_count; ++i) {
    const auto f = static_cast<Factor>(i);
    std::set<std::string> values;
    for (const Point& p : points) values.insert(text(p.factors[f]));
    if (values.size() > 1 || (f == Factor::ranks && !values.contains("-"))) out.push_back(f);
    const bool follows = f == Factor::ranks_per_node || f == Factor::batch_global;
    if (values.size() - values.count("-") > 1 && !follows) varying.insert(f);
  }
  std::ranges::stable_partition(out, [&varying](Factor f) { return varying.contains(f); });
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
  const std::span<const Point> points = run.points, last = points.last(std::min(most, points.size()));
  Columns<Point> columns;
  unsigned expendable = 0;  // the first factors say most, and may not be left out
  for (const Factor f : factors_shown(points)) {
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

namespace {

/// The values by which people name a point, in the order in which they say them.
std::string short_name(const Point& p) {
  std::vector<std::string> words;
  const auto value = [&](Factor f) { return core::is_null(p.factors[f]) ? "" : core::to_text(p.factors[f]); };
  const auto add = [&](Factor f, const char* before = "", const char* behind = "") {
    if (const auto text = value(f); !text.empty() && text != "none") words.push_back(before + text + behind);
  };
  add(Factor::model);
  add(Factor::collective);
  add(Factor::pattern);
  if (const auto from = value(Factor::from_rank), to = value(Factor::to_rank); !from.empty())
    words.push_back(to.empty() ? "rank " + from : from + " to " + to);
  if (p.experiment == "kernels") add(Factor::problem);
  add(Factor::pass);
  if (const auto* bytes = p.factors[Factor::size_bytes].as<std::int64_t>())
    words.push_back(core::to_text(core::Bytes{static_cast<std::size_t>(*bytes)}));
  add(Factor::batch_per_rank, "b");
  if (const auto ranks = value(Factor::ranks); !ranks.empty())
    words.push_back(ranks + (ranks == "1" ? " rank" : " ranks"));
  for (const Factor f : {Factor::strategy, Factor::algorithm, Factor::codec, Factor::precision, Factor::dtype}) add(f);
  if (const auto* in_place = p.factors[Factor::in_place].as<bool>())
    words.push_back(*in_place ? "in place" : "out of place");
  return words.empty() ? p.experiment : fmt::format("{}", fmt::join(words, " "));
}

}  // namespace

std::string short_line(const Point& p) {
  if (p.status != core::Status::ok) return fmt::format("{}: {}", short_name(p), core::name(p.status));
  std::string figures;
  double time = p.metrics.number(Metric::time_s);
  if (!std::isfinite(time)) time = p.metrics.number(Metric::encode_s);
  if (std::isfinite(time)) figures = core::to_text(core::Seconds{time});
  // A share is followed by what it is a share of; only the efficiency is plain, since a training is judged by it.
  constexpr std::pair<Metric, const char*> shares[] = {
      {Metric::efficiency, ""}, {Metric::roofline, " of the roofline"}, {Metric::accuracy, " accuracy"}};
  for (const auto& [metric, of_what] : shares) {
    const double share = p.metrics.number(metric);
    if (!std::isfinite(share)) continue;
    figures += fmt::format("{}{:.0f} %{}", figures.empty() ? "" : ", ", 100 * share, of_what);
    break;
  }
  return figures.empty() ? short_name(p) : fmt::format("{}: {}", short_name(p), figures);
}

}  // namespace gradmeter::report
