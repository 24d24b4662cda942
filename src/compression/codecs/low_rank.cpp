// SPDX-License-Identifier: Apache-2.0
// Highway compiles this file once for every instruction set and picks at run time.
#include "compression/codecs/low_rank.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

#include "compression/detail/tree_sum.hpp"
#include "compression/registry.hpp"
#include "core/format.hpp"
#include "core/random.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compression/codecs/low_rank.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace gradmeter::compression::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr std::size_t partials = 16;
#if !HWY_HAVE_SCALABLE
using Floats = hn::CappedTag<float, partials>;
#else
using Floats = hn::FixedTag<float, 1>;
#endif
constexpr std::size_t lanes = hn::MaxLanes(Floats()), vectors = partials / lanes;

HWY_INLINE float pairwise_sum(std::array<float, partials> s) {
  for (std::size_t half = partials / 2; half > 0; half /= 2) {
    for (std::size_t i = 0; i < half; ++i) s[i] += s[i + half];
  }
  return s[0];
}

/// Computes `dots` dot products of one row at once, so that the row is read once for all of them.
template <std::size_t dots>
void dot_row(const float* row, std::size_t n, const float* q, std::size_t stride, float* p) {
  const Floats d;
  // All loops over sums are unrolled, so that these stay in registers.
  hn::Vec<Floats> sums[dots][vectors];
#pragma GCC unroll 4
  for (std::size_t j = 0; j < dots; ++j) {
#pragma GCC unroll 16
    for (std::size_t v = 0; v < vectors; ++v) sums[j][v] = hn::Zero(d);
  }
  std::size_t c = 0;
  for (; c + partials <= n; c += partials) {
#pragma GCC unroll 16
    for (std::size_t v = 0; v < vectors; ++v) {
      const auto x = hn::LoadU(d, row + c + v * lanes);
#pragma GCC unroll 4
      for (std::size_t j = 0; j < dots; ++j) {
        sums[j][v] = hn::Add(sums[j][v], hn::Mul(x, hn::LoadU(d, q + j * stride + c + v * lanes)));
      }
    }
  }
#pragma GCC unroll 4
  for (std::size_t j = 0; j < dots; ++j) {
    std::array<float, partials> partial;
#pragma GCC unroll 16
    for (std::size_t v = 0; v < vectors; ++v) hn::StoreU(sums[j][v], d, partial.data() + v * lanes);
    for (std::size_t i = c; i < n; ++i) partial[i - c] += row[i] * q[j * stride + i];
    p[j] = pairwise_sum(partial);
  }
}

/// Adds p[row][j]·row to q[j] for `rows` rows and every j; rows are added in order.
template <std::size_t rows>
void add_rows(const float* m, std::size_t stride, std::size_t n, const float* p, std::size_t rank, float* q,
              std::size_t q_stride) {
  const Floats d;
  std::size_t c = 0;
  for (; c + lanes <= n; c += lanes) {
    hn::Vec<Floats> x[rows];
    for (std::size_t r = 0; r < rows; ++r) x[r] = hn::LoadU(d, m + r * stride + c);
    for (std::size_t j = 0; j < rank; ++j) {
      auto sum = hn::LoadU(d, q + j * q_stride + c);
      for (std::size_t r = 0; r < rows; ++r) sum = hn::Add(sum, hn::Mul(hn::Set(d, p[r * rank + j]), x[r]));
      hn::StoreU(sum, d, q + j * q_stride + c);
    }
  }
  for (; c < n; ++c) {
    for (std::size_t j = 0; j < rank; ++j) {
      for (std::size_t r = 0; r < rows; ++r) q[j * q_stride + c] += p[r * rank + j] * m[r * stride + c];
    }
  }
}

void MultiplyRow(const float* row, std::size_t n, std::size_t rank, const float* q, std::size_t stride, float* p) {
  std::size_t j = 0;
  for (; j + 4 <= rank; j += 4) dot_row<4>(row, n, q + j * stride, stride, p + j);
  for (; j + 2 <= rank; j += 2) dot_row<2>(row, n, q + j * stride, stride, p + j);
  if (j < rank) dot_row<1>(row, n, q + j * stride, stride, p + j);
}

void AddRows(const float* m, std::size_t rows, std::size_t stride, std::size_t n, const float* p, std::size_t rank,
             float* q, std::size_t q_stride) {
  std::size_t r = 0;
  for (; r + 8 <= rows; r += 8) add_rows<8>(m + r * stride, stride, n, p + r * rank, rank, q, q_stride);
  for (; r < rows; ++r) add_rows<1>(m + r * stride, stride, n, p + r * rank, rank, q, q_stride);
}

