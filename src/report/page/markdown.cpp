#include "report/page/markdown.hpp"

#include <algorithm>
#include <array>
#include <set>

#include "core/format.hpp"
#include "report/page/sentences.hpp"

namespace gradmeter::report {
namespace {

using core::Json;

constexpr std::size_t most_rows = 40;
/// Metrics worth a column, where an experiment has them.
constexpr std::array main_metrics{"time_s",   "efficiency", "bound_by",  "busbw_bytes_per_s", "flops_per_s",
                                  "roofline", "error",      "wire_bits", "accuracy",          "loss"};

/// Pipes, line ends and angle brackets are no Markdown of ours.
std::string markdown_cell(const Json& value) {
  const std::string text = value.is_null() ? "" : value.is_string() ? value.get<std::string>() : value.dump();
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '|':
        out += "\\|";
        break;
      case '<':
        out += "&lt;";
        break;
      case '\n':
      case '\r':
        out += ' ';
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string markdown_table(const std::string& experiment, const RowTable& all) {
  std::vector<const Json*> rows;
  for (const Json& row : all.rows)
    if (row.at("experiment") == experiment) rows.push_back(&row);
  std::vector<std::string> columns;
  const auto add_if = [&](const std::string& key, std::size_t least) {
    std::set<Json> values;
    for (const Json* row : rows) values.insert(row->contains(key) ? row->at(key) : Json());
    values.erase(Json());
    if (values.size() >= least) columns.push_back(key);
  };
  for (const auto& factor : all.varying) add_if(factor, 2);
  for (const char* metric : main_metrics) add_if(metric, 1);
  std::vector<std::string> heads;
  for (const auto& column : columns) heads.push_back(column_words(column));
  std::string out = fmt::format("### {}\n\n| {} |\n|", experiment, fmt::join(heads, " | "));
  for (std::size_t i = 0; i < columns.size(); ++i) out += " --- |";
  out += '\n';
  for (std::size_t r = 0; r < std::min(most_rows, rows.size()); ++r) {
    out += '|';
    for (const auto& column : columns)
      out += fmt::format(" {} |", rows[r]->contains(column) ? markdown_cell(rows[r]->at(column)) : "");
    out += '\n';
  }
  if (rows.size() > most_rows) out += fmt::format("\n{} more rows\n", rows.size() - most_rows);
  out += '\n';
  return out;
}

}  // namespace

std::string markdown(std::span<const analysis::Side> sides, std::span<const analysis::Comparison> comparisons) {
  std::string out = "## gradmeter\n\n";
  for (const auto& sentence : sentences(sides, comparisons)) out += fmt::format("- {}\n", markdown_cell(sentence));
  out += '\n';
  const RowTable rows = make_rows(sides);
  std::vector<std::string> experiments;
  for (const Json& row : rows.rows) {
    const auto experiment = row.at("experiment").get<std::string>();
    if (std::find(experiments.begin(), experiments.end(), experiment) == experiments.end())
      experiments.push_back(experiment);
  }
  for (const auto& experiment : experiments) out += markdown_table(experiment, rows);
  return out;
}

}  // namespace gradmeter::report
