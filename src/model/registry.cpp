#include "model/registry.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "core/format.hpp"
#include "model/accumulate.hpp"
#include "model/mlp.hpp"
#include "model/table/table_model.hpp"

namespace gradmeter::model {

namespace {

// "784-100-10". The model checks the ranges; here only digits and dashes.
std::vector<std::size_t> parse_widths(std::string_view text) {
  std::vector<std::size_t> widths;
  for (std::string_view rest = text;;) {
    const std::string_view word = rest.substr(0, rest.find('-'));
    std::size_t width = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), width);
    if (error != std::errc{} || end != word.data() + word.size())
      throw core::UsageError(
          fmt::format("model 'mlp:{}': '{}' is not a width; write them as 784-1024-1024-10", text, word));
    widths.push_back(width);
    if (word.size() == rest.size()) return widths;
    rest.remove_prefix(word.size() + 1);
  }
}

std::vector<std::size_t> widths_of(const core::ParsedName& name, const ModelRequest& r) {
  if (!name.parameters.empty())
    throw core::UsageError(fmt::format("model 'mlp' has no parameter '{}'; it takes widths, as in mlp:784-100-10",
                                       name.parameters.begin()->first));
  if (name.bare.empty()) return {r.features, 1024, 1024, r.classes};
  return parse_widths(name.bare);
}

std::unique_ptr<Model> make_mlp(const core::ParsedName& name, const ModelRequest& r) {
  if (r.precision != kernels::Precision::fp32)
    throw core::UsageError(fmt::format("model 'mlp' computes in fp32, not in {}; layer tables (resnet50, FILE.csv) do",
                                       kernels::name(r.precision)));
  return std::make_unique<Mlp>(widths_of(name, r), r.part);
}

constexpr std::array table{
    ModelEntry{"mlp", "fully connected layers with ReLU, softmax cross-entropy; parameter: widths",
               "Rumelhart et al., Nature 1986; initialisation He et al., ICCV 2015", "mlp:784-1024-1024-10", &make_mlp,
               true},
};

bool is_table_file(const core::ParsedName& name) { return name.base.ends_with(".csv"); }

/// A table that is part of the program, or a file; nothing where the name is neither.
std::unique_ptr<Model> make_table_model(const core::ParsedName& name, const ModelRequest& r) {
  const auto shipped = shipped_layer_tables();
  if (!is_table_file(name) && std::ranges::find(shipped, name.base) == shipped.end()) return nullptr;
  const core::ParsedName full = core::with_defaults("model", name.base, "shrink=1", name);
  const auto shrink = core::count_parameter(full, "shrink", {.least = 1, .most = 1024});
  LayerTable t = is_table_file(name) ? read_layer_table(name.base) : shipped_layer_table(name.base);
  return std::make_unique<TableModel>(shrink > 1 ? shrunk(t, shrink) : std::move(t),
                                      TableModelOptions{.name = shrink > 1 ? full.canonical() : name.base,
                                                        .features = r.features,
                                                        .classes = r.classes,
                                                        .precision = r.precision,
                                                        .worker = r.worker});
}

void require_fit(const Model& model, std::size_t features, std::size_t classes) {
  if (model.input_features() != features)
    throw core::UsageError(
        fmt::format("model '{}' takes {} inputs, but the data has {} features; make its first width {}", model.name(),
                    model.input_features(), features, features));
  if (model.classes() != classes)
    throw core::UsageError(fmt::format("model '{}' ends in {} classes, but the data has {}; make its last width {}",
                                       model.name(), model.classes(), classes, classes));
}

void require_splittable(std::string_view name, bool can_split, const Part& part) {
  if (part.is_whole() || can_split) return;
  throw core::UsageError(
      fmt::format("model '{}' cannot be split; take a mesh without tensor and pipeline, or another model", name));
}

/// Micro-batches are cut by the model where it has stages, else around it.
ModelRequest inner_request(ModelRequest r) {
  if (r.part.stages > 1) return r;
  if (!r.part.is_whole()) r.part.batch = (r.part.batch + r.part.micro_batches - 1) / r.part.micro_batches;
  r.part.micro_batches = 1;
  return r;
}

std::unique_ptr<Model> make_inner(const core::ParsedName& name, const ModelRequest& r) {
  std::vector<std::string> known;
  for (const ModelEntry& entry : table) {
    known.emplace_back(entry.name);
    if (entry.name != name.base) continue;
    require_splittable(entry.name, entry.can_split, r.part);
    return entry.make(name, r);
  }
  if (auto model = make_table_model(name, r)) {
    require_splittable(name.base, false, r.part);
    return model;
  }
  for (const std::string_view t : shipped_layer_tables()) known.emplace_back(t);
  core::refuse_unknown("model", name.base, known);
}

}  // namespace

std::span<const ModelEntry> model_table() { return table; }

std::unique_ptr<Model> make_model(std::string_view name, const ModelRequest& r) {
  if (r.part.micro_batches == 0)
    throw core::UsageError(
        "a batch is to be cut into 0 micro-batches, which leaves nothing to train on; give 1 or more");
  std::unique_ptr<Model> model = make_inner(core::parse_name(name), inner_request(r));
  require_fit(*model, r.features, r.classes);
  if (r.part.stages > 1 || r.part.micro_batches == 1) return model;
  return std::make_unique<Accumulate>(std::move(model), r.part.micro_batches);
}

}  // namespace gradmeter::model
