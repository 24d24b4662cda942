// SPDX-License-Identifier: Apache-2.0
#include "report/page/charts.hpp"

#include <sys/wait.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <set>
#include <stdexcept>
#include <system_error>
#include <unordered_map>
#include <utility>

#include "core/error.hpp"
#include "core/format.hpp"
#include "core/print.hpp"

namespace gradmeter::report {
namespace {

using core::Json;

Bounds read_bounds(const Json& json, const char* key) {
  const Json bounds = json.value(key, Json::object());
  return {.least = bounds.value("least", Bounds().least), .most = bounds.value("most", Bounds().most)};
}

/// Adds layers with a symbol and the name of each series at its last point (Chart, `labels`). Rows of one panel have
/// the same value in the column `at`. A narrow page leaves these layers out.
void add_labels(Json& layers, const Json& labels) {
  const std::string x = labels.at("x"), y = labels.at("y"), top = labels.value("top", y);
  const bool log = labels.value("log", false);
  const auto number = [log](const std::string& column) {
    return log ? fmt::format("log(datum.{})", column) : fmt::format("datum.{}", column);
  };
  const char* gap = log ? "0.065 * max(1, datum.layout_top - datum.layout_low)" : "0.065 * datum.layout_top";
  const std::string text =
      fill(page_file("labels"), {{"x", x},
                                 {"height", number(y)},
                                 {"top", number(top)},
                                 {"gap", gap},
                                 {"label", log ? "exp(datum.layout_height)" : "datum.layout_height"}});
  for (Json& layer : core::parse_json(text)) {
    layer["encoding"]["color"] = {{"field", "series"}, {"type", "nominal"}, {"title", nullptr}, {"legend", nullptr}};
    layers.push_back(std::move(layer));
  }
}

Chart read_chart(const core::EmbeddedFile& file) {
  const Json json = core::parse_json(file.text);
  Chart chart{.name = std::string(file.name),
              .title = json.at("title"),
              .about = json.at("about"),
              .experiments = json.at("experiments"),
              .needs = json.at("needs"),
              .spans = json.value("spans", std::vector<std::string>()),
              .along = json.at("along"),
              .least = json.value("least", std::map<std::string, double>()),
              .values = read_bounds(json, "values"),
              .series = read_bounds(json, "series"),
              .order = json.at("order"),
              .curves = json.value("curves", false),
              .doubtful = json.value("doubtful", false),
              .spec = json.at("spec"),
              .rows = {},
              .starts = {}};
  if (json.contains("labels")) add_labels(chart.spec["spec"]["layer"], json["labels"]);
  chart.spec["description"] = chart.title + ". " + chart.about;
  chart.spec["data"] = {{"name", "points"}};
  return chart;
}

/// True if the chart is drawn for the row.
bool takes(const Chart& chart, const PageRow& row) {
  using core::Status;
  const bool has_figures = row.point.status == Status::ok || (chart.doubtful && row.point.status == Status::mistrusted);
  return has_figures && std::ranges::find(chart.experiments, row.point.experiment) != chart.experiments.end() &&
         std::ranges::all_of(chart.needs, [&](const auto& key) { return row.has(key); }) &&
         std::ranges::none_of(chart.least, [&](const auto& least) {
           const double number = row.number(least.first);
           return (std::isnan(number) ? 0.0 : number) < least.second;
         });
}

/// The indices of the rows that the chart is drawn for.
std::vector<std::size_t> places_of(const Chart& chart, const std::vector<PageRow>& rows) {
  std::vector<std::size_t> out;
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (takes(chart, rows[i])) out.push_back(i);
  return out;
}

/// The panel in which a chart shows a row: the row's `panel`, and its values of `along` without the first factor, which
/// is the axis.
std::string panel_of(const Chart& chart, const PageRow& row) {
  std::string out = row.text("panel");
  for (std::size_t i = 1; i < chart.along.size(); ++i) {
    if (const core::Value value = row.at(chart.along[i]); !value.is_null()) out += "|" + core::to_text(value);
  }
  return out;
}

/// Drops the rows of curves with too few or too many values, and of panels with too few or too many series.
void keep_within_bounds(Chart& chart, const PageTable& table) {
  struct Curve {
    std::size_t panel;
    std::set<std::string> values;
  };
  std::vector<Curve> curves;
  std::vector<std::size_t> series;  // by panel: the number of its series
  std::unordered_map<std::string, std::size_t> panels, places;
  const auto curve_of = [&](const PageRow& row) {
    std::string name = panel_of(chart, row);
    const std::size_t panel = panels.try_emplace(name, panels.size()).first->second;
    series.resize(panels.size());
    name += '\n';
    name += row.text("series");
    const auto [place, is_new] = places.try_emplace(std::move(name), curves.size());
    if (is_new) {
      curves.push_back({panel, {}});
      ++series[panel];
    }
    if (!chart.along.empty()) curves[place->second].values.insert(core::to_text(row.at(chart.along[0])));
    return place->second;
  };
  std::vector<std::size_t> row_curves, start_curves;
  for (const std::size_t i : chart.rows) row_curves.push_back(curve_of(table.rows[i]));
  for (const std::size_t i : chart.starts) start_curves.push_back(curve_of(table.curve_starts[i]));
  const auto keep = [&](std::vector<std::size_t>& rows, const std::vector<std::size_t>& curve_places) {
    std::vector<std::size_t> kept;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const Curve& curve = curves[curve_places[i]];
      if (chart.values.contains(curve.values.size()) && chart.series.contains(series[curve.panel]))
        kept.push_back(rows[i]);
    }
    rows = std::move(kept);
  };
  keep(chart.rows, row_curves);
  keep(chart.starts, start_curves);
}

/// Calls `use` with each channel "color" in `json` whose field is a column of series names.
template <class Use>
void for_each_series_colour(Json& json, const Use& use) {
  if (!json.is_structured()) return;
  for (auto& [key, part] : json.items()) {
    const bool is_series = part.is_object() && part.contains("field") && part["field"].is_string() &&
                           part["field"].template get<std::string>().starts_with("series");
    if (is_series && key == "color") use(part);
    for_each_series_colour(part, use);
  }
}

/// Gives each series one colour on the whole page, in the order in which the page shows them first.
void colour_series(std::vector<Chart>& charts, const PageTable& table) {
  std::map<std::string, std::size_t> colour_numbers;
  for (Chart& chart : charts)
    for_each_series_colour(chart.spec, [&](Json& channel) {
      Json domain = Json::array(), range = Json::array();
      std::set<std::string> seen;
      for (const std::size_t i : chart.rows) {
        const std::string series = table.rows[i].text(channel["field"].template get<std::string>());
        if (!seen.insert(series).second) continue;
        const auto number = colour_numbers.try_emplace(series, colour_numbers.size()).first->second;
        domain.push_back(series);
        range.push_back(palette.at(number % palette.size()));
      }
      channel["scale"] = {{"domain", std::move(domain)}, {"range", std::move(range)}};
    });
}

Json ranges_of(const std::vector<std::size_t>& places) {
  Json out = Json::array();
  for (const std::size_t place : places) {
    if (!out.empty() && out.back() == place) {
      out.back() = place + 1;
    } else {
      out.push_back(place);
      out.push_back(place + 1);
    }
  }
  return out;
}

}  // namespace

