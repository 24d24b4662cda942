// SPDX-License-Identifier: Apache-2.0
// Adam, the LSTM cell, what is stored in bf16, and the operations of unfused updates. SGD and momentum in fp32:
// pointwise_test.cpp.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <stdexcept>
#include <vector>

#include "core/element.hpp"
#include "kernels/number_format.hpp"
#include "kernels/pointwise/pointwise.hpp"
#include "support/instruction_sets.hpp"

namespace gradmeter::kernels {
namespace {

using tests::on_every_target;
constexpr std::size_t sizes[] = {0, 1, 15, 16, 17, 1000, 200001};
constexpr float guard = 12345.0F;

std::vector<float> gaussians(std::size_t n, std::uint64_t seed, double scale = 1) {
  std::vector<float> values(n);
  fill_gaussian(values, seed, scale);
  return values;
}

// A buffer with one element after its end that nobody may touch.
template <class T>
struct Guarded {
  std::vector<T> all;
  T last;
  Guarded(std::vector<T> values, T end) : all(std::move(values)), last(end) { all.push_back(end); }
  std::span<T> span() { return {all.data(), all.size() - 1}; }
  std::vector<T> values() const { return {all.begin(), all.end() - 1}; }
  bool intact() const { return all.back() == last; }
};

Bf16 half(float x) { return Bf16{core::from_float(core::bf16_format, x)}; }
float whole(Bf16 x) { return core::to_float(core::bf16_format, static_cast<std::uint16_t>(x)); }
std::vector<Bf16> half(const std::vector<float>& x) {
  std::vector<Bf16> out;
  for (const float v : x) out.push_back(half(v));
  return out;
}
std::vector<float> whole(const std::vector<Bf16>& x) {
  std::vector<float> out;
  for (const Bf16 v : x) out.push_back(whole(v));
  return out;
}

struct AdamState {
  std::vector<float> w, m, v, g;
  explicit AdamState(std::size_t n) : w(gaussians(n, 0)), m(gaussians(n, 1)), v(gaussians(n, 2)), g(gaussians(n, 3)) {
    for (float& x : v) x *= x;
  }
};

TEST(Adam, RoundsEachOperationOnEveryInstructionSet) {
  const AdamParameters p{.step = 0.01F, .update = 3};
  for (const std::size_t n : sizes) {
    const AdamState start(n);
    AdamState expected = start, reference = start;
    for (std::size_t i = 0; i < n; ++i) {
      const float decayed = p.beta1 * start.m[i], fresh = (1 - p.beta1) * start.g[i];
      expected.m[i] = decayed + fresh;
      const float square = start.g[i] * start.g[i], weighted = square * (1 - p.beta2), old = p.beta2 * start.v[i];
      expected.v[i] = old + weighted;
      const float below = std::sqrt(expected.v[i]) + p.epsilon, ratio = expected.m[i] / below,
                  change = ratio * p.rate();
      expected.w[i] = start.w[i] - change;
    }
    on_every_target([&] {
      Guarded w(start.w, guard), m(start.m, guard), v(start.v, guard);
      adam(w.span(), m.span(), v.span(), start.g, p);
      EXPECT_EQ(w.values(), expected.w);
      EXPECT_EQ(m.values(), expected.m);
      EXPECT_EQ(v.values(), expected.v);
      EXPECT_TRUE(w.intact() && m.intact() && v.intact());
    });
    adam_reference(reference.w, reference.m, reference.v, start.g, p);
    for (std::size_t i = 0; i < n; ++i) {
      ASSERT_NEAR(expected.m[i], reference.m[i], 0x1p-21) << i;
      ASSERT_NEAR(expected.v[i], reference.v[i], 0x1p-21 * (1 + reference.v[i])) << i;
      ASSERT_NEAR(expected.w[i], reference.w[i], 0x1p-20 * (6 + std::fabs(start.w[i] - reference.w[i]))) << i;
    }
  }
}

// With empty averages the first step is step·g/|g| whatever the gradient's size: what the correction of bias is for.
TEST(Adam, TheFirstStepIsAsLongAsTheStep) {
  for (const float gradient : {0.5F, 8.0F}) {
    std::vector<float> w(40, 1.0F), m(40), v(40);
    adam(w, m, v, std::vector<float>(40, gradient), {.step = 0.125F});
    for (const float x : w) EXPECT_NEAR(x, 0.875F, 1e-6);
  }
}

TEST(LstmCell, IsWithinItsBoundOfTheReferenceOnEveryInstructionSet) {
  for (const std::size_t n : sizes) {
    const std::vector<float> i = gaussians(n, 1, 3), f = gaussians(n, 2, 3), g = gaussians(n, 3, 3);
    const std::vector<float> o = gaussians(n, 4, 3), c = gaussians(n, 5);
    std::vector<float> reference_c = c, reference_h(n);
    lstm_cell_reference({i, f, g, o}, reference_c, reference_h);
    on_every_target([&] {
      Guarded cell(c, guard), h(std::vector<float>(n), guard);
      lstm_cell({i, f, g, o}, cell.span(), h.span());
      EXPECT_TRUE(cell.intact() && h.intact());
      for (std::size_t j = 0; j < n; ++j) {
        ASSERT_NEAR(cell.all[j], reference_c[j], 0x1p-20 * (1 + std::fabs(c[j]))) << j;
        ASSERT_NEAR(h.all[j], reference_h[j], 0x1p-20 * (1 + std::fabs(c[j]))) << j;
      }
    });
  }
}

// The bound that the header states, over all magnitudes from 2^-30 to 2^6 and at the ends.
TEST(VectorOp, SigmoidAndTanhAreWithinEightRoundings) {
  std::vector<float> x{0.0F, -0.0F, 87.0F, -87.0F, 1e-30F, -1e-30F, 20.0F, -20.0F};
  for (float magnitude = 0x1p-30F; magnitude < 64; magnitude *= 1.0037F)
    x.push_back(magnitude), x.push_back(-magnitude);
  std::vector<float> sigmoid(x.size()), tanh(x.size());
  on_every_target([&] {
    vector_op(Unary::sigmoid, x, 0, sigmoid);
    vector_op(Unary::tanh, x, 0, tanh);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double s = 1 / (1 + std::exp(-double{x[i]})), t = std::tanh(double{x[i]});
      ASSERT_LE(std::fabs(sigmoid[i] - s), 8 * 0x1p-24 * s) << x[i];
      ASSERT_LE(std::fabs(tanh[i] - t), 8 * 0x1p-24 * std::fabs(t)) << x[i];
    }
  });
}

TEST(VectorOp, SaturatesAndPassesNaNOn) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> x{inf, -inf, 1e30F, -1e30F, nan};
  std::vector<float> sigmoid(5), tanh(5);
  on_every_target([&] {
    vector_op(Unary::sigmoid, x, 0, sigmoid);
    vector_op(Unary::tanh, x, 0, tanh);
    EXPECT_TRUE(std::isnan(sigmoid[4]));
    sigmoid[4] = 2;
    EXPECT_EQ(sigmoid, (std::vector<float>{1, 0, 1, 0, 2}));
    EXPECT_TRUE(std::isnan(tanh[4]));
    tanh[4] = 2;
    EXPECT_EQ(tanh, (std::vector<float>{1, -1, 1, -1, 2}));
  });
}

