// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/error.hpp"
#include "core/random.hpp"
#include "kernels/cases/kernel_case.hpp"
#include "kernels/host/threads.hpp"
#include "kernels/rnn/reference.hpp"

namespace gradmeter::kernels {
namespace {

// Ragged on every vector width; one row or one step among them. Of three, one has a wider or narrower input.
RnnShape ragged(Cell cell, std::uint64_t seed) {
  const core::Random random(seed, 0x726e);
  RnnShape s{cell, 3 + random.below(0, 60), 1 + random.below(1, 6), 1 + random.below(2, 12)};
  if (seed % 3 == 2) s.input = 1 + random.below(3, 90);
  return s;
}

struct Kind {
  Cell cell;
  Pass pass;
  Precision precision;
};
class RnnCases : public testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    set_compute_threads(1);
    const std::string why = kernel_case_refusal(problem(ragged(GetParam().cell, 0)));
    if (!why.empty()) GTEST_SKIP() << why;
  }
  static Problem problem(const RnnShape& s) {
    return {.shape = s, .pass = GetParam().pass, .precision = GetParam().precision};
  }
};

TEST_P(RnnCases, AreRightOnRaggedShapesAndOneWrongElementIsFound) {
  double worst = 0, found = 1e9;
  for (std::uint64_t seed = 0; seed < 24; ++seed) {
    const Problem p = problem(ragged(GetParam().cell, seed));
    const auto kernel_case = make_kernel_case(p, {.sets = 1, .seed = 100 * seed});
    const KernelCaseCheck right = kernel_case->check(1e9, false), wrong = kernel_case->check(1e9, true);
    EXPECT_TRUE(right.right()) << text(p.shape) << " " << right.worst << " " << kernel_case->implementation();
    EXPECT_LT(right.zero_share, 0.1) << text(p.shape);
    EXPECT_FALSE(wrong.right()) << text(p.shape) << " " << wrong.worst;
    worst = std::max(worst, right.worst), found = std::min(found, wrong.worst);
  }
  RecordProperty("worst_share_of_what_is_allowed", std::to_string(worst));
  RecordProperty("least_share_with_a_wrong_element", std::to_string(found));
}

TEST_P(RnnCases, ABiggerLayerIsRightWhereItIsLookedAt) {
  const Problem p = problem({GetParam().cell, 256, 5, 20});
  const auto kernel_case = make_kernel_case(p, {});
  for (const double flops_at_most : {3e8, 1e7, 1.0}) {
    const KernelCaseCheck right = kernel_case->check(flops_at_most, false);
    EXPECT_TRUE(right.right()) << flops_at_most << " " << right.worst;
    EXPECT_FALSE(kernel_case->check(flops_at_most, true).right()) << flops_at_most;
  }
}

/// Runs add to the gradients of weights.
TEST_P(RnnCases, IsRightAfterAsManyRunsAsTheCheckIsTold) {
  const auto kernel_case = make_kernel_case(problem(ragged(GetParam().cell, 5)), {.sets = 2});
  const auto check = [&](std::size_t runs, std::size_t told) {
    const CheckedCall call{.set = 1, .runs = told, .flops_at_most = 1e9};
    kernel_case->prepare_check(call);
    for (std::size_t i = 0; i < runs; ++i) kernel_case->run(0), kernel_case->run(1);
    return kernel_case->finish_check(call).right();
  };
  EXPECT_TRUE(check(1, 1)) << "runs of the other set do not count";
  EXPECT_TRUE(check(3, 3));
  if (GetParam().pass != Pass::forward) {
    EXPECT_FALSE(check(3, 6));
  }
}

TEST_P(RnnCases, ABiggerLayerWithANarrowInputIsRight) {
  const auto kernel_case =
      make_kernel_case(problem({.cell = GetParam().cell, .hidden = 96, .batch = 4, .steps = 7, .input = 40}), {});
  EXPECT_TRUE(kernel_case->check(1e9, false).right());
  EXPECT_FALSE(kernel_case->check(1e9, true).right());
}

TEST_P(RnnCases, RunOnEachOfTheirOperandSetsWithTwoThreads) {
  set_compute_threads(2);
  const auto kernel_case = make_kernel_case(problem(ragged(GetParam().cell, 3)), {.sets = 3, .seed = 5});
  for (const std::size_t set : {2, 1, 0, 0}) kernel_case->run(set);
  EXPECT_TRUE(kernel_case->check(1e9, false).right());
  EXPECT_TRUE(kernel_case->implementation().starts_with("onednn ")) << kernel_case->implementation();
}

