#include "compression/codecs/low_rank.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "compression/detail/tree_sum.hpp"
#include "compression/registry.hpp"
#include "core/format.hpp"
#include "core/random.hpp"

namespace gradmeter::compression {
namespace {

constexpr std::size_t most_rank = 1024;
/// Column j of P, [rows x rank] by rows.
struct Column {
  float* first;
  std::size_t rows, stride;
  float& operator[](std::size_t i) const { return first[i * stride]; }
};

double product(const Column& a, const Column& b) {
  return detail::sum_by_pieces(a.rows, [&](std::size_t first, std::size_t count) {
    std::array<double, detail::sum_lanes> partial{};
    for (std::size_t i = 0; i < count; ++i) {
      partial[i % detail::sum_lanes] += double{a[first + i]} * double{b[first + i]};
    }
    return detail::pairwise(partial);
  });
}

void take_away(const Column& a, double share, const Column& b) {
  for (std::size_t i = 0; i < a.rows; ++i) a[i] = static_cast<float>(double{a[i]} - share * double{b[i]});
}

}  // namespace

Matrix square_matrix(std::size_t count) {
  if (count == 0) return {};
  // The root of a double may be one off either way for large counts.
  auto columns = static_cast<std::size_t>(std::sqrt(static_cast<double>(count)));
  while (columns * columns < count) ++columns;
  while (columns > 1 && (columns - 1) * (columns - 1) >= count) --columns;
  return {(count + columns - 1) / columns, columns, count};
}

bool low_rank_pays(std::size_t rows, std::size_t columns, std::size_t rank) {
  return 2 * rank * (rows + columns) <= rows * columns;
}

std::string low_rank_refusal(const Matrix& m, std::size_t rank) {
  const std::size_t most = std::min(m.rows, m.columns);
  if (rank >= 1 && rank <= most) return {};
  return fmt::format("a matrix of {} by {} has no rank of {}: take 1 to {}, or send it dense", m.rows, m.columns, rank,
                     most);
}

void draw_first_q(const Matrix& m, std::size_t rank, std::uint64_t seed, std::uint32_t tensor, std::span<float> q) {
  const core::Random random(seed, tensor);
  for (std::size_t i = 0; i < m.q_size(rank); ++i) q[i] = static_cast<float>(random.gaussian(i));
}

void orthonormalise(const Matrix& m, std::size_t rank, std::span<float> p) {
  for (std::size_t j = 0; j < rank; ++j) {
    const Column column{p.data() + j, m.rows, rank};
    const double before = std::sqrt(product(column, column));
    for (const int pass : {1, 2}) {
      (void)pass;  // the second pass removes what rounding left of the earlier columns
      for (std::size_t e = 0; e < j; ++e) {
        const Column earlier{p.data() + e, m.rows, rank};
        take_away(column, product(column, earlier), earlier);
      }
    }
    const double factor = column_factor(before, std::sqrt(product(column, column)));
    for (std::size_t i = 0; i < m.rows; ++i) column[i] = static_cast<float>(double{column[i]} * factor);
  }
}

std::size_t rank_of(const core::ParsedName& name) { return whole_number(name, "rank", 1, most_rank); }
void check_powersgd(const core::ParsedName& name) { rank_of(name); }

}  // namespace gradmeter::compression