TEST(VectorOp, TheOthersAreOneRounding) {
  for (const std::size_t n : sizes) {
    const std::vector<float> a = gaussians(n, 1), b = gaussians(n, 2);
    on_every_target([&] {
      Guarded out(std::vector<float>(n), guard);
      const auto expect = [&](auto op) {
        for (std::size_t i = 0; i < n; ++i) ASSERT_EQ(out.all[i], op(a[i], b[i])) << i;
        ASSERT_TRUE(out.intact());
      };
      vector_op(Binary::add, a, b, out.span()), expect([](float x, float y) { return x + y; });
      vector_op(Binary::subtract, a, b, out.span()), expect([](float x, float y) { return x - y; });
      vector_op(Binary::multiply, a, b, out.span()), expect([](float x, float y) { return x * y; });
      vector_op(Unary::add, a, 0.3F, out.span()), expect([](float x, float) { return x + 0.3F; });
      vector_op(Unary::multiply, a, 0.3F, out.span()), expect([](float x, float) { return x * 0.3F; });
      std::vector<float> squares(n);
      vector_op(Binary::multiply, a, a, squares);
      vector_op(Unary::square_root, squares, 0, out.span()), expect([](float x, float) { return std::sqrt(x * x); });
      for (float& x : squares) x += 1;
      vector_op(Binary::divide, a, squares, out.span()), expect([](float x, float) { return x / (x * x + 1); });
    });
  }
}

