// SPDX-License-Identifier: Apache-2.0
#include "report/page/page.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <ostream>
#include <set>
#include <utility>

#include "core/format.hpp"
#include "core/result.hpp"
#include "report/cells.hpp"
#include "report/comparison_table.hpp"
#include "report/page/charts.hpp"

namespace gradmeter::report {
namespace {

using core::Json;

/// The library that draws charts, embedded at configure time; empty in a build without it, whose pages have tables
/// only.
std::string_view chart_library() { return page_file("library"); }

std::string figure_list(const Headline& headline) {
  if (headline.figures.empty()) return "";
  std::string out = "<dl class=\"figures\">\n";
  for (const auto& f : headline.figures) {
    const std::string interval = f.interval.empty() ? "" : fmt::format(" <small>{}</small>", markup_text(f.interval));
    out += fmt::format("<div><dt>{}</dt><dd class=\"value\">{}{}</dd></div>\n", markup_text(f.what),
                       markup_text(f.value), interval);
  }
  return out + fmt::format("</dl>\n<p class=\"summary\">{}</p>\n", markup_text(headline.of));
}

/// The large figures, the most important sentence, and what to run next.
std::string summary_section(const PageTable& table, const ReportText& summary) {
  std::string out =
      "<section aria-labelledby=\"lead-head\">\n<h2 id=\"lead-head\">In short</h2>\n" + figure_list(headline(table));
  if (!summary.sentences.empty())
    out += fmt::format("<p class=\"verdict\">{}</p>\n", markup_text(summary.sentences.front()));
  if (!summary.next.empty())
    out += fmt::format("<p class=\"next\">Next: <code>{}</code></p>\n", markup_text(summary.next));
  return out + "</section>";
}

/// All sentences but the first, which stands at the top of the page.
std::string findings_list(const std::vector<std::string>& sentences) {
  if (sentences.size() < 2) return "";
  std::string out =
      "<section aria-labelledby=\"findings-head\">\n<h2 id=\"findings-head\">What else was found</h2>\n<ul "
      "class=\"findings\">\n";
  for (std::size_t i = 1; i < sentences.size(); ++i) out += fmt::format("<li>{}</li>\n", markup_text(sentences[i]));
  return out + "</ul>\n</section>";
}

std::string chart_figure(const Chart& c) {
  return fmt::format(
      "<figure id=\"figure-{0}\" aria-labelledby=\"title-{0}\">\n<h3 id=\"title-{0}\">{1}</h3>\n"
      "<details class=\"tools\"><summary aria-label=\"Download {1}\">Download</summary><div>"
      "<button type=\"button\" data-as=\"png\" aria-label=\"{1} as PNG\">PNG</button>"
      "<button type=\"button\" data-as=\"svg\" aria-label=\"{1} as SVG\">SVG</button>"
      "<button type=\"button\" data-as=\"csv\" aria-label=\"Data of {1} as CSV\">CSV</button></div></details>\n"
      "<div class=\"chart\" id=\"chart-{0}\"></div>\n<figcaption>{2}</figcaption>\n</figure>\n",
      c.name, markup_text(c.title), markup_text(c.about));
}

/// By column: its unit, if the page shows numbers of this unit scaled, or "share", if it shows them in percent.
Json units_of_columns() {
  Json out = Json::object();
  for (const auto& info : core::metric_table())
    if (info.unit == "s" || info.unit == "B/s" || info.unit == "FLOP/s") out[std::string(info.key)] = info.unit;
  for (const char* share : {"efficiency", "efficiency_node", "roofline", "accuracy", "accuracy_at_samples",
                            "accuracy_at_time", "steadiness", "noise_steal", "noise_run_delay"})
    out[share] = "share";
  return out;
}

/// By key: the words that filters and heads show, if they are not the key itself.
Json words_of_columns(std::span<const core::Factor> keys) {
  Json out = Json::object();
  const auto add = [&out](std::string_view key) {
    if (auto words = column_words(key); words != key) out[std::string(key)] = std::move(words);
  };
  for (const core::Factor f : keys) add(core::name(f));
  for (const auto& info : core::metric_table()) add(info.key);
  return out;
}

std::string chart_figures(const std::vector<Chart>& charts) {
  if (chart_library().empty())
    return "<p>This gradmeter was built without vl-convert, which draws the charts; the table has all points.</p>";
  if (charts.empty()) return "<p>No chart applies to these points; the table has all of them.</p>";
  std::string out;
  for (const auto& c : charts) out += chart_figure(c);
  return out;
}

/// A table of the points that were not measured or are not trusted, counted by status and reason.
std::string skipped(const PageTable& table) {
  std::map<std::pair<std::string, std::string>, std::size_t> reasons;
  for (const PageRow& row : table.rows)
    if (row.point.status != core::Status::ok) ++reasons[{std::string(core::name(row.point.status)), row.point.reason}];
  if (reasons.empty()) return "";
  std::string out =
      "<section aria-labelledby=\"skipped-head\">\n<h2 id=\"skipped-head\">What has no figure, and "
      "why</h2>\n<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Table of "
      "reasons\"><table><thead><tr><th scope=\"col\">points</th>"
      "<th scope=\"col\" class=\"word\">status</th><th scope=\"col\" class=\"word\">reason</th></tr></thead><tbody>\n";
  for (const auto& [what, count] : reasons) {
    out += fmt::format("<tr><td>{}</td><td class=\"word status\">{}</td><td class=\"word reason\">{}</td></tr>\n",
                       count, markup_text(what.first), markup_text(what.second));
  }
  return out + "</tbody></table></div>\n</section>";
}

/// "8 on 2 nodes, block"; imported runs may lack each of these.
std::string ranks_text(const core::RunInfo& info) {
  std::string out = info.ranks > 0 ? fmt::format("{}", info.ranks) : "";
  if (info.nodes > 0) out += fmt::format("{}on {}", out.empty() ? "" : " ", counted(info.nodes, "node"));
  if (!info.mapping.empty()) out += fmt::format("{}{}", out.empty() ? "" : ", ", info.mapping);
  return out;
}

std::string described(const std::string& source, const core::RunInfo& info) {
  std::string libraries;
  for (const auto& [name, version] : info.libraries)
    libraries += fmt::format("{}{} {}", libraries.empty() ? "" : ", ", name, version);
  std::string out = fmt::format("<h3>{}</h3>\n<dl>\n", markup_text(source));
  const std::pair<const char*, std::string> facts[] = {
      {"when", info.time},
      {"command", info.command},
      {"program", info.commit.empty() ? info.version : fmt::format("{} ({})", info.version, info.commit)},
      {"ranks", ranks_text(info)},
      {"hosts", fmt::format("{}", fmt::join(info.hosts, ", "))},
      {"processor", info.cpu},
      {"GPUs", fmt::format("{}", fmt::join(info.gpus, ", "))},
      {"MPI", info.mpi},
      {"binding", info.binding},
      {"libraries", libraries}};
  for (const auto& [name, value] : facts)
    if (!value.empty()) out += fmt::format("<dt>{}</dt><dd>{}</dd>\n", name, markup_text(value));
  return out + "</dl>\n";
}

/// Describes the runs; those of one side, command, machine and build are described once.
std::string machines(std::span<const analysis::Side> sides) {
  std::string out;
  std::set<std::string> told;
  for (const auto& side : sides) {
    for (const auto& run : side.runs) {
      const core::RunInfo& info = run.info;
      const bool is_new =
          told.insert(fmt::format("{}|{}|{}|{}", side.name, info.command, info.fingerprint, info.commit)).second;
      if (is_new) out += described(side.name, info);
    }
  }
  return out;
}

std::string title_of(std::span<const analysis::Side> sides) {
  std::set<std::string> experiments;
  for (const auto& side : sides)
    for (const auto& run : side.runs)
      for (const auto& point : run.points) experiments.insert(point.experiment);
  return fmt::format("gradmeter: {}", fmt::join(experiments, ", "));
}

std::string summary_of(std::span<const analysis::Side> sides, std::size_t points) {
  std::set<std::string> hosts, processors;
  std::size_t runs = 0;
  for (const auto& side : sides) {
    runs += side.runs.size();
    for (const auto& run : side.runs) {
      hosts.insert(run.info.hosts.begin(), run.info.hosts.end());
      if (!run.info.cpu.empty()) processors.insert(run.info.cpu);
    }
  }
  std::string out = fmt::format("{} of {}", counted(points, "point"), counted(runs, "run"));
  if (!hosts.empty()) out += fmt::format(" on {}", counted(hosts.size(), "host"));
  if (!processors.empty()) out += fmt::format(": {}", fmt::join(processors, ", "));
  return out;
}

}  // namespace

void write_html_page(const PageTable& table, const ReportText& summary, std::span<const analysis::Side> sides,
                     std::ostream& to) {
  const auto points = static_cast<std::size_t>(
      std::ranges::count_if(table.rows, [](const PageRow& row) { return row.point.experiment != compare_experiment; }));
  const auto charts = charts_for(table);
  Json varying = Json::array();
  for (const core::Factor f : table.varying) varying.push_back(core::name(f));
  Json specs = {{"charts", Json::array()},
                {"varying", varying},
                {"palette", palette},
                {"units", units_of_columns()},
                {"words", words_of_columns(table.varying)}};
  if (!chart_library().empty())
    for (const auto& c : charts) specs["charts"].push_back(to_json(c));
  const std::map<std::string, std::string> parts{
      {"title", markup_text(title_of(sides))},
      {"summary", markup_text(summary_of(sides, points))},
      {"style", std::string(page_file("style"))},
      {"headline", summary_section(table, summary)},
      {"findings", findings_list(summary.sentences)},
      {"charts", chart_figures(charts)},
      {"skipped", skipped(table)},
      {"runs", machines(sides)},
      {"footer", "Made by gradmeter report. The data are in this page: every chart and the table give them as CSV."},
      {"specs", script_json(specs)},
      {"library", std::string(chart_library())},
      {"fit", std::string(page_file("fit"))},
      {"script", std::string(page_file("page"))}};
  // The data are most of a large page and are written as they are made.
  constexpr std::string_view data = "{{data}}";
  const std::string_view frame = page_file("frame");
  const std::size_t at = frame.find(data);
  to << fill(frame.substr(0, at), parts);
  write_compact(table, to);
  to << fill(frame.substr(at + data.size()), parts);
}

namespace {

/// The sentences of the first three findings of each kind and experiment. The others are counted; --findings has them.
std::vector<std::string> first_sentences(std::span<const analysis::Finding> findings) {
  constexpr std::size_t most_of_a_kind = 3;
  std::map<std::pair<std::string, analysis::FindingKind>, std::size_t> sentence_counts;
  std::vector<std::string> out;
  std::size_t more = 0;
  for (const auto& finding : findings) {
    if (++sentence_counts[{finding.experiment, finding.kind}] > most_of_a_kind) {
      ++more;
    } else {
      out.push_back(finding.sentence);
    }
  }
  if (more > 0) out.push_back(fmt::format("And {} more: gradmeter report FILES --findings - has all of them.", more));
  return out;
}

}  // namespace

ReportText summarise_findings(std::span<const analysis::Side> sides,
                              std::span<const std::vector<analysis::Finding>> findings,
                              std::span<const analysis::Comparison> comparisons) {
  ReportText out;
  for (std::size_t i = 0; i < sides.size(); ++i) {
    for (const auto& sentence : first_sentences(findings[i]))
      out.sentences.push_back(sides.size() > 1 ? fmt::format("{}: {}", sides[i].name, sentence) : sentence);
    const auto advised = std::ranges::find_if(findings[i], [](const auto& f) { return !f.next.empty(); });
    const auto widest = std::ranges::max_element(sides[i].runs, {}, [](const core::Run& r) { return r.info.ranks; });
    if (out.next.empty() && advised != findings[i].end() && widest != sides[i].runs.end())
      out.next = analysis::with_ranks_of(widest->info, advised->next);
  }
  for (const auto& c : comparisons) {
    out.sentences.push_back(fmt::format("{} against {}: {}", c.b_name, c.a_name, comparison_summary(c)));
    out.sentences.push_back(comparison_verdict(c).sentence);
  }
  return out;
}

namespace {

constexpr std::size_t most_rows = 40;
/// Metrics worth a column, where an experiment has them.
constexpr std::array main_metrics{"time_s",   "efficiency", "bound_by",  "busbw_bytes_per_s", "flops_per_s",
                                  "roofline", "error",      "wire_bits", "accuracy",          "loss"};

/// The text as a cell: pipes, line ends and angle brackets would otherwise be read as Markdown or HTML.
std::string markdown_cell(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '|') {
      out += "\\|";
    } else if (c == '<') {
      out += "&lt;";
    } else {
      out += c == '\n' || c == '\r' ? ' ' : c;
    }
  }
  return out;
}

