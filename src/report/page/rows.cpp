#include "report/page/rows.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>

#include "core/format.hpp"
#include "report/tables.hpp"

namespace gradmeter::report {
namespace {

using core::Factor;
using core::Json;

/// Numbers along which curves run.
constexpr std::array axes{Factor::ranks,          Factor::nodes,        Factor::ranks_per_node,
                          Factor::batch_per_rank, Factor::batch_global, Factor::size_bytes};

double six_digits(double v) { return std::isfinite(v) ? std::stod(fmt::format("{:.6g}", v)) : v; }

void put(Json& row, std::string key, const core::Value& value) {
  struct Writer {
    Json& to;
    const std::string& key;
    void operator()(std::monostate) const {}
    void operator()(bool v) const { to[key] = v; }
    void operator()(std::int64_t v) const { to[key] = v; }
    void operator()(double v) const {
      if (std::isfinite(v)) to[key] = six_digits(v);
    }
    void operator()(const std::string& v) const { to[key] = v; }
    void operator()(const core::Summary& s) const {
      (*this)(s.median);
      const std::string low = key + "_ci95_low", high = key + "_ci95_high";
      Writer{to, low}(s.ci95_low);
      Writer{to, high}(s.ci95_high);
    }
  };
  std::visit(Writer{row, key}, value);
}

/// Per experiment, the values that each factor takes.
using Values = std::map<std::string, std::array<std::set<std::string>, core::factor_count>>;

Values values_of(std::span<const NamedRun> runs) {
  Values out;
  for (const auto& [source, run] : runs) {
    for (const auto& point : run.points) {
      for (std::size_t i = 0; i < core::factor_count; ++i) {
        out[point.experiment][i].insert(core::to_text(point.factors[static_cast<Factor>(i)]));
      }
    }
  }
  return out;
}

std::string series_of(const core::Point& point, const Values& values, const std::string& source) {
  std::string out = source;
  const auto& of_experiment = values.at(point.experiment);
  for (std::size_t i = 0; i < core::factor_count; ++i) {
    const auto factor = static_cast<Factor>(i);
    if (of_experiment[i].size() < 2 || std::find(axes.begin(), axes.end(), factor) != axes.end()) continue;
    const core::Value& value = point.factors[factor];
    if (core::is_null(value)) continue;
    const auto* truth = std::get_if<bool>(&value);
    if (truth && !*truth) continue;
    out += fmt::format("{}{}", out.empty() ? "" : " ", truth ? std::string(core::name(factor)) : core::to_text(value));
  }
  return out.empty() ? "measured" : out;
}

Json row_of(const core::Point& point, std::size_t run) {
  Json row;
  row["experiment"] = point.experiment;
  row["status"] = core::name(point.status);
  if (!point.reason.empty()) row["reason"] = point.reason;
  row["run"] = run;
  for (std::size_t i = 0; i < core::factor_count; ++i) {
    const auto f = static_cast<Factor>(i);
    put(row, std::string(core::name(f)), point.factors[f]);
  }
  for (std::size_t i = 0; i < core::metric_count; ++i) {
    const auto m = static_cast<core::Metric>(i);
    put(row, std::string(core::name(m)), point.metrics[m]);
  }
  return row;
}

std::vector<std::string> columns_of(const RowTable& table) {
  std::vector<std::string> out;
  std::set<std::string> known;
  for (const Json& row : table.rows) {
    for (const auto& [key, value] : row.items()) {
      if (known.insert(key).second) out.push_back(key);
    }
  }
  return out;
}

std::string csv_text(const Json& value) {
  if (value.is_null()) return "";
  if (!value.is_string()) return value.dump();
  std::string text = value.get<std::string>();
  if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

}  // namespace

RowTable make_rows(std::span<const NamedRun> runs) {
  const Values values = values_of(runs);
  std::set<std::string> sources, varying;
  for (const auto& named : runs) sources.insert(named.source);
  RowTable out;
  for (std::size_t r = 0; r < runs.size(); ++r) {
    for (const auto& point : runs[r].run.points) {
      Json row = row_of(point, r);
      row["series"] = series_of(point, values, sources.size() > 1 ? runs[r].source : std::string());
      out.rows.push_back(std::move(row));
    }
  }
  for (std::size_t i = 0; i < core::factor_count; ++i) {
    const bool differs =
        std::any_of(values.begin(), values.end(), [i](const auto& v) { return v.second[i].size() > 1; });
    if (differs) out.varying.emplace_back(core::name(static_cast<Factor>(i)));
  }
  return out;
}

void add_comparison(RowTable& table, const analysis::Comparison& comparison) {
  for (const auto& p : comparison.points) {
    Json row{{"experiment", "compare"},
             {"status", "ok"},
             {"series", fmt::format("{} against {}", comparison.b_name, comparison.a_name)}};
    row["point"] = comparison_label(comparison, p);
    row["verdict"] = analysis::name(p.verdict);
    if (!p.reason.empty()) row["reason"] = p.reason;
    put(row, "ratio", p.ratio.ratio);
    put(row, "ratio_ci95_low", p.ratio.ci95_low);
    put(row, "ratio_ci95_high", p.ratio.ci95_high);
    put(row, "q_value", p.q_value);
    table.rows.push_back(std::move(row));
  }
}

Json compact(const RowTable& table) {
  const auto columns = columns_of(table);
  Json rows = Json::array();
  for (const Json& row : table.rows) {
    Json cells = Json::array();
    for (const auto& column : columns) cells.push_back(row.contains(column) ? row[column] : Json());
    rows.push_back(std::move(cells));
  }
  return {{"columns", columns}, {"rows", std::move(rows)}};
}

std::string rows_csv(const RowTable& table) {
  const auto columns = columns_of(table);
  std::string out = fmt::format("{}\n", fmt::join(columns, ","));
  for (const Json& row : table.rows) {
    std::string_view comma;
    for (const auto& column : columns) {
      out += fmt::format("{}{}", comma, csv_text(row.contains(column) ? row[column] : Json()));
      comma = ",";
    }
    out += '\n';
  }
  return out;
}

}  // namespace gradmeter::report
