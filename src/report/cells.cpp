#include "report/cells.hpp"

#include <algorithm>
#include <cmath>
#include <variant>

#include "core/disturbance.hpp"
#include "core/format.hpp"
#include "core/name.hpp"
#include "core/printable.hpp"

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
  if (const auto n = count(core::is_mostly_disturbed); n > 0) causes.push_back(fmt::format("{} in most blocks", n));
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
  std::string out;
  for (const char c : core::printable(text)) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
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
  return fmt::format("machine: {:.0f} % steady where it was least; of {} blocks {} are disturbed; {} were left out\n{}",
                     100 * std::max(0.0, least), blocks, disturbed, left_out, disturbed_points(points));
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
    auto name = core::name_of(text(p.factors[of]));
    auto& had = by_base[name.base];
    if (std::ranges::none_of(had, [&](const auto& n) { return n.canonical() == name.canonical(); }))
      had.push_back(name);
  }
  Labels out;
  for (const auto& [base, names] : by_base) {
    for (const auto& name : names) {
      core::ParsedName shorter = name;
      // A parameter that is the same in all of them is left out.
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
  const std::string codec = text(p.factors[Factor::codec]);
  if (codec == "none" || codec == "-") return out;
  const auto label = labels.find(codec);
  return fmt::format("{} {}", out, label == labels.end() ? codec : label->second);
}

core::Summary CodecPair::gain() const {
  const auto* of_plain = plain->metrics[Metric::time_s].as<core::Summary>();
  const auto* of_coded = coded->metrics[Metric::time_s].as<core::Summary>();
  if (!of_plain || !of_coded) {
    const double ratio = plain->metrics.number(Metric::time_s) / coded->metrics.number(Metric::time_s);
    return {.median = ratio, .ci95_low = std::nan(""), .ci95_high = std::nan("")};
  }
  return {.median = of_plain->median / of_coded->median,
          .ci95_low = of_plain->ci95_low / of_coded->ci95_high,
          .ci95_high = of_plain->ci95_high / of_coded->ci95_low};
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
  for (const Point* p : coded) {
    if (const auto found = plain.find(key_without_codec(*p)); found != plain.end()) out.push_back({p, found->second});
  }
  return out;
}

std::vector<NamedPoints> by_name(std::span<const Point> points, const std::function<std::string(const Point&)>& name) {
  std::vector<NamedPoints> out;
  for (const Point& p : points) {
    const std::string own = name(p);
    auto it = std::find_if(out.begin(), out.end(), [&](const auto& named) { return named.name == own; });
    if (it == out.end()) it = out.insert(out.end(), {own, {}});
    it->points.push_back(&p);
  }
  return out;
}

}  // namespace gradmeter::report