std::string_view page_file(std::string_view name) {
  for (const auto& file : page_files())
    if (file.name == name) return file.text;
  throw std::logic_error("no such part of the page");
}

std::string fill(std::string_view frame, const std::map<std::string, std::string>& parts) {
  std::string out;
  while (!frame.empty()) {
    const std::size_t begin = frame.find("{{");
    out += frame.substr(0, begin);
    if (begin == std::string_view::npos) break;
    const std::size_t end = frame.find("}}", begin);
    out += parts.at(std::string(frame.substr(begin + 2, end - begin - 2)));
    frame.remove_prefix(end + 2);
  }
  return out;
}

std::vector<Chart> charts_for(const PageTable& table) {
  std::vector<Chart> out;
  for (const auto& file : chart_files()) {
    Chart chart = read_chart(file);
    chart.rows = places_of(chart, table.rows);
    if (chart.curves) chart.starts = places_of(chart, table.curve_starts);
    keep_within_bounds(chart, table);
    if (!chart.rows.empty()) out.push_back(std::move(chart));
  }
  std::ranges::stable_sort(out, {}, &Chart::order);
  colour_series(out, table);
  return out;
}

Json to_json(const Chart& c) {
  return {{"name", c.name}, {"along", c.along},          {"spans", c.spans},
          {"spec", c.spec}, {"rows", ranges_of(c.rows)}, {"starts", ranges_of(c.starts)}};
}

