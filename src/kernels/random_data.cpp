#include "kernels/random_data.hpp"

#include <vector>

#include "core/random.hpp"

namespace gradmeter::kernels {

void fill_gaussian(std::span<float> values, std::uint64_t seed, double scale) {
  const core::Random random(seed, 0x6761);
  const auto draw = [&](std::size_t i) { return static_cast<float>(random.gaussian(i) * scale); };
  const std::size_t table_size = TablePlaces::size_for(values.size());
  if (values.size() <= table_size) {
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = draw(i);
    return;
  }
  std::vector<float> table(table_size);
  for (std::size_t i = 0; i < table.size(); ++i) table[i] = draw(i);
  TablePlaces places(random.bits(0), table_size);
  for (float& x : values) x = table[places.next()];
}

}  // namespace gradmeter::kernels
