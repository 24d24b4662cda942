// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <vector>

#include "core/error.hpp"
#include "core/random.hpp"
#include "kernels/cases/kernel_case.hpp"
#include "kernels/conv/reference.hpp"
#include "kernels/host/threads.hpp"

namespace gradmeter::kernels {
namespace {

// Ragged on every vector width and block of channels; pads and strides that leave inputs unseen and outputs in the pad.
ConvShape ragged(std::uint64_t seed) {
  const core::Random random(seed, 0x636f);
  std::uint64_t draw = 0;
  const auto between = [&](std::size_t low, std::size_t high) { return low + random.below(draw++, high - low + 1); };
  ConvShape s;
  s.batch = between(1, 3), s.channels = between(1, 37), s.filters = between(1, 37);
  s.filter_width = between(1, 5), s.filter_height = between(1, 5);
  s.pad_width = between(0, 2), s.pad_height = between(0, 2);
  s.stride_width = between(1, 3), s.stride_height = between(1, 3);
  s.width = s.filter_width + between(0, 12), s.height = s.filter_height + between(0, 12);
  return s;
}

struct Kind {
  Pass pass;
  Precision precision;
};
class ConvCases : public testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    set_compute_threads(1);
    const std::string why = kernel_case_refusal(problem(ragged(1)));
    if (!why.empty()) GTEST_SKIP() << why;
  }
  Problem problem(const ConvShape& s) const {
    return {.shape = s, .pass = GetParam().pass, .precision = GetParam().precision};
  }
};

TEST_P(ConvCases, AreRightOnRaggedShapesAndOneWrongElementIsFound) {
  double worst = 0;
  for (std::uint64_t seed = 0; seed < 24; ++seed) {
    const Problem p = problem(ragged(seed));
    const auto kernel_case = make_kernel_case(p, {.sets = 1, .seed = seed + 1});
    const KernelCaseCheck right = kernel_case->check(1e9, false), wrong = kernel_case->check(1e9, true);
    EXPECT_TRUE(right.right()) << text(p.shape) << " " << right.worst << " " << kernel_case->implementation();
    EXPECT_LT(right.zero_share, 0.1) << text(p.shape);
    EXPECT_FALSE(wrong.right()) << text(p.shape) << " " << wrong.worst;
    worst = std::max(worst, right.worst);
  }
  RecordProperty("worst_share_of_what_is_allowed", std::to_string(worst));
}

TEST_P(ConvCases, ALayerOfARealModelIsRightWhereItIsLookedAt) {
  const Problem p = problem({.width = 28,
                             .height = 28,
                             .channels = 128,
                             .batch = 2,
                             .filters = 64,
                             .filter_width = 3,
                             .filter_height = 3,
                             .pad_width = 1,
                             .pad_height = 1});
  const auto kernel_case = make_kernel_case(p, {});
  EXPECT_TRUE(kernel_case->check(1e7, false).right());
  EXPECT_FALSE(kernel_case->check(1e7, true).right());
  EXPECT_FALSE(kernel_case->check(1, true).right());
}

TEST_P(ConvCases, RunOnEachOfTheirOperandSetsWithTwoThreads) {
  const Problem p = problem(ragged(3));
  set_compute_threads(2);
  const auto kernel_case = make_kernel_case(p, {.sets = 3, .seed = 5});
  for (const std::size_t set : {2, 1, 0}) kernel_case->run(set);
  EXPECT_TRUE(kernel_case->check(1e9, false).right());
  EXPECT_TRUE(kernel_case->implementation().starts_with("onednn ")) << kernel_case->implementation();
}

INSTANTIATE_TEST_SUITE_P(
    All, ConvCases,
    testing::Values(Kind{Pass::forward, Precision::fp32}, Kind{Pass::backward_data, Precision::fp32},
                    Kind{Pass::backward_weights, Precision::fp32}, Kind{Pass::forward, Precision::bf16},
                    Kind{Pass::backward_data, Precision::bf16}, Kind{Pass::backward_weights, Precision::bf16},
                    Kind{Pass::forward, Precision::int8}),
    [](const auto& instance) {
      std::string label(name(instance.param.pass));
      std::ranges::replace(label, '-', '_');
      return label + "_" + std::string(name(instance.param.precision));
    });

