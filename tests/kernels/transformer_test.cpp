// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention/transformer.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <stdexcept>
#include <vector>

#include "core/random.hpp"
#include "kernels/loops.hpp"
#include "runtime/device.hpp"
#include "support/instruction_sets.hpp"

namespace gradmeter::kernels {
namespace {

std::vector<float> normals(std::size_t n, std::uint64_t stream, double scale = 1) {
  const core::Random random(6, stream);
  std::vector<float> values(n);
  for (std::size_t i = 0; i < n; ++i) values[i] = static_cast<float>(scale * random.gaussian(i));
  return values;
}

TEST(Gelu, IsWithinItsBoundOfTheReferenceOnEveryInstructionSet) {
  for (const std::size_t n : {0, 1, 15, 16, 17, 1000, 100001}) {
    const std::vector<float> x = normals(n, 0, 3), delta = normals(n, 1);
    std::vector<float> wanted(n), slope(n);
    gelu_reference(x, wanted);
    gelu_backward_reference(x, delta, slope);
    tests::on_every_target([&] {
      std::vector<float> y(n + 1, 99), to(n + 1, 99);
      gelu(x, std::span(y).first(n));
      gelu_backward(x, delta, std::span(to).first(n));
      EXPECT_EQ(y.back(), 99);
      EXPECT_EQ(to.back(), 99);
      for (std::size_t i = 0; i < n; ++i) {
        ASSERT_NEAR(y[i], wanted[i], 0x1p-20 * (1 + std::fabs(x[i]))) << x[i];
        ASSERT_NEAR(to[i], slope[i], 0x1p-19 * (1 + std::fabs(x[i])) * (1 + std::fabs(delta[i]))) << x[i];
      }
    });
  }
}

TEST(LayerNorm, IsTheReferenceToRoundingWithEqualBitsEverywhere) {
  for (const std::size_t width : {2, 5, 16, 33, 768})
    for (const std::size_t rows : {1, 7, 70}) {
      std::vector<float> x = normals(rows * width, 2);
      for (float& v : x) v += 100;  // a mean far from zero
      const std::vector<float> gain = normals(width, 3), bias = normals(width, 4);
      std::vector<float> wanted(x.size()), first;
      layer_norm_reference(x, gain, bias, wanted);
      tests::on_every_target([&] {
        std::vector<float> y(x.size());
        layer_norm(x, gain, bias, y);
        for (std::size_t i = 0; i < y.size(); ++i)
          ASSERT_NEAR(y[i], wanted[i], 1e-4 * (1 + std::fabs(gain[i % width]))) << width;
        if (first.empty()) first = y;
        EXPECT_EQ(y, first);
      });
    }
}

TEST(CausalSoftmax, IsTheReferenceBelowTheDiagonalAndZeroAbove) {
  for (const std::size_t steps : {1, 2, 5, 16, 37, 130}) {
    const std::vector<float> scores = normals(3 * steps * steps, 5, 20);
    std::vector<float> wanted = scores;
    causal_softmax_reference(wanted, steps, 0.3F);
    tests::on_every_target([&] {
      std::vector<float> p = scores;
      causal_softmax(p, steps, 0.3F);
      for (std::size_t i = 0; i < p.size(); ++i) {
        ASSERT_NEAR(p[i], wanted[i], 0x1p-20 * 4) << steps;
        if (i % steps > i / steps % steps) {
          ASSERT_EQ(p[i], 0);
        }
      }
    });
  }
}

TEST(CausalSoftmax, LargeScoresDoNotOverflowAndANaNIsSeen) {
  std::vector<float> p{1e30F, 5, 7, 1e30F};
  causal_softmax(p, 2, 1);
  EXPECT_EQ(p, (std::vector<float>{1, 0, 0, 1}));
  p = {1, 1, std::numeric_limits<float>::quiet_NaN(), 1};
  causal_softmax(p, 2, 1);
  EXPECT_EQ(p[0], 1);
  EXPECT_TRUE(std::isnan(p[2]) && std::isnan(p[3]));
}

TEST(TransformerLoops, RefuseWrongLengths) {
  std::vector<float> three(3), four(4);
  EXPECT_THROW(gelu(three, four), std::invalid_argument);
  EXPECT_THROW(gelu_backward(three, four, three), std::invalid_argument);
  EXPECT_THROW(layer_norm(four, three, four, four), std::invalid_argument);
  EXPECT_THROW(causal_softmax_backward(four, three, 2, 1), std::invalid_argument);
  // Three elements are no whole rows of two, and no matrix of two by two.
  std::vector<float> two(2);
  EXPECT_THROW(layer_norm(three, two, two, three), std::invalid_argument);
  EXPECT_THROW(layer_norm_backward(three, two, three, three), std::invalid_argument);
  EXPECT_THROW(layer_norm_backward_parameters(three, three, two, two), std::invalid_argument);
  EXPECT_THROW(causal_softmax(three, 2, 1), std::invalid_argument);
  EXPECT_THROW(causal_softmax_backward(three, three, 2, 1), std::invalid_argument);
}

TEST(HostLoops, RefuseWrongLengths) {
  const auto buffer = [](std::size_t n) { return runtime::host_device().allocate(core::Element::f32, n); };
  const auto two = buffer(2), three = buffer(3), four = buffer(4);
  const Loops loops;
  EXPECT_THROW(loops.add_row(three.buffer, two.buffer, false, three.buffer), std::invalid_argument);
  EXPECT_THROW(loops.add_row(two.buffer, two.buffer, false, four.buffer), std::invalid_argument);
  EXPECT_THROW(loops.column_sums(three.buffer, two.buffer), std::invalid_argument);
  EXPECT_THROW(loops.add_channels_and_relu(two.buffer, 1, three.buffer), std::invalid_argument);
  EXPECT_THROW(loops.channel_sums(three.buffer, 1, two.buffer), std::invalid_argument);
  EXPECT_THROW(loops.embed(two.buffer, four.buffer, 2, three.buffer), std::invalid_argument);
  EXPECT_THROW(loops.embed_backward(two.buffer, three.buffer, 2, true, four.buffer), std::invalid_argument);
  EXPECT_THROW(loops.swap_rows_and_columns(four.buffer, 2, 2, 1, three.buffer), std::invalid_argument);
  const HeadLayout heads{.samples = 1, .steps = 1, .heads = 2, .width = 1, .to_heads = true};
  EXPECT_THROW(loops.reorder_heads(three.buffer, heads, three.buffer), std::invalid_argument);
  EXPECT_THROW(loops.reorder_heads(four.buffer, heads, two.buffer), std::invalid_argument);
}

}  // namespace
}  // namespace gradmeter::kernels
