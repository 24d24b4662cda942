#include "model/registry.hpp"

#include <array>
#include <charconv>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "core/format.hpp"
#include "model/accumulate.hpp"
#include "model/mlp.hpp"

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

std::vector<std::size_t> widths_of(const core::ParsedName& name, std::size_t features, std::size_t classes) {
  if (!name.parameters.empty())
    throw core::UsageError(fmt::format("model 'mlp' has no parameter '{}'; it takes widths, as in mlp:784-100-10",
                                       name.parameters.begin()->first));
  if (name.bare.empty()) return {features, 1024, 1024, classes};
  return parse_widths(name.bare);
}

std::unique_ptr<Model> make_mlp(const core::ParsedName& name, std::size_t features, std::size_t classes) {
  return std::make_unique<Mlp>(widths_of(name, features, classes));
}

std::unique_ptr<Model> make_mlp_part(const core::ParsedName& name, std::size_t features, std::size_t classes,
                                     const Part& part) {
  return std::make_unique<Mlp>(widths_of(name, features, classes), part);
}

constexpr std::array table{
    ModelEntry{"mlp", "fully connected layers with ReLU, softmax cross-entropy; parameter: widths",
               "Rumelhart et al., Nature 1986; initialisation He et al., ICCV 2015", "mlp:784-1024-1024-10", &make_mlp,
               &make_mlp_part},
};

void require_fit(const Model& model, std::size_t features, std::size_t classes) {
  if (model.input_features() != features)
    throw core::UsageError(
        fmt::format("model '{}' takes {} inputs, but the data has {} features; make its first width {}", model.name(),
                    model.input_features(), features, features));
  if (model.classes() != classes)
    throw core::UsageError(fmt::format("model '{}' ends in {} classes, but the data has {}; make its last width {}",
                                       model.name(), model.classes(), classes, classes));
}

std::unique_ptr<Model> make_part(const ModelEntry& entry, const core::ParsedName& name, std::size_t features,
                                 std::size_t classes, Part part) {
  if (part.is_whole()) return entry.make(name, features, classes);
  if (!entry.make_part)
    throw core::UsageError(fmt::format(
        "model '{}' cannot be split; take a mesh without tensor and pipeline, or another model", entry.name));
  if (part.stages == 1) {
    part.batch = (part.batch + part.micro_batches - 1) / part.micro_batches;
    part.micro_batches = 1;
  }
  return entry.make_part(name, features, classes, part);
}

}  // namespace

std::span<const ModelEntry> model_table() { return table; }

std::unique_ptr<Model> make_model(std::string_view name, std::size_t features, std::size_t classes, const Part& part) {
  const core::ParsedName parsed = core::parse_name(name);
  if (part.micro_batches == 0)
    throw core::UsageError(
        "a batch is to be cut into 0 micro-batches, which leaves nothing to train on; give 1 or more");
  std::vector<std::string> known;
  for (const ModelEntry& entry : table) {
    known.emplace_back(entry.name);
    if (entry.name != parsed.base) continue;
    std::unique_ptr<Model> model = make_part(entry, parsed, features, classes, part);
    require_fit(*model, features, classes);
    if (part.stages > 1 || part.micro_batches == 1) return model;
    return std::make_unique<Accumulate>(std::move(model), part.micro_batches);
  }
  core::refuse_unknown("model", parsed.base, known);
}

}  // namespace gradmeter::model
