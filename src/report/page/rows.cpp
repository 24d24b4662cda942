// SPDX-License-Identifier: Apache-2.0
#include "report/page/rows.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <ostream>
#include <unordered_map>
#include <utility>
#include <variant>

#include "core/format.hpp"
#include "core/result.hpp"
#include "report/cells.hpp"

namespace gradmeter::report {
namespace {

using core::Factor;
using core::Json;

/// The number rounded to six digits, as the page shows it.
double six_digits(double v) {
  if (!std::isfinite(v)) return v;
  std::array<char, 32> text{};
  const auto end = fmt::format_to(text.data(), "{:.6g}", v);
  double out = v;
  std::from_chars(text.data(), end, out);
  return out;
}

/// The number as a value; null if it is not finite.
core::Value shown(double v) { return std::isfinite(v) ? core::Value(v) : core::Value(); }

/// The endings of columns' names and what they stand for in a summary.
constexpr std::array interval_ends{core::Statistic{"_ci95_low", &core::Summary::ci95_low},
                                   core::Statistic{"_ci95_high", &core::Summary::ci95_high}};

/// The columns of a metric's interval.
const std::array<std::string, interval_ends.size()>& interval_columns(core::Metric metric) {
  static const auto columns = [] {
    std::array<std::array<std::string, interval_ends.size()>, core::metric_count> out;
    for (std::size_t m = 0; m < out.size(); ++m)
      for (std::size_t i = 0; i < interval_ends.size(); ++i)
        out[m][i] = fmt::format("{}{}", core::name(static_cast<core::Metric>(m)), interval_ends[i].key);
    return out;
  }();
  return columns[static_cast<std::size_t>(metric)];
}

using VisitCell = std::function<void(std::string_view, const core::Value&)>;

void show_number(std::string_view column, double v, const VisitCell& visit) {
  if (std::isfinite(v)) visit(column, v);
}

void show(std::string_view column, const core::Value& value, const VisitCell& visit) {
  const auto* real = value.as<double>();
  if (!real || std::isfinite(*real)) visit(column, value);
}

void show_metric(core::Metric metric, const core::Value& value, const VisitCell& visit) {
  const auto* summary = value.as<core::Summary>();
  if (!summary) {
    show(core::name(metric), value, visit);
    return;
  }
  show_number(core::name(metric), summary->median, visit);
  const auto& columns = interval_columns(metric);
  for (std::size_t i = 0; i < columns.size(); ++i) show_number(columns[i], summary->*interval_ends[i].value, visit);
}

/// Appends the number as JSON, with six digits.
void append_number(std::string& to, double v) {
  std::array<char, 32> text{};
  const char* end = fmt::format_to(text.data(), "{:.6g}", v);
  const std::string_view digits(text.data(), static_cast<std::size_t>(end - text.data()));
  if (digits.find("e+") != std::string_view::npos) {
    to += core::json_text(Json(six_digits(v)));  // JSON text has no exponent below 1e15
    return;
  }
  to += digits;
  if (digits.find_first_of(".e") == std::string_view::npos) to += ".0";
}

void append_text(std::string& to, std::string_view text) {
  const bool is_plain =
      std::ranges::all_of(text, [](char c) { return c >= ' ' && c < 127 && c != '"' && c != '\\' && c != '<'; });
  if (is_plain) {
    to += '"';
    to += text;
    to += '"';
  } else {
    to += script_json(Json(text));
  }
}

void append_spans(std::string& to, const core::Spans& spans) {
  const auto add = [&to](std::string_view key, double seconds) {
    to += key;
    append_number(to, seconds);
  };
  char before = '[';
  for (const core::Span& s : spans) {
    to += before;
    to += "{\"name\":";
    append_text(to, s.name);
    add(",\"begin_s\":", s.begin_s);
    add(",\"end_s\":", s.end_s);
    if (s.ready_s) add(",\"ready_s\":", *s.ready_s);
    if (s.bytes) to += fmt::format(",\"bytes\":{}", *s.bytes);
    to += '}';
    before = ',';
  }
  to += spans.empty() ? "[]" : "]";
}

void append(std::string& to, const core::Value& value) {
  if (const auto* real = value.as<double>()) {
    append_number(to, *real);
  } else if (const auto* text = value.as<std::string>()) {
    append_text(to, *text);
  } else if (const auto* spans = value.as<core::Spans>()) {
    append_spans(to, *spans);
  } else {
    to += core::to_text(value);
  }
}

/// The point's value of the factor or metric with this key; null: there is no such key.
const core::Value* value_of(const core::Point& point, std::string_view key) {
  static const auto keys = [] {
    std::unordered_map<std::string_view, std::variant<Factor, core::Metric>> out;
    for (std::size_t i = 0; i < core::factor_count; ++i)
      out.emplace(name(static_cast<Factor>(i)), static_cast<Factor>(i));
    for (std::size_t i = 0; i < core::metric_count; ++i)
      out.emplace(name(static_cast<core::Metric>(i)), static_cast<core::Metric>(i));
    return out;
  }();
  const auto found = keys.find(key);
  if (found == keys.end()) return nullptr;
  if (const auto* factor = std::get_if<Factor>(&found->second)) return &point.factors[*factor];
  return &point.metrics[std::get<core::Metric>(found->second)];
}

/// All columns that rows of a table have, in the order in which they first appear.
class TableColumns {
 public:
  explicit TableColumns(std::span<const PageRow> rows) {
    for (const PageRow& row : rows) {
      row.each([this](std::string_view column, const core::Value& value) {
        auto found = places_.find(column);
        if (found == places_.end()) {
          found = places_.emplace(column, names_.size()).first;
          names_.push_back(column);
          has_spans_.push_back(false);
        }
        if (value.as<core::Spans>()) has_spans_[found->second] = true;
      });
    }
  }
  const std::vector<std::string_view>& names() const { return names_; }
  bool has_spans(std::size_t place) const { return has_spans_[place]; }
  /// Calls visit(place, value) for each column of the row that the table has. A start of a curve may have further
  /// columns.
  template <class Visit>
  void each(const PageRow& row, const Visit& visit) const {
    row.each([&](std::string_view column, const core::Value& value) {
      if (const auto found = places_.find(column); found != places_.end()) visit(found->second, value);
    });
  }

