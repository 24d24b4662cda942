#include "model/dataset.hpp"

#include <algorithm>
#include <array>
#include <cassert>

#include "kernels/problems/shape.hpp"

namespace gradmeter::model {

namespace {

constexpr std::array<float, 256> kCentred = [] {
  std::array<float, 256> table{};
  for (std::size_t byte = 0; byte < table.size(); ++byte)
    table[byte] = static_cast<float>((static_cast<double>(byte) / 255 - 0.1307) / 0.3081);
  return table;
}();

}  // namespace

void ImageDataset::read(std::size_t i, std::span<float> inputs, std::span<std::int32_t> labels) const {
  kernels::require_elements("image: inputs", inputs.size(), features());
  kernels::require_elements("image: labels", labels.size(), 1);
  std::ranges::transform(image(i), inputs.begin(), [](std::uint8_t byte) { return kCentred[byte]; });
  labels[0] = label(i);
}

void gather(const Dataset& data, std::span<const std::uint64_t> indices, std::span<float> inputs,
            std::span<std::int32_t> labels) {
  const std::size_t features = data.features(), each = data.labels();
  assert(inputs.size() == indices.size() * features && labels.size() == indices.size() * each);
  for (std::size_t i = 0; i < indices.size(); ++i) {
    assert(indices[i] < data.size());
    data.read(indices[i], inputs.subspan(i * features, features), labels.subspan(i * each, each));
  }
}

}  // namespace gradmeter::model