/// True if the row's figures say something: the time of a wrong result means nothing.
bool has_figures(const PageRow& row) {
  return row.point.status == core::Status::ok || row.point.status == core::Status::mistrusted;
}

/// "wrong: 3 elements out of bounds". The column `doubt` has the reason of a mistrusted row.
std::string status_cell(const core::Point& point) {
  const bool needs_reason = point.status != core::Status::ok && point.status != core::Status::mistrusted;
  return fmt::format("{}{}{}", core::name(point.status), needs_reason && !point.reason.empty() ? ": " : "",
                     needs_reason ? point.reason : "");
}

std::string markdown_table(const std::string& experiment, const PageTable& all) {
  std::vector<const PageRow*> rows;
  for (const PageRow& row : all.rows)
    if (row.point.experiment == experiment) rows.push_back(&row);
  std::vector<std::string_view> columns;
  std::set<std::string_view> figure_columns;
  const auto value_at = [&](const PageRow& row, std::string_view column) {
    if (column == "status") return core::Value(status_cell(row.point));
    return figure_columns.contains(column) && !has_figures(row) ? core::Value() : row.at(column);
  };
  const auto add_where_known = [&](std::string_view key) {
    if (std::ranges::any_of(rows, [&](const PageRow* row) { return !value_at(*row, key).is_null(); }))
      columns.push_back(key);
  };
  for (const char* origin : {"side", "machine", "build"}) add_where_known(origin);
  for (const core::Factor factor : all.varying) {
    // A row without the factor differs from a row with it.
    std::set<std::string> values;
    for (const PageRow* row : rows) values.insert(core::to_text(row->point.factors[factor]));
    if (values.size() > 1) columns.push_back(core::name(factor));
  }
  for (const char* metric : main_metrics) {
    figure_columns.insert(metric);
    add_where_known(metric);
  }
  if (std::ranges::any_of(rows, [](const PageRow* row) { return row->point.status != core::Status::ok; }))
    columns.emplace_back("status");
  add_where_known("doubt");
  std::vector<std::string> heads;
  for (const auto& column : columns) heads.push_back(column_words(column));
  std::string out = fmt::format("### {}\n\n| {} |\n|", experiment, fmt::join(heads, " | "));
  for (std::size_t i = 0; i < columns.size(); ++i) out += " --- |";
  out += '\n';
  for (std::size_t r = 0; r < std::min(most_rows, rows.size()); ++r) {
    out += '|';
    for (const auto& column : columns) {
      const core::Value value = value_at(*rows[r], column);
      const auto* text = value.as<std::string>();
      out += fmt::format(" {} |", value.is_null() ? "" : markdown_cell(text ? *text : core::json_text(to_json(value))));
    }
    out += '\n';
  }
  if (rows.size() > most_rows) out += fmt::format("\n{} more rows\n", rows.size() - most_rows);
  out += '\n';
  return out;
}

}  // namespace

std::string markdown(const PageTable& rows, const ReportText& summary) {
  std::string out = "## gradmeter\n\n";
  for (const auto& sentence : summary.sentences) out += fmt::format("- {}\n", markdown_cell(sentence));
  out += '\n';
  std::vector<std::string> experiments;
  for (const PageRow& row : rows.rows) {
    const std::string& experiment = row.point.experiment;
    if (experiment != compare_experiment && std::ranges::find(experiments, experiment) == experiments.end())
      experiments.push_back(experiment);
  }
  for (const auto& experiment : experiments) out += markdown_table(experiment, rows);
  return out;
}

}  // namespace gradmeter::report