 private:
  std::vector<std::string_view> names_;  // literals, and names of keys
  std::vector<bool> has_spans_;
  std::unordered_map<std::string_view, std::size_t> places_;
};

std::string csv_value(const core::Value& value) {
  const auto* text = value.as<std::string>();
  return text ? csv_text(*text) : csv_quoted(core::json_text(to_json(value)));
}

}  // namespace

void PageRow::put(std::string_view column, core::Value value) {
  if (value.is_null()) return;
  for (auto* cells : {&first_, &last_}) {
    for (auto& [cell_column, cell] : *cells) {
      if (cell_column != column) continue;
      cell = std::move(value);
      return;
    }
  }
  last_.emplace_back(column, std::move(value));
}

void PageRow::put_first(std::string_view column, core::Value value) { first_.emplace_back(column, std::move(value)); }

void PageRow::put_number(std::string_view column, double number) { put(column, shown(number)); }

const core::Value* PageRow::find(std::string_view column) const {
  for (const auto* cells : {&last_, &first_})
    for (const auto& [cell_column, value] : *cells)
      if (cell_column == column) return &value;
  return value_of(point, column);
}

core::Value PageRow::at(std::string_view column) const {
  if (column == "experiment") return point.experiment;
  if (column == "status") return std::string(core::name(point.status));
  const core::Value* found = find(column);
  if (column == "reason" && !found) return point.reason.empty() ? core::Value() : core::Value(point.reason);
  for (const auto& [ending, end] : interval_ends) {
    if (!column.ends_with(ending) || (found && !found->is_null())) continue;
    const core::Value* whole = value_of(point, column.substr(0, column.size() - ending.size()));
    const auto* summary = whole ? whole->as<core::Summary>() : nullptr;
    return summary ? shown(summary->*end) : core::Value();
  }
  if (!found) return {};
  if (const auto* summary = found->as<core::Summary>()) return shown(summary->median);
  const auto* real = found->as<double>();
  return real ? shown(*real) : *found;
}

bool PageRow::has(std::string_view column) const {
  const core::Value* found = find(column);
  if (!found) return !at(column).is_null();
  if (const auto* summary = found->as<core::Summary>()) return std::isfinite(summary->median);
  const auto* real = found->as<double>();
  return real ? std::isfinite(*real) : !found->is_null() || !at(column).is_null();
}

std::string PageRow::text(std::string_view column) const {
  const core::Value* found = find(column);
  const core::Value other = found ? core::Value() : at(column);
  const auto* text = (found ? *found : other).as<std::string>();
  return text ? *text : std::string();
}

double PageRow::number(std::string_view column) const {
  const core::Value value = at(column);
  if (const auto* whole = value.as<std::int64_t>()) return static_cast<double>(*whole);
  const auto* real = value.as<double>();
  return real ? six_digits(*real) : std::numeric_limits<double>::quiet_NaN();
}

std::int64_t PageRow::whole(std::string_view column) const { return integer(at(column)); }

void PageRow::each(const std::function<void(std::string_view, const core::Value&)>& visit) const {
  visit("experiment", point.experiment);
  visit("status", std::string(core::name(point.status)));
  if (!point.reason.empty()) visit("reason", point.reason);
  for (const auto& [column, value] : first_) visit(column, value);
  point.factors.each([&](Factor f, const core::Value& value) { show(core::name(f), value, visit); });
  point.metrics.each([&](core::Metric m, const core::Value& value) { show_metric(m, value, visit); });
  for (const auto& [column, value] : last_) visit(column, value);
}

std::string script_json(const Json& json) {
  std::string out;
  for (const char c : core::json_text(json)) {
    if (c == '<') {
      out += "\\u003c";
    } else {
      out += c;
    }
  }
  return out;
}

Json to_json(const core::Value& value) {
  if (const auto* truth = value.as<bool>()) return *truth;
  if (const auto* whole = value.as<std::int64_t>()) return *whole;
  if (const auto* real = value.as<double>()) return six_digits(*real);
  if (const auto* text = value.as<std::string>()) return *text;
  if (const auto* summary = value.as<core::Summary>()) return six_digits(summary->median);
  const auto* spans = value.as<core::Spans>();
  if (!spans) return nullptr;
  Json list = Json::array();
  for (const core::Span& s : *spans) {
    Json one{{"name", s.name}, {"begin_s", six_digits(s.begin_s)}, {"end_s", six_digits(s.end_s)}};
    if (s.ready_s) one["ready_s"] = six_digits(*s.ready_s);
    if (s.bytes) one["bytes"] = *s.bytes;
    list.push_back(std::move(one));
  }
  return list;
}

Json to_json(const PageRow& row) {
  Json out = Json::object();
  row.each([&out](std::string_view column, const core::Value& value) { out[std::string(column)] = to_json(value); });
  return out;
}

void write_compact(const PageTable& table, std::ostream& to) {
  const TableColumns columns(table.rows);
  std::string out = "{\"columns\":";
  char before = '[';
  for (const std::string_view name : columns.names()) {
    out += before;
    append_text(out, name);
    before = ',';
  }
  out += columns.names().empty() ? "[]" : "]";
  std::vector<std::string> cells(columns.names().size());
  const auto add_rows = [&](const std::vector<PageRow>& rows) {
    char before_row = '[';
    for (const PageRow& row : rows) {
      for (std::string& cell : cells) cell = "null";
      columns.each(row, [&cells](std::size_t place, const core::Value& value) {
        cells[place].clear();
        append(cells[place], value);
      });
      out += before_row;
      out += '[';
      for (const std::string& cell : cells) {
        out += cell;
        out += ',';
      }
      out.back() = ']';
      before_row = ',';
      to << out;
      out.clear();
    }
    out += rows.empty() ? "[]" : "]";
  };
  out += ",\"rows\":";
  add_rows(table.rows);
  out += ",\"curve_starts\":";
  add_rows(table.curve_starts);
  to << out << '}';
}

std::string column_words(std::string_view key) {
  static const std::map<std::string_view, std::string_view> known{{"batch_per_rank", "mini-batch of a rank"},
                                                                  {"batch_global", "mini-batch of all ranks"},
                                                                  {"ranks_per_node", "ranks a node"},
                                                                  {"size_bytes", "buffer of a rank [B]"},
                                                                  {"bucket_bytes", "size of buckets [B]"},
                                                                  {"accumulate", "micro-batches"},
                                                                  {"dtype", "element type"},
                                                                  {"accum_dtype", "element type of sums"},
                                                                  {"op", "operation"},
                                                                  {"reduction", "time over ranks"},
                                                                  {"time_s", "time [s]"},
                                                                  {"busbw_bytes_per_s", "bus bandwidth [B/s]"},
                                                                  {"flops_per_s", "rate [FLOP/s]"},
                                                                  {"error", "relative error"},
                                                                  {"wire_bits", "bits an element"}};
  const auto found = known.find(key);
  std::string words(found == known.end() ? key : found->second);
  std::ranges::replace(words, '_', ' ');
  return words;
}

std::string rows_csv(const PageTable& table) {
  const TableColumns columns(table.rows);
  std::string out;
  const auto add_line = [&](const auto& cells) {
    std::string_view comma;
    for (std::size_t i = 0; i < cells.size(); ++i) {
      if (columns.has_spans(i)) continue;
      out += comma;
      out += cells[i];
      comma = ",";
    }
    out += '\n';
  };
  add_line(columns.names());
  std::vector<std::string> cells(columns.names().size());
  for (const PageRow& row : table.rows) {
    for (std::string& cell : cells) cell.clear();
    columns.each(row, [&](std::size_t i, const core::Value& value) {
      if (!columns.has_spans(i)) cells[i] = csv_value(value);
    });
    add_line(cells);
  }
  return out;
}

}  // namespace gradmeter::report
