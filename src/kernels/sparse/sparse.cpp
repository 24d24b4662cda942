// SPDX-License-Identifier: Apache-2.0
// Sparse times dense. Sums for one row of C (or up to 16, if A is blocked) and as many columns as fit stay in
// registers, while the entries of A are read once. Highway compiles the loops for every instruction set and picks at
// run time.
#include "kernels/sparse/sparse.hpp"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/sparse/sparse.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();

namespace gradmeter::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// The work of one call: the units [first, last) of A.
struct Work {
  const SparseMatrix& a;
  const float* b;
  std::size_t n;
  float* c;
  std::size_t first, last;
};

HWY_INLINE std::size_t offset(const std::int32_t* column, std::size_t n) {
  return static_cast<std::size_t>(*column) * n;
}

// Computes C if B has one column. Each lane multiplies another entry of a row of A, so the numbers of B are gathered.
void CsrColumn(const Work& w) {
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> di;
  const std::size_t lanes = hn::Lanes(d);
  const float* values = w.a.values.data();
  const std::int32_t* columns = w.a.columns_of.data();
  for (std::size_t row = w.first; row < w.last; ++row) {
    const std::size_t end = w.a.starts[row + 1];
    std::size_t e = w.a.starts[row];
    auto sum0 = hn::Zero(d), sum1 = hn::Zero(d);
    for (; e + 2 * lanes <= end; e += 2 * lanes) {
      const auto at0 = hn::LoadU(di, columns + e), at1 = hn::LoadU(di, columns + e + lanes);
      sum0 = hn::MulAdd(hn::LoadU(d, values + e), hn::GatherIndex(d, w.b, at0), sum0);
      sum1 = hn::MulAdd(hn::LoadU(d, values + e + lanes), hn::GatherIndex(d, w.b, at1), sum1);
    }
    if (e + lanes <= end) {
      sum0 = hn::MulAdd(hn::LoadU(d, values + e), hn::GatherIndex(d, w.b, hn::LoadU(di, columns + e)), sum0);
      e += lanes;
    }
    float sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(sum0, sum1)));
    for (; e < end; ++e) sum += values[e] * w.b[columns[e]];
    w.c[row] = sum;
  }
}

// Computes columns [j, j + lanes of d). Four entries are multiplied at a time, each with a sum of its own, so that no
// addition waits for the one before.
template <class D>
HWY_INLINE void CsrVector(D d, const Work& w, std::size_t j) {
  const std::int32_t* columns = w.a.columns_of.data();
  const float *values = w.a.values.data(), *b = w.b + j;
  for (std::size_t row = w.first; row < w.last; ++row) {
    const std::size_t end = w.a.starts[row + 1];
    std::size_t e = w.a.starts[row];
    auto s0 = hn::Zero(d), s1 = hn::Zero(d), s2 = hn::Zero(d), s3 = hn::Zero(d);
    for (; e + 4 <= end; e += 4) {
      s0 = hn::MulAdd(hn::Set(d, values[e]), hn::LoadU(d, b + offset(columns + e, w.n)), s0);
      s1 = hn::MulAdd(hn::Set(d, values[e + 1]), hn::LoadU(d, b + offset(columns + e + 1, w.n)), s1);
      s2 = hn::MulAdd(hn::Set(d, values[e + 2]), hn::LoadU(d, b + offset(columns + e + 2, w.n)), s2);
      s3 = hn::MulAdd(hn::Set(d, values[e + 3]), hn::LoadU(d, b + offset(columns + e + 3, w.n)), s3);
    }
    for (; e < end; ++e) s0 = hn::MulAdd(hn::Set(d, values[e]), hn::LoadU(d, b + offset(columns + e, w.n)), s0);
    hn::StoreU(hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)), d, w.c + row * w.n + j);
  }
}

// Computes columns [j, j + 4 lanes).
void CsrFourVectors(const Work& w, std::size_t j) {
  const hn::ScalableTag<float> d;
  const std::size_t lanes = hn::Lanes(d);
  const std::int32_t* columns = w.a.columns_of.data();
  const float *values = w.a.values.data(), *b = w.b + j;
  for (std::size_t row = w.first; row < w.last; ++row) {
    auto s0 = hn::Zero(d), s1 = hn::Zero(d), s2 = hn::Zero(d), s3 = hn::Zero(d);
    for (std::size_t e = w.a.starts[row]; e < w.a.starts[row + 1]; ++e) {
      const auto value = hn::Set(d, values[e]);
      const float* in = b + offset(columns + e, w.n);
      s0 = hn::MulAdd(value, hn::LoadU(d, in), s0);
      s1 = hn::MulAdd(value, hn::LoadU(d, in + lanes), s1);
      s2 = hn::MulAdd(value, hn::LoadU(d, in + 2 * lanes), s2);
      s3 = hn::MulAdd(value, hn::LoadU(d, in + 3 * lanes), s3);
    }
    float* out = w.c + row * w.n + j;
    hn::StoreU(s0, d, out);
    hn::StoreU(s1, d, out + lanes);
    hn::StoreU(s2, d, out + 2 * lanes);
    hn::StoreU(s3, d, out + 3 * lanes);
  }
}

