// SPDX-License-Identifier: Apache-2.0
#include "report/cells.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <stdexcept>
#include <utility>
#include <variant>

#include "core/format.hpp"
#include "core/name.hpp"
#include "core/print.hpp"
#include "core/result.hpp"

namespace gradmeter::report {

using core::Factor;
using core::Metric;
using core::Point;

namespace {

/// "disturbed: 2 of 5 points: 2 waited for a core (up to 62 % of the time)", or nothing.
std::string disturbed_points(std::span<const Point* const> points) {
  const auto count = [&](bool (*is_so)(const core::Metrics&)) {
    return std::ranges::count_if(points, [&](const Point* p) { return is_so(p->metrics); });
  };
  double most_delay = 0, most_steal = 0;
  for (const Point* p : points) {
    most_delay = std::max(most_delay, core::run_delay(p->metrics));
    most_steal = std::max(most_steal, core::steal(p->metrics));
  }
  std::vector<std::string> causes;
  if (const auto n = count(core::waits_for_cores); n > 0)
    causes.push_back(fmt::format("{} waited for a core (up to {:.0f} % of the time)", n, 100 * most_delay));
  if (const auto n = count(core::loses_cores); n > 0)
    causes.push_back(fmt::format("{} lost cores to the hypervisor (up to {:.0f} %)", n, 100 * most_steal));
  if (const auto n = count(core::is_mostly_disturbed); n > 0)
    causes.push_back(fmt::format("{} with most blocks disturbed", n));
  if (causes.empty()) return {};
  return fmt::format("disturbed: {} of {} points: {}\n", count(core::is_disturbed), points.size(),
                     fmt::join(causes, ", "));
}

}  // namespace

std::string text(const core::Value& v) { return core::is_null(v) ? "-" : core::to_text(v); }

std::string digits(double x) {
  if (!std::isfinite(x)) return "-";
  const double size = std::fabs(x);
  return size >= 100 ? fmt::format("{:.0f}", x) : size >= 10 ? fmt::format("{:.1f}", x) : fmt::format("{:.2f}", x);
}

std::string interval(const core::Value& time, double per_second) {
  const auto* s = time.as<core::Summary>();
  if (!s || !std::isfinite(s->ci95_low)) return "-";
  return fmt::format("{}–{}", digits(s->ci95_low * per_second), digits(s->ci95_high * per_second));
}

bool is_true(const core::Value& v) {
  const auto* b = v.as<bool>();
  return b && *b;
}

std::int64_t integer(const core::Value& v) {
  const auto* i = v.as<std::int64_t>();
  return i ? *i : 0;
}

const core::Value& codec_label(const Point& p) {
  const auto& label = p.metrics[Metric::implementation];
  return core::is_null(label) ? p.factors[Factor::codec] : label;
}

std::string error_text(double x) { return !std::isfinite(x) ? "-" : x == 0 ? "0" : fmt::format("{:.3g}", x); }

std::string csv_quoted(const std::string& text) {
  if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + "\"";
}

std::string csv_cell(const core::Value& v) {
  const auto* x = v.as<double>();
  if (core::is_null(v) || (x && !std::isfinite(*x))) return "";
  const auto* text = v.as<std::string>();
  return text ? csv_text(*text) : csv_quoted(core::to_text(v));
}

std::string csv_text(const std::string& text) {
  const bool is_formula = text.size() > 1 && std::string_view("=+-@").find(text[0]) != std::string_view::npos;
  return csv_quoted(is_formula ? "'" + text : text);
}

std::string markup_text(std::string_view text) {
  static const std::map<char, std::string_view> names{{'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&quot;"}};
  std::string out;
  for (const char c : core::printable(text)) {
    if (const auto found = names.find(c); found != names.end()) {
      out += found->second;
    } else {
      out += c;
    }
  }
  return out;
}

std::string why_not(const Point& p) {
  return p.status == core::Status::ok ? "" : fmt::format("{}: {}", core::name(p.status), p.reason);
}

std::string machine_line(std::span<const Point* const> points) {
  double least = std::nan("");
  std::int64_t disturbed = 0, left_out = 0, blocks = 0;
  for (const Point* p : points) {
    least = std::fmin(least, p->metrics.number(Metric::steadiness));
    disturbed += integer(p->metrics[Metric::disturbed_blocks]);
    left_out += integer(p->metrics[Metric::left_out_blocks]);
    blocks += integer(p->metrics[Metric::blocks]);
  }
  if (!std::isfinite(least)) return {};
  // The canary takes a twentieth of the time: it may miss what kept the points themselves from running.
  for (const Point* p : points) least = std::min({least, 1 - core::run_delay(p->metrics), 1 - core::steal(p->metrics)});
  return fmt::format("machine: at least {:.0f} % steady; {} of {} blocks used were disturbed, {} others left out\n{}",
                     100 * std::max(0.0, least), disturbed, blocks, left_out, disturbed_points(points));
}

std::string disturbed_legend(std::size_t key_width, bool has_machine_line) {
  const std::string indent(key_width, ' ');
  const std::string first = fmt::format(
      "{:<{}}disturbed: a rank waited for a core, or the hypervisor ran, for over 5 % of the time", "~", key_width);
  if (!has_machine_line) return first + ": measure again\n";
  return fmt::format(
      "{}, or most blocks were\n"
      "{}disturbed: measure again\n"
      "{:<{}}between the blocks runs a reference load (small product and copy): steady is its best time over its "
      "median.\n"
      "{}A block is disturbed if the load takes over 10 % longer than its best; such blocks are left out if enough\n"
      "{}others remain\n",
      first, indent, "machine", key_width, indent, indent);
}

std::string slow_and_busy(const Point& p) {
  const auto& rank = p.metrics[Metric::slowest_rank];
  const auto& busy = p.metrics[Metric::busy_host];
  std::vector<std::string> notes;
  if (!core::is_null(rank))
    notes.push_back(fmt::format("slow: rank {} on {}", text(rank), text(p.metrics[Metric::slowest_host])));
  const bool is_one_node = integer(p.factors[Factor::ranks]) == integer(p.factors[Factor::ranks_per_node]);
  if (core::waits_for_cores(p.metrics) && !is_one_node && !core::is_null(busy))
    notes.push_back(fmt::format("busy: {}", text(busy)));
  return fmt::format("{}", fmt::join(notes, "; "));
}

bool oversubscribed(const Point& p) { return is_true(p.metrics[Metric::oversubscribed]); }

Labels short_labels(std::span<const Point> points, Factor of) {
  std::map<std::string, std::vector<core::ParsedName>> by_base;
  for (const Point& p : points) {
    if (core::is_null(p.factors[of])) continue;
    auto name = core::parse_name_or_text(text(p.factors[of]));
    auto& known_names = by_base[name.base];
    if (std::ranges::none_of(known_names, [&](const auto& n) { return n.canonical() == name.canonical(); }))
      known_names.push_back(name);
  }
  Labels out;
  for (const auto& [base, names] : by_base) {
    for (const auto& name : names) {
      core::ParsedName shorter = name;
      // A parameter that all names of the base share is left out.
      std::erase_if(shorter.parameters, [&](const auto& p) {
        return std::ranges::all_of(names, [&](const auto& n) {
          const auto it = n.parameters.find(p.first);
          return it != n.parameters.end() && it->second == p.second;
        });
      });
      out[name.canonical()] = shorter.canonical();
    }
  }
  return out;
}

std::string exchange(const Point& p, const Labels& labels) {
  const core::Value &algorithm = p.factors[Factor::algorithm], &transport = p.factors[Factor::transport];
  if (core::is_null(algorithm) && core::is_null(transport)) return "-";
  std::string out = core::is_null(algorithm) ? "messages" : text(algorithm);
  if (!core::is_null(transport)) out += fmt::format("/{}", text(transport));
  if (const auto& tuned = p.factors[Factor::tuned_table]; !core::is_null(tuned))
    out += fmt::format(" tuned {}", text(tuned));
  const std::string codec = text(p.factors[Factor::codec]);
  if (codec == "none" || codec == "-") return out;
  const auto label = labels.find(codec);
  return fmt::format("{} {}", out, label == labels.end() ? codec : label->second);
}

std::vector<Factor> distinguishing_factors(std::span<const core::Factors> points, std::span<const std::string> rows) {
  std::map<std::string_view, const core::Factors*> first;  // by row: the factors of its first point
  std::set<Factor> out;
  for (std::size_t k = 0; k < points.size(); ++k) {
    const auto [found, is_first] = first.try_emplace(rows[k], &points[k]);
    if (is_first) continue;
    const core::Factors& other = *found->second;
    for (std::size_t i = 0; i < core::factor_count; ++i) {
      const auto factor = static_cast<Factor>(i);
      if (text(points[k][factor]) != text(other[factor])) out.insert(factor);
    }
  }
  return {out.begin(), out.end()};
}

std::function<std::string(const Point&)> distinguishing_headings(std::span<const Point> points,
                                                                 std::function<std::string(const Point&)> heading,
                                                                 const std::function<std::string(const Point&)>& row) {
  std::vector<core::Factors> factors;
  std::vector<std::string> rows;
  for (const Point& p : points) {
    factors.push_back(p.factors);
    rows.push_back(fmt::format("{}\n{}", heading(p), row(p)));
  }
  return [heading = std::move(heading), shown = distinguishing_factors(factors, rows)](const Point& p) {
    const std::string values = values_text(p.factors, shown);
    return fmt::format("{}{}{}", heading(p), values.empty() ? "" : " ·", values);
  };
}

std::string values_text(const core::Factors& f, std::span<const Factor> shown) {
  std::string out;
  for (const Factor factor : shown)
    if (!core::is_null(f[factor])) out += fmt::format(" {}={}", core::name(factor), text(f[factor]));
  return out;
}

analysis::Estimate CodecPair::gain() const {
  const auto* plain_time = plain->metrics[Metric::time_s].as<core::Summary>();
  const auto* coded_time = coded->metrics[Metric::time_s].as<core::Summary>();
  if (!plain_time || !coded_time)
    return {.value = plain->metrics.number(Metric::time_s) / coded->metrics.number(Metric::time_s)};
  return {.value = plain_time->median / coded_time->median,
          .low = plain_time->ci95_low / coded_time->ci95_high,
          .high = plain_time->ci95_high / coded_time->ci95_low};
}

std::vector<CodecPair> codec_pairs(std::span<const Point* const> points) {
  const auto key_without_codec = [](const Point& p) {
    core::Factors f = p.factors;
    f[Factor::codec] = std::string("none");
    return fmt::format("{} {}", p.experiment, f.key());
  };
  std::map<std::string, const Point*> plain;
  std::vector<const Point*> coded;
  for (const Point* p : points) {
    const std::string codec = text(p->factors[Factor::codec]);
    if (p->status != core::Status::ok || codec == "-") continue;
    if (codec == "none") {
      plain[key_without_codec(*p)] = p;
    } else {
      coded.push_back(p);
    }
  }
  std::vector<CodecPair> out;
  for (const Point* p : coded)
    if (const auto found = plain.find(key_without_codec(*p)); found != plain.end()) out.push_back({p, found->second});
  return out;
}

std::vector<NamedPoints> by_name(std::span<const Point> points, const std::function<std::string(const Point&)>& name) {
  std::vector<NamedPoints> out;
  for (const Point& p : points) {
    const std::string own = name(p);
    auto it = std::ranges::find_if(out, [&](const auto& named) { return named.name == own; });
    if (it == out.end()) it = out.insert(out.end(), {own, {}});
    it->points.push_back(&p);
  }
  return out;
}

std::vector<NamedPoints> separate_runs(std::span<const Point> points,
                                       const std::function<std::string(const Point&)>& name) {
  std::map<std::string, std::size_t> run_of;  // by factors: the run of the latest point with them
  std::vector<std::string> names;
  for (const Point& p : points) {
    const std::size_t run = ++run_of[p.factors.key()];
    names.push_back(run == 1 ? name(p) : fmt::format("{} · run {}", name(p), run));
  }
  return by_name(points, [&](const Point& p) { return names[static_cast<std::size_t>(&p - points.data())]; });
}

namespace {

/// One of the summary's figures as a value; null where there is no summary.
template <class Figure>
core::Value of_summary(const core::Point& p, core::Metric time, Figure figure) {
  const auto* s = p.metrics[time].as<core::Summary>();
  return s ? core::Value(figure(*s)) : core::Value();
}

double core::Summary::*statistic(std::string_view key) {
  const auto at = std::ranges::find(core::statistics, key, &core::Statistic::key);
  if (at == core::statistics.end()) throw std::logic_error(fmt::format("a summary has no statistic {}", key));
  return at->value;
}

}  // namespace

CsvColumns::CsvColumns() {
  add_column("status", [](const core::Point& p) { return std::string(core::name(p.status)); });
  add_column("reason", [](const core::Point& p) { return p.reason; });
}

void CsvColumns::add_column(std::string name, std::function<core::Value(const core::Point&)> value) {
  names_.push_back(std::move(name));
  values_.push_back(std::move(value));
}

CsvColumns& CsvColumns::add(std::initializer_list<core::Factor> factors) {
  for (const auto f : factors)
    add_column(std::string(core::name(f)), [f](const core::Point& p) { return p.factors[f]; });
  return *this;
}

CsvColumns& CsvColumns::add(std::initializer_list<core::Metric> metrics) {
  for (const auto m : metrics)
    add_column(std::string(core::name(m)), [m](const core::Point& p) { return p.metrics[m]; });
  return *this;
}

CsvColumns& CsvColumns::statistics(core::Metric time, std::initializer_list<std::string_view> keys) {
  const std::string name(core::name(time));
  const std::string stem = name.substr(0, name.size() - 2);  // without "_s"
  for (const auto key : keys) {
    const auto value = statistic(key);
    add_column(fmt::format("{}_{}_s", stem, key), [time, value](const core::Point& p) {
      return of_summary(p, time, [value](const core::Summary& s) { return s.*value; });
    });
  }
  return *this;
}

CsvColumns& CsvColumns::samples(core::Metric time, const std::string& name) {
  add_column(name, [time](const core::Point& p) {
    return of_summary(p, time, [](const core::Summary& t) { return static_cast<std::int64_t>(t.n); });
  });
  return *this;
}

CsvColumns& CsvColumns::stop(core::Metric time) {
  add_column("stop", [time](const core::Point& p) {
    return of_summary(p, time, [](const core::Summary& t) { return std::string(core::name(t.stop)); });
  });
  return *this;
}

std::string CsvColumns::header() const { return fmt::format("{}\n", fmt::join(names_, ",")); }

std::string CsvColumns::row(const core::Point& p) const {
  std::vector<std::string> cells;
  for (const auto& value : values_) cells.push_back(csv_cell(value(p)));
  return fmt::format("{}\n", fmt::join(cells, ","));
}

}  // namespace gradmeter::report
