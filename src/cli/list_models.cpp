#include "cli/list_models.hpp"

#include <algorithm>
#include <array>

#include "core/format.hpp"
#include "core/print.hpp"
#include "core/table.hpp"
#include "model/registry.hpp"
#include "model/table/layer_table.hpp"

namespace gradmeter::cli {
namespace {

using core::Align;

constexpr std::array batches{1, 16, 64};

core::Table figures(const std::vector<Member>& members) {
  std::vector<core::Column> columns{{"layer table", "", Align::left},
                                    {"tensors", ""},
                                    {"parameters", ""},
                                    {"GFLOP", "a sample"},
                                    {"FLOP/", "parameter"},
                                    {.header = "largest tensor", .unit = "", .align = Align::left, .wraps = true},
                                    {"share", "%"}};
  for (const int batch : batches) columns.push_back({"MiB", fmt::format("batch {}", batch)});
  core::Table table(columns);
  for (const Member& m : members) {
    if (!m.layers) continue;
    const model::TableSummary& s = *m.layers;
    std::vector<std::string> cells{m.name,
                                   fmt::format("{}", s.tensors),
                                   fmt::format("{}", s.parameters),
                                   fmt::format("{:.3f}", s.forward_flops / 1e9),
                                   fmt::format("{:.1f}", s.flops_per_parameter()),
                                   s.largest_tensor,
                                   fmt::format("{:.1f}", 100 * s.largest_share())};
    for (const int batch : batches) cells.push_back(fmt::format("{:.1f}", batch * s.activation_bytes / (1 << 20)));
    table.add_row(std::move(cells));
  }
  return table;
}

core::Table sources(const std::vector<Member>& members) {
  core::Table table({{"layer table", "", Align::left},
                     {.header = "a sample", .unit = "", .align = Align::left, .wraps = true},
                     {.header = "source", .unit = "", .align = Align::left, .wraps = true}});
  for (const Member& m : members) {
    if (m.layers) table.add_row({m.name, m.about, m.source});
  }
  return table;
}

}  // namespace

std::vector<Member> models() {
  std::vector<Member> out;
  for (const auto& m : model::model_table()) {
    out.push_back(
        {std::string(m.name), fmt::format("{} (default {})", m.description, m.default_name), std::string(m.source)});
  }
  for (const auto name : model::shipped_layer_tables()) {
    const model::LayerTable table = model::shipped_layer_table(name);
    out.push_back({.name = table.name, .about = table.sample, .source = table.source, .layers = summary(table)});
  }
  return out;
}

void print_layer_tables(const std::vector<Member>& members, std::size_t width) {
  if (std::ranges::none_of(members, [](const Member& m) { return m.layers.has_value(); })) return;
  core::print("{}", figures(members).to_string(width));
  core::print("GFLOP: forward, of products; MiB: activations, which are the results of all products, 4 bytes each\n\n");
  core::print("{}\n", sources(members).to_string(width));
}

}  // namespace gradmeter::cli