/// Calls tile(j) for tiles of `width` columns from j = 0, width, 2·width … on. If n is not a multiple of the width, the
/// last tile is moved back to end at n, and computes some columns again. n is at least the width.
template <class Tile>
HWY_INLINE void tiles(std::size_t n, std::size_t width, const Tile& tile) {
  for (std::size_t j = 0; j + width <= n; j += width) tile(j);
  if (n % width != 0) tile(n - width);
}

void Csr(const SparseMatrix& a, const float* b, std::size_t n, float* c, std::size_t first, std::size_t last) {
  const Work w{a, b, n, c, first, last};
  const hn::ScalableTag<float> full;
  const std::size_t lanes = hn::Lanes(full);
  if (n == 1) {
    CsrColumn(w);
  } else if (n >= 4 * lanes) {
    tiles(n, 4 * lanes, [&](std::size_t j) HWY_ATTR { CsrFourVectors(w, j); });
  } else if (n >= lanes) {
    tiles(n, lanes, [&](std::size_t j) HWY_ATTR { CsrVector(hn::ScalableTag<float>(), w, j); });
  } else if (const hn::CappedTag<float, 8> eight; n >= hn::Lanes(eight)) {
    tiles(n, hn::Lanes(eight), [&](std::size_t j) HWY_ATTR { CsrVector(hn::CappedTag<float, 8>(), w, j); });
  } else if (const hn::CappedTag<float, 4> four; n >= hn::Lanes(four)) {
    tiles(n, hn::Lanes(four), [&](std::size_t j) HWY_ATTR { CsrVector(hn::CappedTag<float, 4>(), w, j); });
  } else {  // n is 2 or 3
    const hn::CappedTag<float, 2> two;
    tiles(n, hn::Lanes(two), [&](std::size_t j) HWY_ATTR { CsrVector(hn::CappedTag<float, 2>(), w, j); });
  }
}

constexpr std::size_t height = SparseMatrix::block_rows;
using Rows = hn::CappedTag<float, height>;

/// Stores the lanes of v to rows [row, row + lanes) of column j of C; rows below the last one of A are left out.
template <class V>
HWY_INLINE void StoreColumn(V v, const Work& w, std::size_t row, std::size_t j) {
  const Rows d;
  if (w.n == 1 && row + hn::Lanes(d) <= w.a.rows) return hn::StoreU(v, d, w.c + row);
  HWY_ALIGN float lane[height];
  hn::Store(v, d, lane);
  for (std::size_t i = 0; i < hn::Lanes(d) && row + i < w.a.rows; ++i) w.c[(row + i) * w.n + j] = lane[i];
}

// Computes columns [j, j + count), where count is 1, 2 or 4. The lanes of a vector are rows of a unit. There are always
// four sums: with fewer than four columns, each column has several, for which its entries take turns.
template <std::size_t count>
HWY_INLINE void BlockedColumns(const Work& w, std::size_t j) {
  const Rows d;
  // Sum i (s0 to s3) belongs to column j + ji and to entry e + ei of the `turns` entries that are taken at a time.
  constexpr std::size_t turns = 4 / count, j1 = count > 1 ? 1 : 0, j2 = count > 2 ? 2 : 0, j3 = count > 2 ? 3 : j1;
  constexpr std::size_t e1 = count == 1 ? 1 : 0, e2 = count == 1 ? 2 : count == 2 ? 1 : 0, e3 = turns - 1;
  const std::int32_t* columns = w.a.columns_of.data();
  const float* b = w.b + j;
  for (std::size_t unit = w.first; unit < w.last; ++unit)
    for (std::size_t r = 0; r < height; r += hn::Lanes(d)) {
      const float* values = w.a.values.data() + r;
      const std::size_t end = w.a.starts[unit + 1];
      std::size_t e = w.a.starts[unit];
      auto s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
      const auto value = [&](std::size_t i) HWY_ATTR { return hn::LoadU(d, values + i * height); };
      const auto factor = [&](std::size_t i, std::size_t column)
                              HWY_ATTR { return hn::Set(d, b[offset(columns + i, w.n) + column]); };
      for (; e + turns <= end; e += turns) {
        s0 = hn::MulAdd(value(e), factor(e, 0), s0);
        s1 = hn::MulAdd(value(e + e1), factor(e + e1, j1), s1);
        s2 = hn::MulAdd(value(e + e2), factor(e + e2, j2), s2);
        s3 = hn::MulAdd(value(e + e3), factor(e + e3, j3), s3);
      }
      for (; e < end; ++e) {  // with four columns `turns` is 1, so there is no remainder
        s0 = hn::MulAdd(value(e), factor(e, 0), s0);
        if (count == 2) s1 = hn::MulAdd(value(e), factor(e, 1), s1);
      }
      const std::size_t row = unit * height + r;
      if constexpr (count == 1) {
        StoreColumn(hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)), w, row, j);
      } else if constexpr (count == 2) {
        StoreColumn(hn::Add(s0, s2), w, row, j);
        StoreColumn(hn::Add(s1, s3), w, row, j + 1);
      } else {
        StoreColumn(s0, w, row, j), StoreColumn(s1, w, row, j + 1);
        StoreColumn(s2, w, row, j + 2), StoreColumn(s3, w, row, j + 3);
      }
    }
}

