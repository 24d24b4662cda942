#include "report/page/page.hpp"

#include <algorithm>
#include <map>
#include <ostream>
#include <set>

#include "core/format.hpp"
#include "core/result.hpp"
#include "report/cells.hpp"
#include "report/page/charts.hpp"
#include "report/page/headline.hpp"
#include "report/tables.hpp"

namespace gradmeter::report {

namespace {

using core::Json;

/// JSON for a script element: no "<", which could end it or open a comment. Bytes that are not UTF-8 are replaced.
std::string embedded(const Json& json) {
  std::string out;
  for (const char c : json.dump(-1, ' ', false, Json::error_handler_t::replace)) {
    if (c == '<') {
      out += "\\u003c";
    } else {
      out += c;
    }
  }
  return out;
}

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
std::string lead(const RowTable& table, const Said& said) {
  std::string out =
      "<section aria-labelledby=\"lead-head\">\n<h2 id=\"lead-head\">In short</h2>\n" + figure_list(headline(table));
  if (!said.sentences.empty()) out += fmt::format("<p class=\"verdict\">{}</p>\n", markup_text(said.sentences.front()));
  if (!said.next.empty()) out += fmt::format("<p class=\"next\">Next: <code>{}</code></p>\n", markup_text(said.next));
  return out + "</section>";
}

/// All sentences but the first, which leads.
std::string findings_list(const std::vector<std::string>& said) {
  if (said.size() < 2) return "";
  std::string out =
      "<section aria-labelledby=\"findings-head\">\n<h2 id=\"findings-head\">What else was found</h2>\n<ul "
      "class=\"findings\">\n";
  for (std::size_t i = 1; i < said.size(); ++i) out += fmt::format("<li>{}</li>\n", markup_text(said[i]));
  return out + "</ul>\n</section>";
}

std::string figure(const Chart& c) {
  return fmt::format(
      "<figure id=\"figure-{0}\" aria-labelledby=\"title-{0}\">\n<h3 id=\"title-{0}\">{1}</h3>\n"
      "<details class=\"tools\"><summary aria-label=\"Download {1}\">Download</summary><div>"
      "<button type=\"button\" data-as=\"png\" aria-label=\"{1} as PNG\">PNG</button>"
      "<button type=\"button\" data-as=\"svg\" aria-label=\"{1} as SVG\">SVG</button>"
      "<button type=\"button\" data-as=\"csv\" aria-label=\"Data of {1} as CSV\">CSV</button></div></details>\n"
      "<div class=\"chart\" id=\"chart-{0}\"></div>\n<figcaption>{2}</figcaption>\n</figure>\n",
      c.name, markup_text(c.title), markup_text(c.about));
}

/// Units of the columns that a person reads in another one, and "share" of what is read in percent.
Json units_of_columns() {
  Json out = Json::object();
  for (const auto& info : core::metric_table())
    if (info.unit == "s" || info.unit == "B/s" || info.unit == "FLOP/s") out[std::string(info.key)] = info.unit;
  for (const char* share : {"efficiency", "efficiency_node", "roofline", "accuracy", "accuracy_at_samples",
                            "accuracy_at_time", "steadiness", "noise_steal", "noise_run_delay"})
    out[share] = "share";
  return out;
}

/// Of filters and heads, by key, where the words are others than the key's.
Json words_of_columns(std::span<const core::Factor> keys) {
  Json out = Json::object();
  const auto add = [&out](std::string_view key) {
    if (auto words = column_words(key); words != key) out[std::string(key)] = std::move(words);
  };
  for (const core::Factor f : keys) add(core::name(f));
  for (const auto& info : core::metric_table()) add(info.key);
  return out;
}

std::string figures(const std::vector<Chart>& charts) {
  if (chart_library().empty())
    return "<p>This gradmeter was built without vl-convert, which draws the charts; the table has all points.</p>";
  if (charts.empty()) return "<p>No chart applies to these points; the table has all of them.</p>";
  std::string out;
  for (const auto& c : charts) out += figure(c);
  return out;
}

/// What was not measured, or is not trusted, with its reason: equal reasons together.
std::string skipped(const RowTable& table) {
  std::map<std::pair<std::string, std::string>, std::size_t> reasons;
  for (const Row& row : table.rows) {
    if (row.point.status != core::Status::ok) ++reasons[{std::string(core::name(row.point.status)), row.point.reason}];
  }
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

std::string described(const std::string& source, const core::RunInfo& i) {
  std::string libraries;
  for (const auto& [name, version] : i.libraries)
    libraries += fmt::format("{}{} {}", libraries.empty() ? "" : ", ", name, version);
  std::string out = fmt::format("<h3>{}</h3>\n<dl>\n", markup_text(source));
  const std::pair<const char*, std::string> facts[] = {
      {"when", i.time},
      {"command", i.command},
      {"gradmeter", fmt::format("{} ({})", i.version, i.commit)},
      {"ranks", fmt::format("{} on {} node{}{}{}", i.ranks, i.nodes, i.nodes == 1 ? "" : "s",
                            i.mapping.empty() ? "" : ", ", i.mapping)},
      {"hosts", fmt::format("{}", fmt::join(i.hosts, ", "))},
      {"processor", i.cpu},
      {"GPUs", fmt::format("{}", fmt::join(i.gpus, ", "))},
      {"MPI", i.mpi},
      {"binding", i.binding},
      {"libraries", libraries}};
  for (const auto& [name, value] : facts) {
    if (!value.empty()) out += fmt::format("<dt>{}</dt><dd>{}</dd>\n", name, markup_text(value));
  }
  return out + "</dl>\n";
}

/// Runs of one command on one machine are told once.
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
      processors.insert(run.info.cpu);
    }
  }
  return fmt::format("{} point{} of {} run{} on {} host{}: {}", points, points == 1 ? "" : "s", runs,
                     runs == 1 ? "" : "s", hosts.size(), hosts.size() == 1 ? "" : "s", fmt::join(processors, ", "));
}

}  // namespace

std::string_view chart_library() { return page_file("library"); }

void write_html_page(const RowTable& table, const Said& said, std::span<const analysis::Side> sides, std::ostream& to) {
  const auto points = static_cast<std::size_t>(
      std::ranges::count_if(table.rows, [](const Row& row) { return row.point.experiment != compared; }));
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
      {"headline", lead(table, said)},
      {"findings", findings_list(said.sentences)},
      {"charts", figures(charts)},
      {"skipped", skipped(table)},
      {"runs", machines(sides)},
      {"footer", "Made by gradmeter report. The data are in this page: every chart and the table give them as CSV."},
      {"specs", embedded(specs)},
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

}  // namespace gradmeter::report
