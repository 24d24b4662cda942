// SPDX-License-Identifier: Apache-2.0
// Kernel cases of a device whose work runs no earlier than somebody waits for it: what they give back has been
// computed, and what they were given may change at once.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <vector>

#include "kernels/cases/op_case.hpp"
#include "kernels/pointwise/case.hpp"
#include "support/host_backends.hpp"
#include "support/kernel_cases.hpp"
#include "support/late_queue.hpp"

namespace gradmeter::kernels {
namespace {

using enum Precision;

/// The host's kernels compute for it.
[[maybe_unused]] const bool has_backends = test::host_computes_for("late");

const GemmShape product{.m = 9, .n = 8, .k = 16}, packed_product{.m = 9, .n = 8, .k = 16, .packed = true};
const ConvShape convolution{.width = 7,
                            .height = 6,
                            .channels = 16,
                            .batch = 2,
                            .filters = 16,
                            .filter_width = 3,
                            .filter_height = 3,
                            .pad_width = 1,
                            .pad_height = 1};

class LateCases : public testing::Test {
 protected:
  /// Draws all inputs that have a plain form; the numbers given change as soon as the case has them.
  static void give(OpCase& to, std::uint64_t seed) {
    for (const Operand& o : to.op().inputs()) {
      if (!o.format) continue;
      PlainNumbers numbers = to.draw(o.name, seed++);
      to.set_input(0, o.name, numbers);
      std::ranges::fill(numbers.bytes, std::byte{0x3f});
    }
  }
  void expect_the_hosts_results(const Problem& p) {
    SCOPED_TRACE(fmt::format("{} {}", text(p.shape), name(p.precision)));
    OpCase host(p, 1), late(p, 1, {}, device_);
    give(host, 5), give(late, 5);
    host.run(0), late.run(0);
    for (const Operand& o : late.op().outputs()) {
      if (!o.format) continue;
      packed_ += o.packed;
      EXPECT_EQ(late.output(0, o.name).bytes, host.output(0, o.name).bytes) << o.name;
      EXPECT_EQ(late.stored_output(0, o.name), host.stored_output(0, o.name)) << o.name;
    }
    for (const Operand& o : late.op().inputs()) packed_ += o.packed;
  }

  test::LateDevice device_;
  int packed_ = 0;  ///< operands so far
};

TEST_F(LateCases, HaveTheHostsResults) {
  for (const Precision p : {fp32, bf16, int8}) {
    expect_the_hosts_results({.shape = product, .precision = p});
    expect_the_hosts_results({.shape = packed_product, .precision = p});
  }
  expect_the_hosts_results({.shape = convolution});
  expect_the_hosts_results({.shape = RnnShape{Cell::lstm, 16, 3, 3}});
  EXPECT_GE(packed_, 3);
}

TEST_F(LateCases, AreRight) {
  for (const GemmShape& s : {product, packed_product}) tests::expect_right_and_error_found({.shape = s}, 1e9, device_);
  for (const Pass pass : {Pass::forward, Pass::backward_data, Pass::backward_weights})
    tests::expect_right_and_error_found({.shape = convolution, .pass = pass}, 1e9, device_);
  for (const Pass pass : {Pass::forward, Pass::backward_data})
    tests::expect_right_and_error_found({.shape = RnnShape{Cell::lstm, 16, 3, 3}, .pass = pass}, 1e9, device_);
}

TEST_F(LateCases, TakeWhatAnotherHasComputedBeforeItComputesAnew) {
  const Problem square{.shape = GemmShape{.m = 8, .n = 8, .k = 8}};
  OpCase from(square, 1, {}, device_), to(square, 1, {}, device_);
  give(from, 5);
  from.run(0);
  to.take_input(0, "a", from, "c");
  const auto first = from.stored_output(0, "c");
  give(from, 6);
  from.run(0);
  EXPECT_NE(from.stored_output(0, "c"), first);
  EXPECT_EQ(to.stored_input(0, "a"), first);
}

TEST_F(LateCases, OfOptimizersAreRight) {
  for (const PointwiseKind kind : {PointwiseKind::sgd, PointwiseKind::momentum, PointwiseKind::adam}) {
    const Problem p{.shape = PointwiseShape{kind, 1003, true}};
    const auto c =
        make_device_pointwise_case(p, {.sets = 2, .seed = 3, .device = &device_}, update_fp32_on_device, "own");
    c->run(1);
    EXPECT_TRUE(c->check(1e9, false).right()) << name(kind);
    EXPECT_FALSE(c->check(1e9, true).right()) << name(kind);
  }
}

/// Of the weights of each set that an update was given.
std::vector<float> first_weights;
void note_weights(PointwiseKind, std::span<const runtime::Buffer> arrays) {
  first_weights.push_back(arrays[0].values<float>()[0]);
}

/// All sets are drawn in the same memory of the host.
TEST_F(LateCases, OfOptimizersHaveAnotherDrawInEachSet) {
  first_weights.clear();
  const Problem p{.shape = PointwiseShape{PointwiseKind::sgd, 10, true}};
  const auto c = make_device_pointwise_case(p, {.sets = 2, .seed = 3, .device = &device_}, note_weights, "none");
  c->run(0), c->run(1);
  c->queue()->synchronise();
  ASSERT_EQ(first_weights.size(), 2);
  EXPECT_NE(first_weights[0], first_weights[1]);
}

}  // namespace
}  // namespace gradmeter::kernels
