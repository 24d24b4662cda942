// SPDX-License-Identifier: Apache-2.0
// What PowerSGD returns on two ranks is recognised as a projection, whatever the data; and nothing else is.
#include "bench/engine/coded_sum.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "compression/codecs/low_rank.hpp"
#include "core/random.hpp"

namespace gradmeter::bench {
namespace {

using compression::MatrixShape;
using Floats32 = std::vector<float>;

constexpr std::size_t kept_rank = 4;

/// One step on two ranks: their numbers, the summed factors, and what is made of these.
struct TwoRanks {
  MatrixShape matrix;
  Floats32 mine, other, p, q;

  TwoRanks(const MatrixShape& m, Floats32 a, Floats32 b) : matrix(m), mine(std::move(a)), other(std::move(b)) {
    Floats32 first(m.q_size(kept_rank));
    compression::draw_first_q(m, kept_rank, 5, 1, first);
    p = sum_of(m.p_size(kept_rank), [&](const Floats32& x, Floats32& to) { multiply(m, kept_rank, x, first, to); });
    orthonormalise(m, kept_rank, p);
    q = sum_of(m.q_size(kept_rank),
               [&](const Floats32& x, Floats32& to) { multiply_transposed(m, kept_rank, x, p, to); });
  }
  Floats32 result() const {
    Floats32 out(matrix.count);
    reconstruct(matrix, kept_rank, p, q, out);
    return out;
  }
  std::string fault(const Floats32& result) const {
    std::vector<double> exact(matrix.count);
    for (std::size_t i = 0; i < exact.size(); ++i) exact[i] = double{mine[i]} + double{other[i]};
    ProjectedSum sum(result, matrix.columns, 1);
    const std::size_t half = exact.size() / 2;
    sum.add(0, std::span(exact).first(half));
    sum.add(half, std::span(exact).subspan(half));
    return sum.fault();
  }

 private:
  Floats32 sum_of(std::size_t n, const std::function<void(const Floats32&, Floats32&)>& factor) const {
    Floats32 a(n), b(n);
    factor(mine, a);
    factor(other, b);
    for (std::size_t i = 0; i < n; ++i) a[i] += b[i];
    return a;
  }
};

Floats32 gaussian_values(std::size_t n, std::uint64_t stream) {
  const core::Random random(3, stream);
  Floats32 x(n);
  for (std::size_t i = 0; i < n; ++i) x[i] = static_cast<float>(random.gaussian(i));
  return x;
}
TwoRanks two_gaussians(std::size_t n) {
  return {compression::square_matrix(n), gaussian_values(n, 2 * n), gaussian_values(n, 2 * n + 1)};
}

Floats32 scaled(Floats32 x, float factor) {
  for (float& v : x) v *= factor;
  return x;
}

TEST(ProjectedSum, HoldsWhateverTheLastRowLacks) {
  for (std::size_t n = 1024; n < 4096; n += 7) {
    const auto two = two_gaussians(n);
    ASSERT_EQ(two.fault(two.result()), "") << n << " elements by " << two.matrix.columns;
  }
}

TEST(ProjectedSum, FindsWhatIsOffByOnePercent) {
  for (const std::size_t n : {std::size_t{1024}, std::size_t{1025}, std::size_t{2048}, std::size_t{4099}}) {
    const auto two = two_gaussians(n);
    const auto right = two.result();
    for (const float factor : {0.0f, 0.99f, 1.01f, 2.0f}) EXPECT_NE(two.fault(scaled(right, factor)), "") << n;
    auto lost = two;  // the other rank's contribution to a tenth of one column of Q, behind the short row's end
    Floats32 own(two.q.size());
    multiply_transposed(two.matrix, kept_rank, two.mine, two.p, own);
    const std::size_t end = two.matrix.columns, first = end - end / 10;
    for (std::size_t c = first; c < end; ++c) lost.q[c] = own[c];
    EXPECT_NE(two.fault(lost.result()), "") << n;
    auto skew = two;  // columns of P that are not orthogonal
    for (std::size_t i = 0; i < two.matrix.rows; ++i) skew.p[i * kept_rank] += 0.1f * two.p[i * kept_rank + 1];
    multiply_transposed(two.matrix, kept_rank, two.mine, skew.p, skew.q);
    multiply_transposed(two.matrix, kept_rank, two.other, skew.p, own);
    for (std::size_t i = 0; i < own.size(); ++i) skew.q[i] += own[i];
    EXPECT_NE(two.fault(skew.result()), "") << n;
  }
}

/// Floats32 by row and column of each rank's matrix.
struct DependentData {
  const char* name;
  std::function<float(std::size_t row, std::size_t column, int rank)> value;
};

TEST(ProjectedSum, HoldsForDataWhoseColumnsAreDependent) {
  const auto noise = gaussian_values(std::size_t{1} << 14, 1);
  const auto a = gaussian_values(128, 2), b = gaussian_values(128, 3);
  const auto noise_at = [&](std::size_t i, std::size_t c, int r) {
    return noise[(i * 97 + c + static_cast<std::size_t>(r) * 5003) % noise.size()];
  };
  const std::vector<DependentData> shapes{
      {"one outer product, of one sample",
       [&](auto i, auto c, int r) { return a[i] * b[c] * (r == 0 ? 1.0f : -0.3f); }},
      {"an outer product of each rank", [&](auto i, auto c, int r) { return r == 0 ? a[i] * b[c] : b[i] * a[c]; }},
      {"and noise of a millionth", [&](auto i, auto c, int r) { return a[i] * b[c] + 1e-6f * noise_at(i, c, r); }},
      {"and noise of a thousandth", [&](auto i, auto c, int r) { return a[i] * b[c] + 1e-3f * noise_at(i, c, r); }},
      {"one number", [&](auto, auto, int) { return 0.1f; }},
      {"one number but for its last bits", [&](auto i, auto c, int r) { return 1 + 1e-7f * noise_at(i, c, r); }},
      {"one outlier", [&](auto i, auto c, int r) { return i == 7 && c == 9 && r == 1 ? 1e20f : noise_at(i, c, r); }},
      {"very small", [&](auto i, auto c, int r) { return 1e-30f * noise_at(i, c, r); }},
      {"one row", [&](auto i, auto c, int r) { return i == 7 ? noise_at(i, c, r) : 0; }},
      {"one column", [&](auto i, auto c, int r) { return c == 9 ? noise_at(i, c, r) : 0; }},
  };
  for (const std::size_t n : {std::size_t{1024}, std::size_t{2048}, std::size_t{4099}}) {
    const MatrixShape m = compression::square_matrix(n);
    for (const auto& shape : shapes) {
      Floats32 x[2] = {Floats32(n), Floats32(n)};
      for (std::size_t i = 0; i < 2 * n; ++i) {
        x[i / n][i % n] = shape.value(i % n / m.columns, i % n % m.columns, static_cast<int>(i / n));
      }
      const TwoRanks two(m, x[0], x[1]);
      EXPECT_EQ(two.fault(two.result()), "") << n << ": " << shape.name;
      EXPECT_NE(two.fault(scaled(two.result(), 0.99f)), "") << n << ": " << shape.name;
    }
    const TwoRanks zeros(m, Floats32(n), Floats32(n));
    EXPECT_EQ(zeros.result(), Floats32(n));
  }
}

}  // namespace
}  // namespace gradmeter::bench
