#include "model/mlp.hpp"

#include "core/error.hpp"
#include "core/format.hpp"
#include "model/layers/dense.hpp"

namespace gradmeter::model {
namespace {

constexpr std::size_t max_width = 65536, max_widths = 64;

}  // namespace

std::string mlp_name(std::span<const std::size_t> widths) {
  std::string name = fmt::format("mlp:{}", fmt::join(widths, "-"));
  if (widths.size() < 2 || widths.size() > max_widths)
    throw core::UsageError(
        fmt::format("model '{}' has {} widths; an mlp takes 2 to {}", name, widths.size(), max_widths));
  for (const std::size_t width : widths)
    if (width < 1 || width > max_width)
      throw core::UsageError(
          fmt::format("model '{}' has a layer of width {}; widths go from 1 to {}", name, width, max_width));
  return name;
}

std::vector<std::unique_ptr<Layer>> mlp_layers(std::span<const std::size_t> widths, kernels::Precision precision) {
  std::vector<std::unique_ptr<Layer>> layers;
  for (std::size_t i = 1; i < widths.size(); ++i) {
    const auto activation = i + 1 == widths.size() ? kernels::Activation::none : kernels::Activation::relu;
    layers.push_back(make_dense_layer(FeatureShape{widths[i - 1]}, widths[i], activation, precision));
  }
  return layers;
}

}  // namespace gradmeter::model
