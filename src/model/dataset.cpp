#include "model/dataset.hpp"

#include <algorithm>
#include <array>
#include <cassert>

namespace gradmeter::model {

namespace {

constexpr std::array<float, 256> kCentred = [] {
  std::array<float, 256> table{};
  for (std::size_t byte = 0; byte < table.size(); ++byte)
    table[byte] = static_cast<float>((static_cast<double>(byte) / 255 - 0.1307) / 0.3081);
  return table;
}();

}  // namespace

void gather(const Dataset& data, std::span<const std::uint64_t> indices, std::span<float> inputs,
            std::span<std::int32_t> labels) {
  assert(inputs.size() == indices.size() * data.features() && labels.size() == indices.size());
  auto row = inputs.begin();
  for (std::size_t i = 0; i < indices.size(); ++i) {
    assert(indices[i] < data.size());
    row = std::ranges::transform(data.image(indices[i]), row, [](std::uint8_t byte) { return kCentred[byte]; }).out;
    labels[i] = data.label(indices[i]);
  }
}

}  // namespace gradmeter::model
