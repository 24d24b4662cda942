#include "report/page/charts.hpp"

#include <algorithm>

namespace gradmeter::report {
namespace {

Chart read_chart(const EmbeddedFile& file) {
  const core::Json json = core::Json::parse(file.text);
  Chart chart{.name = std::string(file.name),
              .title = json.at("title"),
              .about = json.at("about"),
              .experiments = json.at("experiments"),
              .needs = json.at("needs"),
              .spans = json.value("spans", std::vector<std::string>()),
              .order = json.at("order"),
              .curves = json.value("curves", false),
              .spec = json.at("spec")};
  chart.spec["description"] = chart.title + ". " + chart.about;
  chart.spec["data"] = {{"name", "points"}};
  return chart;
}

}  // namespace

bool Chart::takes(const core::Json& row) const {
  if (row.at("status") != "ok") return false;
  const std::string experiment = row.at("experiment");
  return std::find(experiments.begin(), experiments.end(), experiment) != experiments.end() &&
         std::all_of(needs.begin(), needs.end(), [&](const auto& key) { return row.contains(key); });
}

std::vector<Chart> charts_for(const RowTable& table) {
  std::vector<Chart> out;
  for (const auto& file : chart_files()) {
    Chart chart = read_chart(file);
    if (std::any_of(table.rows.begin(), table.rows.end(), [&](const auto& row) { return chart.takes(row); })) {
      out.push_back(std::move(chart));
    }
  }
  std::stable_sort(out.begin(), out.end(), [](const Chart& a, const Chart& b) { return a.order < b.order; });
  return out;
}

core::Json to_json(const Chart& c) {
  return {{"name", c.name},   {"title", c.title},   {"about", c.about}, {"experiments", c.experiments},
          {"needs", c.needs}, {"curves", c.curves}, {"spans", c.spans}, {"spec", c.spec}};
}

}  // namespace gradmeter::report
