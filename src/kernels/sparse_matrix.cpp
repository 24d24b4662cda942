#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "core/format.hpp"
#include "core/random.hpp"
#include "kernels/cases/random_data.hpp"
#include "kernels/sparse.hpp"

namespace gradmeter::kernels {
namespace {

/// How many of a long row of entries are left out before the next that is kept: geometric, by inversion.
class Gaps {
 public:
  Gaps(double sparsity, std::uint64_t seed) : log_(std::log(sparsity)), all_(sparsity == 0), random_(seed, 0x7370) {}
  /// Beyond `limit` it is cut off there.
  std::size_t next(std::size_t limit) {
    if (all_) return 0;
    const double gap = std::floor(std::log1p(-random_.uniform(i_++)) / log_);
    return gap < static_cast<double>(limit) ? static_cast<std::size_t>(gap) : limit;  // limit too for no entries at all
  }

 private:
  double log_;
  bool all_;
  core::Random random_;
  std::uint64_t i_ = 0;
};

void check_two_of_four(std::size_t columns, double sparsity) {
  if (sparsity != 0.5) throw std::invalid_argument(fmt::format("random_sparse: sparsity {} of 2:4, not 0.5", sparsity));
  if (columns % 4 != 0) throw std::invalid_argument(fmt::format("random_sparse: {} columns of 2:4", columns));
}

/// Entries of a matrix of 2:4, without their values.
void draw_two_of_four(SparseMatrix& a, std::uint64_t seed) {
  constexpr std::array<std::array<std::uint8_t, 2>, 6> pairs{{{0, 1}, {0, 2}, {0, 3}, {1, 2}, {1, 3}, {2, 3}}};
  TablePlaces places(core::Random(seed, 0x3234).bits(0));
  const std::size_t of_a_row = a.columns / 2;
  a.columns_of.reserve(a.rows * of_a_row);
  for (std::size_t row = 0; row < a.rows; ++row) {
    for (std::size_t first = 0; first < a.columns; first += 4)
      for (const std::uint8_t within : pairs[places.next() * pairs.size() / draw_table_size])
        a.columns_of.push_back(static_cast<std::int32_t>(first + within));
    a.starts[row + 1] = (row + 1) * of_a_row;
  }
}

}  // namespace

SparseMatrix random_sparse(std::size_t rows, std::size_t columns, double sparsity, SparseFormat format,
                           std::uint64_t seed) {
  if (!(sparsity >= 0 && sparsity <= 1)) {
    throw std::invalid_argument(fmt::format("random_sparse: sparsity {} is not within [0, 1]", sparsity));
  }
  if (columns > static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max())) {
    throw std::invalid_argument(fmt::format("random_sparse: {} columns are more than 2^31 - 1", columns));
  }
  if (format == SparseFormat::two_of_four) check_two_of_four(columns, sparsity);
  SparseMatrix a{.rows = rows, .columns = columns, .format = format};
  const std::size_t units = (rows + a.height() - 1) / a.height(), places = units * columns;
  a.starts.assign(units + 1, 0);
  if (format == SparseFormat::two_of_four) {
    draw_two_of_four(a, seed);
  } else if (sparsity < 1) {
    Gaps gaps(sparsity, seed);
    for (std::size_t at = gaps.next(places); at < places; at += 1 + gaps.next(places)) {
      a.columns_of.push_back(static_cast<std::int32_t>(at % columns));
      a.starts[at / columns + 1] = a.columns_of.size();
    }
  }
  for (std::size_t u = 1; u <= units; ++u) a.starts[u] = std::max(a.starts[u], a.starts[u - 1]);  // empty ones
  a.values.resize(a.columns_of.size() * a.height());
  fill_gaussian(a.values, seed + 1);
  const std::size_t beyond = units * a.height() - rows;  // rows of the last unit's blocks
  for (std::size_t e = units > 0 ? a.starts[units - 1] : 0; beyond > 0 && e < a.columns_of.size(); ++e) {
    const auto end = a.values.begin() + static_cast<std::ptrdiff_t>((e + 1) * a.height());
    std::fill(end - static_cast<std::ptrdiff_t>(beyond), end, 0.0F);
  }
  return a;
}

std::vector<float> to_dense(const SparseMatrix& a) {
  std::vector<float> dense(a.rows * a.columns);
  for (std::size_t u = 0; u < a.units(); ++u)
    for (std::size_t e = a.starts[u]; e < a.starts[u + 1]; ++e)
      for (std::size_t r = 0; r < a.height() && u * a.height() + r < a.rows; ++r) {
        const auto column = static_cast<std::size_t>(a.columns_of[e]);
        dense[(u * a.height() + r) * a.columns + column] = a.values[e * a.height() + r];
      }
  return dense;
}

}  // namespace gradmeter::kernels