void ReconstructRow(const float* p, std::size_t rank, const float* q, std::size_t stride, float* out, std::size_t n) {
  const Floats d;
  std::size_t c = 0;
  for (; c + lanes <= n; c += lanes) {
    auto sum = hn::Mul(hn::Set(d, p[0]), hn::LoadU(d, q + c));
    for (std::size_t j = 1; j < rank; ++j) {
      sum = hn::Add(sum, hn::Mul(hn::Set(d, p[j]), hn::LoadU(d, q + j * stride + c)));
    }
    hn::StoreU(sum, d, out + c);
  }
  for (; c < n; ++c) {
    float sum = p[0] * q[c];
    for (std::size_t j = 1; j < rank; ++j) sum += p[j] * q[j * stride + c];
    out[c] = sum;
  }
}

}  // namespace gradmeter::compression::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gradmeter::compression {

HWY_EXPORT(MultiplyRow);
HWY_EXPORT(AddRows);
HWY_EXPORT(ReconstructRow);

namespace {

/// The number of elements in row i.
std::size_t row_length(const MatrixShape& m, std::size_t i) { return std::min(m.columns, m.count - i * m.columns); }

constexpr std::size_t most_rank = 1024;

double dot_product(const Column& a, const Column& b) {
  return detail::sum_by_pieces(a.rows, [&](std::size_t first, std::size_t count) {
    std::array<double, detail::sum_lanes> partial{};
    for (std::size_t i = 0; i < count; ++i) {
      partial[i % detail::sum_lanes] += double{a[first + i]} * double{b[first + i]};
    }
    return detail::pairwise_sum(partial);
  });
}

void subtract_share(const Column& a, double share, const Column& b) {
  for (std::size_t i = 0; i < a.rows; ++i) a[i] = static_cast<float>(double{a[i]} - share * double{b[i]});
}

}  // namespace

void multiply(const MatrixShape& m, std::size_t rank, std::span<const float> x, std::span<const float> q,
              std::span<float> p) {
  for (std::size_t i = 0; i < m.rows; ++i) {
    HWY_DYNAMIC_DISPATCH(MultiplyRow)
    (x.data() + i * m.columns, row_length(m, i), rank, q.data(), m.columns, p.data() + i * rank);
  }
}

void multiply_transposed(const MatrixShape& m, std::size_t rank, std::span<const float> x, std::span<const float> p,
                         std::span<float> q) {
  std::fill_n(q.begin(), m.q_size(rank), 0.0f);
  if (m.count == 0) return;
  const std::size_t whole = m.count / m.columns, rest = m.count % m.columns;
  HWY_DYNAMIC_DISPATCH(AddRows)(x.data(), whole, m.columns, m.columns, p.data(), rank, q.data(), m.columns);
  HWY_DYNAMIC_DISPATCH(AddRows)
  (x.data() + whole * m.columns, rest != 0 ? 1 : 0, m.columns, rest, p.data() + whole * rank, rank, q.data(),
   m.columns);
}

void reconstruct(const MatrixShape& m, std::size_t rank, std::span<const float> p, std::span<const float> q,
                 std::span<float> out) {
  for (std::size_t i = 0; i < m.rows; ++i) {
    HWY_DYNAMIC_DISPATCH(ReconstructRow)
    (p.data() + i * rank, rank, q.data(), m.columns, out.data() + i * m.columns, row_length(m, i));
  }
}

MatrixShape square_matrix(std::size_t count) {
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

std::string low_rank_refusal(const MatrixShape& m, std::size_t rank) {
  const std::size_t most = std::min(m.rows, m.columns);
  if (rank >= 1 && rank <= most) return {};
  return fmt::format("a matrix of {} by {} has no rank of {}: take 1 to {}, or send it dense", m.rows, m.columns, rank,
                     most);
}

void draw_first_q(const MatrixShape& m, std::size_t rank, std::uint64_t seed, std::uint32_t tensor,
                  std::span<float> q) {
  const core::Random random(seed, tensor);
  for (std::size_t i = 0; i < m.q_size(rank); ++i) q[i] = static_cast<float>(random.gaussian(i));
}

void orthonormalise(const MatrixShape& m, std::size_t rank, std::span<float> p) {
  for (std::size_t j = 0; j < rank; ++j) {
    const Column column{p.data() + j, m.rows, rank};
    const double before = std::sqrt(dot_product(column, column));
    for (const int pass : {1, 2}) {
      (void)pass;  // the second pass removes what rounding left of the earlier columns
      for (std::size_t e = 0; e < j; ++e) {
        const Column earlier{p.data() + e, m.rows, rank};
        subtract_share(column, dot_product(column, earlier), earlier);
      }
    }
    const double factor = column_factor(before, std::sqrt(dot_product(column, column)));
    for (std::size_t i = 0; i < m.rows; ++i) column[i] = static_cast<float>(double{column[i]} * factor);
  }
}

std::size_t rank_of(const core::ParsedName& name) { return whole_number(name, "rank", 1, most_rank); }
void check_powersgd(const core::ParsedName& name) { rank_of(name); }

}  // namespace gradmeter::compression
#endif