namespace {

namespace fs = std::filesystem;
using core::Json;

// The Python program that draws. It reads {"pictures": [{"path", "spec"}]} from standard input, and ends with 9 if
// there is no vl-convert.
constexpr std::string_view program =
    "import json, sys\n"
    "try:\n"
    "    import vl_convert as v\n"
    "except ImportError:\n"
    "    sys.exit(9)\n"
    "for p in json.load(sys.stdin)[\"pictures\"]:\n"
    "    if p[\"path\"].endswith(\".svg\"):\n"
    "        open(p[\"path\"], \"w\", encoding=\"utf-8\").write(v.vegalite_to_svg(p[\"spec\"]))\n"
    "    else:\n"
    "        open(p[\"path\"], \"wb\").write(v.vegalite_to_png(p[\"spec\"], scale=2))\n";
constexpr int no_library = 9, no_program = 127;  // 127: the shell finds no such program

std::string python() {
  const char* given = std::getenv("GRADMETER_CHARTS_PYTHON");
  return given && *given ? given : GRADMETER_BUILT_CHARTS_PYTHON;
}

[[noreturn]] void refuse_without_library() {
  throw core::UsageError(
      "pictures need vl-convert, and there is none; run scripts/charts.sh, or set GRADMETER_CHARTS_PYTHON to a Python "
      "that has the package vl-convert-python");
}

Json config() {
  return {{"background", "white"},
          {"font", "sans-serif"},
          {"legend", {{"orient", "bottom"}, {"columns", 2}, {"labelLimit", 360}, {"symbolOpacity", 1}}},
          {"header", {{"labelAnchor", "start"}, {"labelFontWeight", "bold"}, {"labelLimit", 500}}},
          {"axis", {{"labelOverlap", "greedy"}, {"labelSeparation", 6}}},
          {"tick", {{"color", "#000000"}}},
          {"range", {{"category", palette}}}};
}

/// The specification of a chart with its data and a title, for vl-convert.
Json filled(const Chart& chart, const PageTable& table) {
  Json spec = chart.spec, values = Json::array();
  for (const std::size_t i : chart.starts) values.push_back(to_json(table.curve_starts[i]));
  for (const std::size_t i : chart.rows) values.push_back(to_json(table.rows[i]));
  spec["data"] = {{"name", "points"}, {"values", std::move(values)}};
  spec["config"] = config();
  spec["title"] = {{"text", chart.title}, {"anchor", "start"}};
  spec["padding"] = {{"left", 24}, {"top", 10}, {"right", 10}, {"bottom", 10}};  // a viewer's font may be wider
  return spec;
}

/// Ignores SIGPIPE while it exists: a process that ends before it has read everything must not end this one.
class IgnoredBrokenPipe {
 public:
  IgnoredBrokenPipe() : before_(std::signal(SIGPIPE, SIG_IGN)) {}
  ~IgnoredBrokenPipe() { std::signal(SIGPIPE, before_); }
  IgnoredBrokenPipe(const IgnoredBrokenPipe&) = delete;
  IgnoredBrokenPipe& operator=(const IgnoredBrokenPipe&) = delete;

 private:
  void (*before_)(int);
};

void draw(const std::string& interpreter, const std::string& pictures) {
  const IgnoredBrokenPipe ignored;
  const std::string command = fmt::format("{} -c {}", core::shell_quoted(interpreter), core::shell_quoted(program));
  std::FILE* pipe = ::popen(command.c_str(), "w");
  if (!pipe) throw core::BackendError("vl-convert", "popen", "the process could not be started");
  const bool written = std::fwrite(pictures.data(), 1, pictures.size(), pipe) == pictures.size();
  const int status = ::pclose(pipe);
  if (WIFEXITED(status) && (WEXITSTATUS(status) == no_library || WEXITSTATUS(status) == no_program))
    refuse_without_library();
  if (status != 0 || !written)
    throw core::BackendError("vl-convert", "draw", "a picture could not be drawn or written; the reason stands above");
}

}  // namespace

std::vector<fs::path> write_pictures(const PageTable& table, const fs::path& folder, std::string_view format) {
  const std::string interpreter = python();
  if (interpreter.empty()) refuse_without_library();
  std::error_code error;
  fs::create_directories(folder, error);
  if (error)
    throw core::BackendError("file system", "mkdir", fmt::format("'{}': {}", folder.string(), error.message()));
  Json pictures = Json::array();
  std::vector<fs::path> paths;
  for (const auto& chart : charts_for(table)) {
    paths.push_back(folder / fmt::format("{}.{}", chart.name, format));
    pictures.push_back({{"path", paths.back().string()}, {"spec", filled(chart, table)}});
  }
  if (!paths.empty()) draw(interpreter, core::json_text(Json{{"pictures", std::move(pictures)}}));
  return paths;
}

}  // namespace gradmeter::report
