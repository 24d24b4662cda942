// SPDX-License-Identifier: Apache-2.0
#include "kernels/pointwise/pointwise.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/pointwise/vector_ops.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "hwy/highway.h"
#include "kernels/lanes-inl.hpp"

HWY_BEFORE_NAMESPACE();

namespace gradmeter::kernels::HWY_NAMESPACE {

// Applies an operation of vectors to whole arrays.
template <class Operation>
HWY_INLINE void pass(const float* a, const float* b, float* out, std::size_t n, const Operation& operation) {
  each(n, [=](auto d, std::size_t i) HWY_ATTR { store(operation(d, load(d, a + i), load(d, b + i)), d, out + i); });
}
template <class Operation>
HWY_INLINE void pass(const float* a, float* out, std::size_t n, const Operation& operation) {
  each(n, [=](auto d, std::size_t i) HWY_ATTR { store(operation(d, load(d, a + i)), d, out + i); });
}

void BinaryPass(Binary op, const float* a, const float* b, float* out, std::size_t n) {
  switch (op) {
    case Binary::add:
      return pass(a, b, out, n, [](auto, auto x, auto y) HWY_ATTR { return hn::Add(x, y); });
    case Binary::subtract:
      return pass(a, b, out, n, [](auto, auto x, auto y) HWY_ATTR { return hn::Sub(x, y); });
    case Binary::multiply:
      return pass(a, b, out, n, [](auto, auto x, auto y) HWY_ATTR { return hn::Mul(x, y); });
    case Binary::divide:
      return pass(a, b, out, n, [](auto, auto x, auto y) HWY_ATTR { return hn::Div(x, y); });
  }
}

void UnaryPass(Unary op, const float* a, float number, float* out, std::size_t n) {
  switch (op) {
    case Unary::add:
      return pass(a, out, n, [=](auto d, auto x) HWY_ATTR { return hn::Add(x, hn::Set(d, number)); });
    case Unary::multiply:
      return pass(a, out, n, [=](auto d, auto x) HWY_ATTR { return hn::Mul(x, hn::Set(d, number)); });
    case Unary::square_root:
      return pass(a, out, n, [](auto, auto x) HWY_ATTR { return hn::Sqrt(x); });
    case Unary::sigmoid:
      return pass(a, out, n, [](auto d, auto x) HWY_ATTR { return sigmoid(d, x); });
    case Unary::tanh:
      return pass(a, out, n, [](auto d, auto x) HWY_ATTR { return hyperbolic_tangent(d, x); });
  }
}

const char* Target() { return hwy::TargetName(HWY_TARGET); }

}  // namespace gradmeter::kernels::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "kernels/host/memory.hpp"
#include "kernels/host/threads.hpp"

namespace gradmeter::kernels {

HWY_EXPORT(BinaryPass);
HWY_EXPORT(UnaryPass);
HWY_EXPORT(Target);

namespace {
// The fewest elements for each thread: enough work to outweigh the start of a team of threads.
constexpr std::size_t grain = 1 << 16;
}  // namespace

void vector_op(Binary op, std::span<const float> a, std::span<const float> b, std::span<float> out) {
  require_elements("vector_op: b", b.size(), a.size());
  require_elements("vector_op: out", out.size(), a.size());
  split(a.size(), grain, [&](std::size_t first, std::size_t count) {
    HWY_DYNAMIC_DISPATCH(BinaryPass)(op, a.data() + first, b.data() + first, out.data() + first, count);
  });
}

void vector_op(Unary op, std::span<const float> a, float number, std::span<float> out) {
  require_elements("vector_op: out", out.size(), a.size());
  split(a.size(), grain, [&](std::size_t first, std::size_t count) {
    HWY_DYNAMIC_DISPATCH(UnaryPass)(op, a.data() + first, number, out.data() + first, count);
  });
}

std::string vector_target() { return HWY_DYNAMIC_DISPATCH(Target)(); }

}  // namespace gradmeter::kernels

#endif  // HWY_ONCE