TEST(ConvCase, WhatCannotBeHadIsRefusedWithTheReason) {
  const auto why = [](const ConvShape& s, Pass pass, Precision precision) {
    return kernel_case_refusal({.shape = s, .pass = pass, .precision = precision});
  };
  EXPECT_NE(why(ragged(1), Pass::backward_data, Precision::int8).find("forward"), std::string::npos);
  EXPECT_NE(why(ragged(1), Pass::backward_weights, Precision::int8).find("forward"), std::string::npos);
  ConvShape s = ragged(1);
  s.filter_width = s.width + 2 * s.pad_width + 1;
  EXPECT_NE(why(s, Pass::forward, Precision::fp32).find("fits"), std::string::npos);
  s = ragged(1), s.stride_height = 0;
  EXPECT_NE(why(s, Pass::forward, Precision::fp32).find("strides"), std::string::npos);
  s = ragged(1), s.channels = 0;
  EXPECT_NE(why(s, Pass::forward, Precision::fp32).find("extents"), std::string::npos);
  EXPECT_THROW(make_kernel_case({.shape = s}, {}), core::UsageError);
}

// Input 1 2 3 / 4 5 6 / 7 8 9, filter 1 10 / 100 1000: tens and hundreds show which number met which.
const std::vector<float> nine{1, 2, 3, 4, 5, 6, 7, 8, 9}, four{1, 10, 100, 1000};
constexpr ConvShape tiny{
    .width = 3, .height = 3, .channels = 1, .batch = 1, .filters = 1, .filter_width = 2, .filter_height = 2};

std::vector<double> all(std::size_t n, const std::function<ReferenceSum(std::size_t)>& at) {
  std::vector<double> values(n);
  for (std::size_t i = 0; i < n; ++i) values[i] = at(i).value;
  return values;
}

TEST(ConvReference, ForwardIsRightOnAnAnswerWorkedByHand) {
  EXPECT_EQ(all(4, [](std::size_t i) { return conv_at(tiny, Pass::forward, nine, four, i); }),
            (std::vector<double>{5421, 6532, 8754, 9865}));
  ConvShape padded = tiny;
  padded.pad_width = padded.pad_height = 1, padded.stride_width = padded.stride_height = 2;
  EXPECT_EQ(all(4, [&](std::size_t i) { return conv_at(padded, Pass::forward, nine, four, i); }),
            (std::vector<double>{1000, 3200, 7040, 9865}));
  EXPECT_EQ(conv_at(padded, Pass::forward, nine, four, 0).terms, 1U);
}

TEST(ConvReference, BackwardIsRightOnAnAnswerWorkedByHand) {
  // Output gradient 1 2 / 3 4.
  const std::vector<float> gradient{1, 2, 3, 4};
  EXPECT_EQ(all(9, [&](std::size_t i) { return conv_at(tiny, Pass::backward_data, gradient, four, i); }),
            (std::vector<double>{1, 12, 20, 103, 1234, 2040, 300, 3400, 4000}));
  EXPECT_EQ(all(4, [&](std::size_t i) { return conv_at(tiny, Pass::backward_weights, nine, gradient, i); }),
            (std::vector<double>{1 + 4 + 12 + 20, 2 + 6 + 15 + 24, 4 + 10 + 21 + 32, 5 + 12 + 24 + 36}));
}

std::vector<float> gaussians(std::size_t n, std::uint64_t stream) {
  const core::Random random(9, stream);
  std::vector<float> values(n);
  for (std::size_t i = 0; i < n; ++i) values[i] = static_cast<float>(random.gaussian(i));
  return values;
}