std::vector<Kind> kinds() {
  std::vector<Kind> all;
  for (const Cell cell : {Cell::vanilla, Cell::lstm, Cell::gru}) {
    for (const Precision precision : {Precision::fp32, Precision::bf16})
      for (const Pass pass : {Pass::forward, Pass::backward_data}) all.push_back({cell, pass, precision});
    if (cell != Cell::vanilla) all.push_back({cell, Pass::forward, Precision::int8});
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(All, RnnCases, testing::ValuesIn(kinds()), [](const auto& instance) {
  const Kind& k = instance.param;
  std::string label =
      std::string(name(k.cell)) + "_" + std::string(name(k.pass)) + "_" + std::string(name(k.precision));
  std::ranges::replace(label, '-', '_');
  return label;
});

TEST(RnnCase, WhatCannotBeHadIsRefusedWithTheReason) {
  const auto why = [](Cell cell, Pass pass, Precision precision) {
    return kernel_case_refusal({.shape = ragged(cell, 1), .pass = pass, .precision = precision});
  };
  EXPECT_NE(why(Cell::lstm, Pass::backward_weights, Precision::fp32).find("backward-data"), std::string::npos);
  EXPECT_NE(why(Cell::lstm, Pass::backward_data, Precision::int8).find("forward"), std::string::npos);
  EXPECT_NE(why(Cell::vanilla, Pass::forward, Precision::int8).find("lstm and gru"), std::string::npos);
  EXPECT_THROW(make_kernel_case({.shape = RnnShape{Cell::gru, 0, 1, 1}}, {}), core::UsageError);
}

// Two steps of one unit of each cell, with the numbers of a pocket calculator.
RnnInputs one_unit(Cell cell, std::vector<float> weights, std::vector<float> recurrent, std::vector<double> bias) {
  RnnInputs in{cell, 1, 1, 2};
  in.layer_input = {1, -2}, in.state = {0.5}, in.memory = {0.25};
  in.weights = std::move(weights), in.recurrent = std::move(recurrent), in.bias = std::move(bias);
  return in;
}

TEST(RnnReference, VanillaIsRightOnAnAnswerWorkedByHand) {
  // 0.5·1 + 2·0.5 + 0.25 = 1.75; 0.5·(−2) + 2·1.75 + 0.25 = 2.75.
  const RnnInputs in = one_unit(Cell::vanilla, {0.5F}, {2}, {0.25});
  const RnnTrace trace = rnn_forward_reference(in);
  EXPECT_EQ(trace.hidden, (std::vector<double>{1.75, 2.75}));
  // Gradient 3 and 5: at the second step 5, at the first 3 + 2·5 = 13.
  const RnnGradients g = rnn_backward_reference(in, trace, std::vector<double>{3, 5});
  EXPECT_EQ(g.layer_input, (std::vector<double>{6.5, 2.5}));
  EXPECT_EQ(g.state, (std::vector<double>{26}));
  EXPECT_EQ(weights_gradient_at(in, g, 0), 13 * 1 + 5 * -2);
  EXPECT_EQ(recurrent_gradient_at(in, trace, g, 0), 13 * 0.5 + 5 * 1.75);
  EXPECT_EQ(bias_gradient_at(in, g, 0), 18);
}

TEST(RnnReference, LstmIsRightOnAnAnswerWorkedByHand) {
  // First step: i = s(1), f = s(0.5), g = tanh(2), o = s(-1): 0.731059, 0.622459, 0.964028, 0.268941.
  // c = 0.622459·0.25 + 0.731059·0.964028 = 0.860376; h = 0.268941·tanh(0.860376) = 0.187305.
  RnnInputs in = one_unit(Cell::lstm, {1, 0, 2, -1}, {0, 1, 0, 0}, {0, 0, 0, 0});
  in.steps = 1;
  const RnnTrace trace = rnn_forward_reference(in);
  EXPECT_NEAR(trace.memory[0], 0.860376, 1e-6);
  EXPECT_NEAR(trace.hidden[0], 0.187305, 1e-6);
}

TEST(RnnReference, GruIsRightOnAnAnswerWorkedByHand) {
  // u = s(1) = 0.731059, r = s(-1) = 0.268941, o = tanh(0.5 + 2·0.268941·0.5) = tanh(0.768941) = 0.646323;
  // h = 0.731059·0.5 + 0.268941·0.646323 = 0.539352.
  RnnInputs in = one_unit(Cell::gru, {1, -1, 0.5F}, {0, 0, 2}, {0, 0, 0});
  in.steps = 1;
  EXPECT_NEAR(rnn_forward_reference(in).hidden[0], 0.539352, 1e-5);
}

RnnInputs random_inputs(Cell cell) {
  RnnInputs in{cell, 4, 2, 3};
  const core::Random random(17, static_cast<std::uint64_t>(cell));
  std::uint64_t draw = 0;
  const auto fill = [&](auto& values, std::size_t n) {
    values.resize(n);
    for (auto& x : values) x = static_cast<float>(random.gaussian(draw++));
  };
  const std::size_t gates = gates_of(cell);
  fill(in.layer_input, 24), fill(in.state, 8), fill(in.bias, 4 * gates);
  if (cell == Cell::lstm) fill(in.memory, 8);
  fill(in.weights, 16 * gates), fill(in.recurrent, 16 * gates);
  return in;
}

class RnnReferenceOf : public testing::TestWithParam<Cell> {};

TEST_P(RnnReferenceOf, GradientsAreTheSlopesOfALoss) {
  RnnInputs in = random_inputs(GetParam());
  std::vector<double> gradient(24);
  for (std::size_t i = 0; i < 24; ++i) gradient[i] = core::Random(3, 3).gaussian(i);
  const RnnTrace trace = rnn_forward_reference(in);
  const RnnGradients g = rnn_backward_reference(in, trace, gradient);
  const auto loss = [&] {
    const auto h = rnn_forward_reference(in).hidden;
    double sum = 0;
    for (std::size_t i = 0; i < 24; ++i) sum += gradient[i] * h[i];
    return sum;
  };
  const auto slope = [&](auto& parameter) {
    using Number = std::remove_reference_t<decltype(parameter)>;
    const Number before = parameter;
    parameter = static_cast<Number>(before + 0x1p-12);
    const double up = loss(), high = parameter;
    parameter = static_cast<Number>(before - 0x1p-12);
    const double down = loss(), low = parameter;
    parameter = before;
    return (up - down) / (high - low);
  };
  // The difference quotient is off by a third derivative times 2^-24 / 6.
  constexpr double near = 1e-5;
  for (std::size_t i = 0; i < 24; ++i) EXPECT_NEAR(g.layer_input[i], slope(in.layer_input[i]), near);
  for (std::size_t i = 0; i < 8; ++i) EXPECT_NEAR(g.state[i], slope(in.state[i]), near);
  for (std::size_t i = 0; i < in.memory.size(); ++i) EXPECT_NEAR(g.memory[i], slope(in.memory[i]), near);
  for (std::size_t i = 0; i < in.bias.size(); ++i) EXPECT_NEAR(bias_gradient_at(in, g, i), slope(in.bias[i]), near);
  for (std::size_t i = 0; i < in.weights.size(); ++i) {
    EXPECT_NEAR(weights_gradient_at(in, g, i), slope(in.weights[i]), near) << i;
    EXPECT_NEAR(recurrent_gradient_at(in, trace, g, i), slope(in.recurrent[i]), near) << i;
  }
}

TEST_P(RnnReferenceOf, GoesOnFromTheStatesThatWereObserved) {
  RnnInputs in = random_inputs(GetParam());
  const auto own = rnn_forward_reference(in).hidden;
  in.observed = own;
  EXPECT_EQ(rnn_forward_reference(in).hidden, own);
  in.observed[0] += 1;  // row 0 after the first step
  const auto moved = rnn_forward_reference(in).hidden;
  EXPECT_EQ(std::vector<double>(moved.begin(), moved.begin() + 8), std::vector<double>(own.begin(), own.begin() + 8));
  EXPECT_NE(moved[8], own[8]);
  EXPECT_EQ(moved[12], own[12]);  // row 1 knows nothing of it
}

INSTANTIATE_TEST_SUITE_P(Cells, RnnReferenceOf, testing::Values(Cell::vanilla, Cell::lstm, Cell::gru),
                         [](const auto& instance) { return std::string(name(instance.param)); });

}  // namespace
}  // namespace gradmeter::kernels