// Computes columns [j, j + 2 lanes), four rows of a unit at a time.
void BlockedTwoVectors(const Work& w, std::size_t j) {
  const hn::ScalableTag<float> d;
  const std::size_t lanes = hn::Lanes(d);
  for (std::size_t unit = w.first; unit < w.last; ++unit)
    for (std::size_t r = 0; r < height; r += 4) {
      const std::size_t row = unit * height + r;
      if (row >= w.a.rows) break;
      auto a0 = hn::Zero(d), a1 = a0, a2 = a0, a3 = a0, b0 = a0, b1 = a0, b2 = a0, b3 = a0;
      for (std::size_t e = w.a.starts[unit]; e < w.a.starts[unit + 1]; ++e) {
        const float* in = w.b + offset(w.a.columns_of.data() + e, w.n) + j;
        const float* value = w.a.values.data() + e * height + r;
        const auto left = hn::LoadU(d, in), right = hn::LoadU(d, in + lanes);
        const auto v0 = hn::Set(d, value[0]), v1 = hn::Set(d, value[1]);
        a0 = hn::MulAdd(v0, left, a0), b0 = hn::MulAdd(v0, right, b0);
        a1 = hn::MulAdd(v1, left, a1), b1 = hn::MulAdd(v1, right, b1);
        const auto v2 = hn::Set(d, value[2]), v3 = hn::Set(d, value[3]);
        a2 = hn::MulAdd(v2, left, a2), b2 = hn::MulAdd(v2, right, b2);
        a3 = hn::MulAdd(v3, left, a3), b3 = hn::MulAdd(v3, right, b3);
      }
      float* out = w.c + row * w.n + j;
      hn::StoreU(a0, d, out), hn::StoreU(b0, d, out + lanes);
      if (row + 1 < w.a.rows) hn::StoreU(a1, d, out + w.n), hn::StoreU(b1, d, out + w.n + lanes);
      if (row + 2 < w.a.rows) hn::StoreU(a2, d, out + 2 * w.n), hn::StoreU(b2, d, out + 2 * w.n + lanes);
      if (row + 3 < w.a.rows) hn::StoreU(a3, d, out + 3 * w.n), hn::StoreU(b3, d, out + 3 * w.n + lanes);
    }
}

void Blocked(const SparseMatrix& a, const float* b, std::size_t n, float* c, std::size_t first, std::size_t last) {
  const Work w{a, b, n, c, first, last};
  const std::size_t wide = 2 * hn::Lanes(hn::ScalableTag<float>());
  if (n >= wide && n >= 8) return tiles(n, wide, [&](std::size_t j) HWY_ATTR { BlockedTwoVectors(w, j); });
  if (n >= 4) return tiles(n, 4, [&](std::size_t j) HWY_ATTR { BlockedColumns<4>(w, j); });
  if (n >= 2) return tiles(n, 2, [&](std::size_t j) HWY_ATTR { BlockedColumns<2>(w, j); });
  BlockedColumns<1>(w, 0);
}

}  // namespace gradmeter::kernels::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "kernels/host/memory.hpp"
#include "kernels/host/threads.hpp"

namespace gradmeter::kernels {

HWY_EXPORT(Csr);
HWY_EXPORT(Blocked);

void sparse_multiply(const SparseMatrix& a, std::span<const float> b, std::size_t n, std::span<float> c) {
  require_elements("sparse_multiply: b", b.size(), a.columns * n);
  require_elements("sparse_multiply: c", c.size(), a.rows * n);
  if (n == 0 || a.rows == 0) return;
  constexpr std::size_t thread_multiply_adds = 1 << 15;  // the fewest multiply-adds for each thread
  const std::size_t unit_multiply_adds = std::max<std::size_t>(a.values.size() / a.units() * n, 1);
  split(a.units(), thread_multiply_adds / unit_multiply_adds + 1, [&](std::size_t first, std::size_t count) {
    if (a.format == SparseFormat::blocked) {
      HWY_DYNAMIC_DISPATCH(Blocked)(a, b.data(), n, c.data(), first, first + count);
    } else {
      HWY_DYNAMIC_DISPATCH(Csr)(a, b.data(), n, c.data(), first, first + count);
    }
  });
}

}  // namespace gradmeter::kernels

#endif  // HWY_ONCE