// The loss is linear in input and in filters: a difference quotient of any width is the slope itself.
TEST(ConvReference, GradientsAreTheSlopesOfALoss) {
  for (std::uint64_t seed = 30; seed < 36; ++seed) {
    ConvShape s = ragged(seed);
    s.channels = s.channels % 3 + 1, s.filters = s.filters % 3 + 1;
    auto input = gaussians(input_elements(s), 0), filters = gaussians(filter_elements(s), 1);
    const auto gradient = gaussians(output_elements(s), 2);
    const auto loss = [&] {
      double sum = 0;
      for (std::size_t i = 0; i < gradient.size(); ++i)
        sum += double{gradient[i]} * conv_at(s, Pass::forward, input, filters, i).value;
      return sum;
    };
    const auto slope = [&](float& parameter) {
      const float before = parameter;
      parameter = before + 1;
      const double up = loss(), high = parameter;
      parameter = before - 1;
      const double down = loss(), low = parameter;
      parameter = before;
      return (up - down) / (high - low);
    };
    for (const std::size_t i : sample_places(input.size(), 8, seed))
      EXPECT_NEAR(conv_at(s, Pass::backward_data, gradient, filters, i).value, slope(input[i]), 1e-9) << text(s);
    for (const std::size_t i : sample_places(filters.size(), 8, seed))
      EXPECT_NEAR(conv_at(s, Pass::backward_weights, input, gradient, i).value, slope(filters[i]), 1e-9) << text(s);
  }
}

// Rows of DeepBench's own lists with the extents and the multiply-adds that its authors computed: one for each
// combination of filter, pad and stride in them.
TEST(ConvShape, HasTheOutputsAndFlopsOfDeepBenchsLists) {
  struct Row {
    std::size_t w, h, c, n, k, fw, fh, pw, ph, sw, sh, out_w, out_h;
    double flops;
  };
  constexpr Row rows[] = {
      {700, 161, 1, 4, 32, 20, 5, 0, 0, 2, 2, 341, 79, 689638400},
      {341, 79, 32, 4, 32, 10, 5, 0, 0, 2, 2, 166, 38, 2583756800},
      {480, 48, 1, 16, 16, 3, 3, 1, 1, 1, 1, 480, 48, 106168320},
      {108, 108, 3, 8, 64, 3, 3, 1, 1, 2, 2, 54, 54, 80621568},
      {224, 224, 3, 16, 64, 7, 7, 3, 3, 2, 2, 112, 112, 3776446464},
      {28, 28, 192, 16, 32, 5, 5, 2, 2, 1, 1, 28, 28, 3853516800},
      {28, 28, 192, 16, 64, 1, 1, 0, 0, 1, 1, 28, 28, 308281344},
      {56, 56, 64, 8, 256, 1, 1, 0, 0, 2, 2, 28, 28, 205520896},
      {7, 7, 2048, 8, 512, 1, 1, 3, 3, 2, 2, 7, 7, 822083584},
      {700, 161, 1, 16, 64, 5, 5, 1, 1, 2, 2, 349, 80, 1429504000},
  };
  for (const Row& r : rows) {
    const ConvShape s{r.w, r.h, r.c, r.n, r.k, r.fw, r.fh, r.pw, r.ph, r.sw, r.sh};
    EXPECT_EQ(s.out_width(), r.out_w) << text(s);
    EXPECT_EQ(s.out_height(), r.out_h) << text(s);
    EXPECT_EQ(flops({.shape = s}), r.flops) << text(s);
  }
}

TEST(SamplePlaces, AreAllOfAFewAndSpreadOverMany) {
  EXPECT_EQ(sample_places(5, 9, 1), (std::vector<std::size_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(sample_places(5, 5, 1), (std::vector<std::size_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(sample_places(1, 0, 1), (std::vector<std::size_t>{0}));
  for (std::size_t n = 1; n < 20; ++n)
    for (std::size_t count = 1; count <= n; ++count)
      for (std::uint64_t seed = 0; seed < 5; ++seed) {
        const auto some = sample_places(n, count, seed);
        EXPECT_EQ(some.size(), count);
        EXPECT_EQ(std::ranges::adjacent_find(some, std::greater_equal()), some.end()) << count << " of " << n;
      }
  const auto places = sample_places(1'000'000, 100, 7);
  ASSERT_EQ(places.size(), 100U);
  EXPECT_EQ(places.front(), 0U);
  EXPECT_EQ(places.back(), 999'999U);
  for (std::size_t i = 1; i + 1 < places.size(); ++i) EXPECT_EQ(places[i] / 10'000, i);
}

}  // namespace
}  // namespace gradmeter::kernels
