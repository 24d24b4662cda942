#include "report/page/charts.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <stdexcept>
#include <utility>

#include "core/format.hpp"

namespace gradmeter::report {
namespace {

using core::Json;

Bounds read_bounds(const Json& json, const char* key) {
  const Json bounds = json.value(key, Json::object());
  return {.least = bounds.value("least", Bounds().least), .most = bounds.value("most", Bounds().most)};
}

/// Adds a layer, which a narrow page leaves out: the symbol and the name of each series of a panel `at`.
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
  for (Json& layer : Json::parse(text)) {
    layer["encoding"]["color"] = {{"field", "series"}, {"type", "nominal"}, {"title", nullptr}, {"legend", nullptr}};
    layers.push_back(std::move(layer));
  }
}

Chart read_chart(const EmbeddedFile& file) {
  const Json json = Json::parse(file.text);
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

bool takes(const Chart& chart, const Json& row) {
  const std::string status = row.at("status"), experiment = row.at("experiment");
  if (status != "ok" && !(chart.doubtful && status == "mistrusted")) return false;
  return std::ranges::find(chart.experiments, experiment) != chart.experiments.end() &&
         std::ranges::all_of(chart.needs, [&](const auto& key) { return row.contains(key); }) &&
         std::ranges::all_of(chart.least,
                             [&](const auto& least) { return row.value(least.first, 0.0) >= least.second; });
}

std::vector<std::size_t> places_of(const Chart& chart, const std::vector<Json>& rows) {
  std::vector<std::size_t> out;
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (takes(chart, rows[i])) out.push_back(i);
  return out;
}

/// A panel of the page: rows that agree in their conditions and in what runs along the chart but its first.
std::string panel_of(const Chart& chart, const Json& row) {
  std::string out = row.at("panel");
  for (std::size_t i = 1; i < chart.along.size(); ++i) {
    // The samples of all ranks follow from those of a rank, and hosts from ranks.
    if (row.contains(chart.along[i])) out += fmt::format("|{}", row.at(chart.along[i]).dump());
  }
  return out;
}

void keep_within_bounds(Chart& chart, const RowTable& table) {
  using Curve = std::pair<std::string, std::string>;
  std::map<Curve, std::set<Json>> values;
  std::map<std::string, std::set<std::string>> series;
  const auto curve_of = [&](const Json& row) { return Curve(panel_of(chart, row), row.at("series")); };
  const auto add = [&](const Json& row) {
    const Curve curve = curve_of(row);
    if (!chart.along.empty()) values[curve].insert(row.value(chart.along[0], Json()));
    series[curve.first].insert(curve.second);
  };
  for (const std::size_t i : chart.rows) add(table.rows[i]);
  for (const std::size_t i : chart.starts) add(table.curve_starts[i]);
  const auto is_out = [&](const Json& row) {
    const Curve curve = curve_of(row);
    return !chart.values.hold(values[curve].size()) || !chart.series.hold(series[curve.first].size());
  };
  std::erase_if(chart.rows, [&](std::size_t i) { return is_out(table.rows[i]); });
  std::erase_if(chart.starts, [&](std::size_t i) { return is_out(table.curve_starts[i]); });
}

/// Calls `use` with each channel of colour in `json` that shows a column that names series.
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

/// Colours of series, in the order in which the page shows them first.
class SeriesColours {
 public:
  void give(Chart& chart, const RowTable& table) {
    for_each_series_colour(chart.spec, [&](Json& channel) {
      Json domain = Json::array(), range = Json::array();
      std::set<std::string> known;
      for (const std::size_t i : chart.rows) {
        const std::string series = table.rows[i].value(channel["field"].template get<std::string>(), std::string());
        if (!known.insert(series).second) continue;
        const auto place = places_.try_emplace(series, places_.size()).first->second;
        domain.push_back(series);
        range.push_back(palette.at(place % palette.size()));
      }
      channel["scale"] = {{"domain", std::move(domain)}, {"range", std::move(range)}};
    });
  }

 private:
  std::map<std::string, std::size_t> places_;
};

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

std::vector<Chart> charts_for(const RowTable& table) {
  std::vector<Chart> out;
  for (const auto& file : chart_files()) {
    Chart chart = read_chart(file);
    chart.rows = places_of(chart, table.rows);
    if (chart.curves) chart.starts = places_of(chart, table.curve_starts);
    keep_within_bounds(chart, table);
    if (!chart.rows.empty()) out.push_back(std::move(chart));
  }
  std::ranges::stable_sort(out, {}, &Chart::order);
  SeriesColours colours;
  for (Chart& chart : out) colours.give(chart, table);
  return out;
}

Json to_json(const Chart& c) {
  return {{"name", c.name}, {"along", c.along},          {"spans", c.spans},
          {"spec", c.spec}, {"rows", ranges_of(c.rows)}, {"starts", ranges_of(c.starts)}};
}

}  // namespace gradmeter::report
