#include "kernels/cases/random_data.hpp"

#include <vector>

#include "core/random.hpp"

namespace gradmeter::kernels {

std::span<const double> gaussian_draws() {
  static const std::vector<double> draws = [] {
    const core::Random random(0, 0x6761);
    std::vector<double> table(draw_table_size);
    for (std::size_t i = 0; i < table.size(); ++i) table[i] = random.gaussian(i);
    return table;
  }();
  return draws;
}

void fill_gaussian(std::span<float> values, std::uint64_t seed, double scale) {
  const auto draws = gaussian_draws();
  TablePlaces places(core::Random(seed, 0x6761).bits(0));
  for (float& x : values) x = static_cast<float>(draws[places.next()] * scale);
}

}  // namespace gradmeter::kernels