// Exactly: arithmetic in fp32 on what is stored, then one rounding, ties to even (core::from_float is the reference).
TEST(Bf16Storage, SgdAndMomentumAreTheFloatRulesRounded) {
  for (const std::size_t n : sizes) {
    const std::vector<Bf16> w = half(gaussians(n, 1)), v = half(gaussians(n, 2)), g = half(gaussians(n, 3));
    std::vector<float> after_sgd = whole(w), after_w = whole(w), after_v = whole(v);
    sgd(after_sgd, whole(g), 0.02F);
    momentum(after_w, after_v, whole(g), {.step = 0.02F, .mu = 0.9F, .nesterov = true});
    on_every_target([&] {
      const Bf16 end = half(guard);
      Guarded one(w, end), two(w, end), velocity(v, end);
      sgd(one.span(), g, 0.02F);
      momentum(two.span(), velocity.span(), g, {.step = 0.02F, .mu = 0.9F, .nesterov = true});
      EXPECT_EQ(one.values(), half(after_sgd));
      EXPECT_EQ(two.values(), half(after_w));
      EXPECT_EQ(velocity.values(), half(after_v));
      EXPECT_TRUE(one.intact() && two.intact() && velocity.intact());
    });
  }
}

TEST(Bf16Storage, AdamAndTheLstmCellAreTheFloatRulesRounded) {
  for (const std::size_t n : sizes) {
    const AdamState start(n);
    const auto w = half(start.w), m = half(start.m), v = half(start.v), g = half(start.g);
    on_every_target([&] {
      std::vector<float> float_w = whole(w), float_m = whole(m), float_v = whole(v);
      adam(float_w, float_m, float_v, whole(g), {.step = 0.01F});
      auto half_w = w, half_m = m, half_v = v;
      adam(half_w, half_m, half_v, g, {.step = 0.01F});
      EXPECT_EQ(half_w, half(float_w));
      EXPECT_EQ(half_m, half(float_m));
      EXPECT_EQ(half_v, half(float_v));
      // The same loop with the same instructions: equal bits here too.
      std::vector<float> c = whole(w), h(n);
      lstm_cell({whole(m), whole(v), whole(g), whole(m)}, c, h);
      std::vector<Bf16> half_c = w, half_h(n);
      lstm_cell(LstmGates<Bf16>{m, v, g, m}, half_c, half_h);
      EXPECT_EQ(half_c, half(c));
      EXPECT_EQ(half_h, half(h));
    });
  }
}

TEST(Bf16Storage, ANaNStaysOneAndAnOverflowIsInfinite) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), largest = std::numeric_limits<float>::max();
  on_every_target([&] {
    std::vector<Bf16> w = half(std::vector<float>(40, 3e38F));
    sgd(w, half(std::vector<float>(40, -3e38F)), 1.0F);
    for (const Bf16 x : w) EXPECT_EQ(whole(x), std::numeric_limits<float>::infinity());
    w = half(std::vector<float>(40, nan));
    sgd(w, half(std::vector<float>(40, largest)), 1.0F);
    for (const Bf16 x : w) EXPECT_TRUE(std::isnan(whole(x)));
  });
}

TEST(PointwiseUpdate, BuffersOfDifferentLengthAreRefused) {
  std::vector<float> three(3), four(4);
  EXPECT_THROW(adam(three, four, three, three, {}), std::invalid_argument);
  EXPECT_THROW(adam(three, three, four, three, {}), std::invalid_argument);
  EXPECT_THROW(adam(three, three, three, four, {}), std::invalid_argument);
  EXPECT_THROW(lstm_cell({three, three, three, three}, three, four), std::invalid_argument);
  EXPECT_THROW(lstm_cell({three, four, three, three}, three, three), std::invalid_argument);
  EXPECT_THROW(vector_op(Binary::add, three, four, three), std::invalid_argument);
  EXPECT_THROW(vector_op(Unary::add, three, 1, four), std::invalid_argument);
}

}  // namespace
}  // namespace gradmeter::kernels
