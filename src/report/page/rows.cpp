#include "report/page/rows.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>

#include "analysis/merged.hpp"
#include "core/format.hpp"
#include "report/cells.hpp"
#include "report/tables.hpp"

namespace gradmeter::report {
namespace {

using core::Factor;
using core::Json;

/// Numbers along which curves run.
constexpr std::array axes{Factor::ranks,          Factor::nodes,        Factor::ranks_per_node,
                          Factor::batch_per_rank, Factor::batch_global, Factor::size_bytes};

double six_digits(double v) { return std::isfinite(v) ? std::stod(fmt::format("{:.6g}", v)) : v; }

void put(Json& row, const std::string& key, const core::Value& value) {
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
    void operator()(const core::Spans& spans) const {
      Json list = Json::array();
      for (const core::Span& s : spans) {
        Json one{{"name", s.name}, {"begin_s", six_digits(s.begin_s)}, {"end_s", six_digits(s.end_s)}};
        if (s.ready_s) one["ready_s"] = six_digits(*s.ready_s);
        if (s.bytes) one["bytes"] = *s.bytes;
        list.push_back(std::move(one));
      }
      to[key] = std::move(list);
    }
  };
  std::visit(Writer{row, key}, value);
}

/// Per experiment, the values that each factor takes, where it applies.
using Values = std::map<std::string, std::array<std::set<std::string>, core::factor_count>>;

/// One that a point lacks is a value too: with `gradients=bf16` and without are two curves. But one rank, and ranks
/// that exchange nothing, lack what belongs to an exchange, and are no curve of their own for that.
void add_values(std::array<std::set<std::string>, core::factor_count>& to, const core::Factors& factors) {
  const bool exchanges = integer(factors[Factor::ranks]) != 1 && text(factors[Factor::strategy]) != "independent";
  for (std::size_t i = 0; i < core::factor_count; ++i) {
    const core::Value& value = factors[static_cast<Factor>(i)];
    if (exchanges || !core::is_null(value)) to[i].insert(core::is_null(value) ? "" : core::to_text(value));
  }
}

Values values_of(std::span<const analysis::Side> sides) {
  Values out;
  for (const auto& side : sides) {
    for (const auto& run : side.runs) {
      for (const auto& point : run.points) add_values(out[point.experiment], point.factors);
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

Json row_of(const core::Point& point, std::size_t source) {
  Json row;
  row["experiment"] = point.experiment;
  row["status"] = core::name(point.status);
  if (!point.reason.empty()) row["reason"] = point.reason;
  row["source"] = source;
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

/// Whether a curve of `row` may begin at `start`: it is the same but for factors that one rank does not have, and
/// ranks.
bool begins_at(const Json& row, const Json& start, const std::vector<std::string>& varying) {
  static const std::set<std::string> of_several{"ranks",   "nodes",   "ranks_per_node", "batch_global",
                                                "scaling", "mapping", "placement"};
  return std::all_of(varying.begin(), varying.end(), [&](const std::string& key) {
    return of_several.contains(key) || !start.contains(key) || (row.contains(key) && row[key] == start[key]);
  });
}

std::vector<Json> find_curve_starts(const RowTable& table) {
  std::vector<const Json*> starts, others;
  for (const Json& row : table.rows) {
    if (row.at("experiment") != "scale" || row.at("status") != "ok" || !row.contains("ranks")) continue;
    (row["ranks"] == 1 ? starts : others).push_back(&row);
  }
  std::vector<Json> out;
  std::set<std::string> done;
  for (const Json* row : others) {
    const Json batch = row->value("batch_per_rank", Json());
    if (!done.insert(fmt::format("{}|{}", row->at("series").get<std::string>(), batch.dump())).second) continue;
    const auto start = std::find_if(starts.begin(), starts.end(), [&](const Json* s) {
      return s->at("source") == row->at("source") && s->value("batch_per_rank", Json()) == batch &&
             begins_at(*row, *s, table.varying);
    });
    if (start == starts.end() || (*start)->at("series") == row->at("series")) continue;
    out.push_back(**start);
    out.back()["series"] = row->at("series");
  }
  return out;
}

/// `rows` are those of the points.
void add_codec_gains(std::span<const analysis::MergedPoint> points, std::span<Json> rows) {
  std::vector<const core::Point*> all;
  std::map<const core::Point*, Json*> row_of_point;
  for (std::size_t i = 0; i < points.size(); ++i) {
    all.push_back(&points[i].point);
    row_of_point[all.back()] = &rows[i];
  }
  for (const CodecPair& pair : codec_pairs(all)) put(*row_of_point[pair.coded], "codec_gain", pair.gain());
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
  return value.is_null() ? "" : csv_quoted(value.is_string() ? value.get<std::string>() : value.dump());
}

/// The side's points, launches merged or each for itself.
std::vector<analysis::MergedPoint> points_of(const analysis::Side& side, Launches launches) {
  if (launches == Launches::merged) return analysis::merge_launches(side.runs);
  std::vector<analysis::MergedPoint> out;
  for (const auto& run : side.runs)
    for (const auto& point : run.points) out.push_back({point, 1});
  return out;
}

}  // namespace

RowTable make_rows(std::span<const analysis::Side> sides, Launches launches) {
  const Values values = values_of(sides);
  RowTable out;
  for (std::size_t s = 0; s < sides.size(); ++s) {
    const auto points = points_of(sides[s], launches);
    for (const auto& [point, count, sources] : points) {
      Json row = row_of(point, s);
      row["series"] = series_of(point, values, sides.size() > 1 ? sides[s].name : std::string());
      row["launches"] = count;
      out.rows.push_back(std::move(row));
    }
    add_codec_gains(points, std::span(out.rows).last(points.size()));
  }
  for (std::size_t i = 0; i < core::factor_count; ++i) {
    const bool differs =
        std::any_of(values.begin(), values.end(), [i](const auto& v) { return v.second[i].size() > 1; });
    if (differs) out.varying.emplace_back(core::name(static_cast<Factor>(i)));
  }
  if (launches == Launches::merged) out.curve_starts = find_curve_starts(out);
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
  const auto cells_of = [&columns](const std::vector<Json>& rows) {
    Json out = Json::array();
    for (const Json& row : rows) {
      Json cells = Json::array();
      for (const auto& column : columns) cells.push_back(row.contains(column) ? row[column] : Json());
      out.push_back(std::move(cells));
    }
    return out;
  };
  return {{"columns", columns}, {"rows", cells_of(table.rows)}, {"curve_starts", cells_of(table.curve_starts)}};
}

std::string rows_csv(const RowTable& table) {
  auto columns = columns_of(table);
  const auto has_spans = [&](const std::string& column) {
    return std::ranges::any_of(table.rows, [&](const Json& r) { return r.contains(column) && r[column].is_array(); });
  };
  std::erase_if(columns, has_spans);
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
