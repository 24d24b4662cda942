#include "report/page/markdown.hpp"

#include <algorithm>
#include <array>
#include <set>

#include "core/format.hpp"
#include "report/page/sentences.hpp"

namespace gradmeter::report {
namespace {

constexpr std::size_t most_rows = 40;
/// Metrics worth a column, where an experiment has them.
constexpr std::array main_metrics{"time_s",   "efficiency", "bound_by",  "busbw_bytes_per_s", "flops_per_s",
                                  "roofline", "error",      "wire_bits", "accuracy",          "loss"};

/// Pipes, line ends and angle brackets are no Markdown of ours.
std::string markdown_cell(const std::string& text) {
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
  std::vector<const Row*> rows;
  for (const Row& row : all.rows)
    if (row.point.experiment == experiment) rows.push_back(&row);
  std::vector<std::string_view> columns;
  const auto add_if = [&](std::string_view key, std::size_t least) {
    std::set<std::string> values;
    for (const Row* row : rows)
      if (const core::Value value = row->at(key); !value.is_null()) values.insert(core::to_text(value));
    if (values.size() >= least) columns.push_back(key);
  };
  for (const core::Factor factor : all.varying) add_if(core::name(factor), 2);
  for (const char* metric : main_metrics) add_if(metric, 1);
  std::vector<std::string> heads;
  for (const auto& column : columns) heads.push_back(column_words(column));
  std::string out = fmt::format("### {}\n\n| {} |\n|", experiment, fmt::join(heads, " | "));
  for (std::size_t i = 0; i < columns.size(); ++i) out += " --- |";
  out += '\n';
  for (std::size_t r = 0; r < std::min(most_rows, rows.size()); ++r) {
    out += '|';
    for (const auto& column : columns) {
      const core::Value value = rows[r]->at(column);
      const auto* text = value.as<std::string>();
      out += fmt::format(" {} |", value.is_null() ? "" : markdown_cell(text ? *text : to_json(value).dump()));
    }
    out += '\n';
  }
  if (rows.size() > most_rows) out += fmt::format("\n{} more rows\n", rows.size() - most_rows);
  out += '\n';
  return out;
}

}  // namespace

std::string markdown(const RowTable& rows, const Said& said) {
  std::string out = "## gradmeter\n\n";
  for (const auto& sentence : said.sentences) out += fmt::format("- {}\n", markdown_cell(sentence));
  out += '\n';
  std::vector<std::string> experiments;
  for (const Row& row : rows.rows) {
    const std::string& experiment = row.point.experiment;
    if (experiment != compared && std::find(experiments.begin(), experiments.end(), experiment) == experiments.end())
      experiments.push_back(experiment);
  }
  for (const auto& experiment : experiments) out += markdown_table(experiment, rows);
  return out;
}

}  // namespace gradmeter::report
