#include "model/table/shipped_tables.hpp"

#include "core/name.hpp"
#include "kernels/problems/csv.hpp"
#include "model/table/layer_table.hpp"

namespace gradmeter::model {
namespace {

constexpr std::string_view index_name = "index";

void describe(LayerTable& table, std::string_view index) {
  kernels::read_csv(
      index, "index.csv", [](const auto&) {},
      [&](const kernels::CsvRow& row, std::size_t) {
        if (row.text("model") != table.name) return;
        table.sample = row.text("sample");
        table.source = row.text("source");
      });
}

}  // namespace

std::vector<std::string_view> shipped_layer_tables() {
  std::vector<std::string_view> out;
  for (const auto& f : embedded_layer_tables()) {
    if (f.name != index_name) out.push_back(f.name);
  }
  return out;
}

LayerTable shipped_layer_table(std::string_view name) {
  std::string_view text, index;
  for (const auto& f : embedded_layer_tables()) {
    if (f.name == index_name) {
      index = f.text;
    } else if (f.name == name) {
      text = f.text;
    }
  }
  if (text.empty()) {
    const auto names = shipped_layer_tables();
    core::refuse_unknown("layer table", name, std::vector<std::string>(names.begin(), names.end()));
  }
  LayerTable table = parse_layer_table(text, std::string(name) + ".csv");
  table.name = name;
  describe(table, index);
  return table;
}

}  // namespace gradmeter::model
