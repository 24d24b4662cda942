#include "model/layers/cut.hpp"

#include <algorithm>
#include <iterator>

#include "core/error.hpp"
#include "core/format.hpp"

namespace gradmeter::model {
namespace {

using Parts = std::vector<std::unique_ptr<Layer>>;

/// Of one step where it has steps.
std::size_t features_of(const SampleShape& shape) {
  const auto* const tokens = std::get_if<TokenShape>(&shape);
  return tokens ? tokens->features : elements(shape);
}

/// The parts of the pair that begins a list, and of what is between; empty: none does.
Parts pair_of(std::span<const Layer* const> layers, std::size_t rank, std::size_t ranks) {
  Parts parts;
  parts.push_back(layers.front()->part(Cut::outputs, rank, ranks));
  while (parts.back() && parts.size() < layers.size()) {
    const Layer& next = *layers[parts.size()];
    if (auto last = next.part(Cut::inputs, rank, ranks)) {
      parts.push_back(std::move(last));
      return parts;
    }
    parts.push_back(next.part(Cut::between, rank, ranks));
  }
  return {};
}

}  // namespace

Parts cut_pairs(std::span<const Layer* const> layers, std::size_t rank, std::size_t ranks) {
  Parts all(layers.size());
  for (std::size_t l = 0; l < layers.size();) {
    Parts pair = pair_of(layers.subspan(l), rank, ranks);
    const std::size_t width = features_of(layers[l]->output());
    if (!pair.empty() && width % ranks != 0)
      throw core::UsageError(fmt::format(
          "'{}' is a layer of width {}, which {} tensor ranks cannot share evenly; make it a multiple of {}",
          layers[l]->name(), width, ranks, ranks));
    std::ranges::move(pair, all.begin() + static_cast<std::ptrdiff_t>(l));
    l += std::max<std::size_t>(1, pair.size());
  }
  return all;
}

}  // namespace gradmeter::model
