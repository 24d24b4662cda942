// SPDX-License-Identifier: Apache-2.0
// The loops of a training step that touch each parameter or activation once. Memory limits them, so they use full
// vectors and read nothing twice. Highway compiles them for every instruction set and picks at run time. Each step of
// the arithmetic is rounded (no fused multiply-add; the build forbids contraction here), so that the bits are the same
// on every processor and for any number of threads.
#include "kernels/pointwise/pointwise.hpp"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/pointwise/pointwise.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "hwy/highway.h"
#include "kernels/lanes-inl.hpp"

HWY_BEFORE_NAMESPACE();

namespace gradmeter::kernels::HWY_NAMESPACE {

void ReluBackward(const float* activation, float* gradient, std::size_t n) {
  each(n, [=](auto d, std::size_t i) HWY_ATTR {
    const auto passes = hn::Gt(hn::LoadU(d, activation + i), hn::Zero(d));
    hn::StoreU(hn::IfThenElseZero(passes, hn::LoadU(d, gradient + i)), d, gradient + i);
  });
}

// Adds up columns [0, n) of rows that are `stride` apart, row after row. It adds four rows to `out` in one pass, so
// that `out` is loaded and stored a quarter as often.
void ColumnSums(const float* matrix, std::size_t rows, std::size_t stride, float* out, std::size_t n) {
  std::fill(out, out + n, 0.0F);
  std::size_t r = 0;
  for (; r + 4 <= rows; r += 4) {
    const float* row = matrix + r * stride;
    each(n, [=](auto d, std::size_t i) HWY_ATTR {
      auto sum = hn::LoadU(d, out + i);
      for (std::size_t k = 0; k < 4; ++k) sum = hn::Add(sum, hn::LoadU(d, row + k * stride + i));
      hn::StoreU(sum, d, out + i);
    });
  }
  for (; r < rows; ++r) {
    const float* row = matrix + r * stride;
    each(n, [=](auto d, std::size_t i)
                HWY_ATTR { hn::StoreU(hn::Add(hn::LoadU(d, out + i), hn::LoadU(d, row + i)), d, out + i); });
  }
}

void Scale(float* values, float factor, std::size_t n) {
  each(n, [=](auto d, std::size_t i)
              HWY_ATTR { hn::StoreU(hn::Mul(hn::LoadU(d, values + i), hn::Set(d, factor)), d, values + i); });
}

void ToFloats(const std::uint16_t* from, float* to, std::size_t n) {
  each(n, [=](auto d, std::size_t i) HWY_ATTR { hn::StoreU(load(d, from + i), d, to + i); });
}
void ToBf16(const float* from, std::uint16_t* to, std::size_t n) {
  each(n, [=](auto d, std::size_t i) HWY_ATTR { store(hn::LoadU(d, from + i), d, to + i); });
}
void RoundToBf16(const float* from, float* to, std::size_t n) {
  each(n, [=](auto d, std::size_t i) HWY_ATTR {
    const hn::Rebind<std::uint32_t, decltype(d)> whole;
    const auto upper = hn::And(upper_halves(d, hn::LoadU(d, from + i)), hn::Set(whole, 0xffff0000u));
    hn::StoreU(hn::BitCast(d, upper), d, to + i);
  });
}

}  // namespace gradmeter::kernels::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "kernels/host/memory.hpp"
#include "kernels/host/threads.hpp"
#include "kernels/pointwise/row_sums.hpp"

namespace gradmeter::kernels {

HWY_EXPORT(ReluBackward);
HWY_EXPORT(ColumnSums);
HWY_EXPORT(Scale);
HWY_EXPORT(ToFloats);
HWY_EXPORT(ToBf16);
HWY_EXPORT(RoundToBf16);

namespace {
// The fewest elements for each thread: enough work to outweigh the start of a team of threads.
constexpr std::size_t grain = 1 << 16;
}  // namespace

void relu_backward(std::span<const float> activation, std::span<float> gradient) {
  require_elements("relu_backward: gradient", gradient.size(), activation.size());
  split(gradient.size(), grain, [&](std::size_t first, std::size_t count) {
    HWY_DYNAMIC_DISPATCH(ReluBackward)(activation.data() + first, gradient.data() + first, count);
  });
}

void column_sums(std::span<const float> matrix, std::size_t columns, std::span<float> out) {
  require_elements("column_sums: out", out.size(), columns);
  require_rows("column_sums: matrix", matrix.size(), columns);
  const std::size_t rows = columns == 0 ? 0 : matrix.size() / columns;
  split(columns, grain / std::max<std::size_t>(rows, 1) + 1, [&](std::size_t first, std::size_t count) {
    const std::span<float> to = out.subspan(first, count);
    const auto add_piece = [&](std::size_t row, std::size_t n) {
      HWY_DYNAMIC_DISPATCH(ColumnSums)(matrix.data() + row * columns + first, n, columns, to.data(), count);
    };
    if (rows <= rows_of_piece) return add_piece(0, rows);
    RowSums sums(count);
    for (std::size_t row = 0; row < rows; row += rows_of_piece) {
      add_piece(row, std::min(rows_of_piece, rows - row));
      sums.add_piece(to.data());
    }
    sums.finish(to);
  });
}

void scale(std::span<float> values, float factor) {
  split(values.size(), grain, [&](std::size_t first, std::size_t count) {
    HWY_DYNAMIC_DISPATCH(Scale)(values.data() + first, factor, count);
  });
}

void to_floats(std::span<const Bf16> from, std::span<float> to) {
  require_elements("to_floats: to", to.size(), from.size());
  split(to.size(), grain, [&](std::size_t first, std::size_t count) {
    const auto* bits = reinterpret_cast<const std::uint16_t*>(from.data() + first);
    HWY_DYNAMIC_DISPATCH(ToFloats)(bits, to.data() + first, count);
  });
}

void to_bf16(std::span<const float> from, std::span<Bf16> to) {
  require_elements("to_bf16: to", to.size(), from.size());
  split(to.size(), grain, [&](std::size_t first, std::size_t count) {
    auto* bits = reinterpret_cast<std::uint16_t*>(to.data() + first);
    HWY_DYNAMIC_DISPATCH(ToBf16)(from.data() + first, bits, count);
  });
}

void round_to_bf16(std::span<const float> from, std::span<float> to) {
  require_elements("round_to_bf16: to", to.size(), from.size());
  split(to.size(), grain, [&](std::size_t first, std::size_t count) {
    HWY_DYNAMIC_DISPATCH(RoundToBf16)(from.data() + first, to.data() + first, count);
  });
}

}  // namespace gradmeter::kernels

#endif  // HWY_ONCE
