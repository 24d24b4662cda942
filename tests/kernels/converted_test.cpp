// SPDX-License-Identifier: Apache-2.0
// bf16 by conversion, also where the library has bf16 of its own: conversions number by number, operations against
// their float64 references, and against the library's own bf16 where there is one.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "core/element.hpp"
#include "kernels/cases/kernel_case.hpp"
#include "kernels/host/library.hpp"
#include "kernels/host/threads.hpp"
#include "kernels/op.hpp"
#include "kernels/pointwise/pointwise.hpp"
#include "support/instruction_sets.hpp"

namespace gradmeter::kernels {
namespace {

constexpr std::string_view backend = "converted";

float nearest(float x) { return core::to_float(core::bf16_format, core::from_float(core::bf16_format, x)); }
std::vector<float> normal(std::size_t n, std::uint64_t seed) {
  std::vector<float> x(n);
  fill_random(std::as_writable_bytes(std::span(x)), number_format(core::Element::f32), seed);
  return x;
}
/// Bits, so that NaNs and the signs of zeros count.
std::vector<std::uint32_t> bits(const std::vector<float>& x) {
  std::vector<std::uint32_t> all;
  for (const float v : x) all.push_back(std::bit_cast<std::uint32_t>(v));
  return all;
}

TEST(Bf16Conversion, EveryCodeComesBackAndEveryNumberIsRoundedToNearestEven) {
  std::vector<Bf16> codes;
  std::vector<float> numbers;
  for (std::uint32_t upper = 0; upper < 1u << 16; ++upper) {
    codes.push_back(Bf16{static_cast<std::uint16_t>(upper)});
    // Ties, and the numbers beside them; with seven to a code each meets every lane.
    for (const std::uint32_t lower : {0x0000u, 0x0001u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu, 0x1234u})
      numbers.push_back(std::bit_cast<float>(upper << 16 | lower));
  }
  std::vector<float> decoded(codes.size()), wanted, rounded(numbers.size());
  std::vector<Bf16> encoded(numbers.size()), wanted_codes;
  for (const Bf16 c : codes) wanted.push_back(core::to_float(core::bf16_format, static_cast<std::uint16_t>(c)));
  for (const float x : numbers) wanted_codes.push_back(Bf16{core::from_float(core::bf16_format, x)});
  std::vector<float> wanted_numbers(numbers.size());
  to_floats(wanted_codes, wanted_numbers);
  for (const int threads : {1, 3}) {
    set_compute_threads(threads);
    tests::on_every_target([&] {
      to_floats(codes, decoded), to_bf16(numbers, encoded), round_to_bf16(numbers, rounded);
      // A NaN keeps its payload; the reference has one NaN.
      for (std::size_t i = 0; i < codes.size(); ++i)
        ASSERT_TRUE(std::isnan(wanted[i])
                        ? std::isnan(decoded[i])
                        : std::bit_cast<std::uint32_t>(decoded[i]) == std::bit_cast<std::uint32_t>(wanted[i]))
            << i;
      EXPECT_TRUE(encoded == wanted_codes);
      EXPECT_EQ(bits(rounded), bits(wanted_numbers));
    });
  }
  set_compute_threads(1);
}

class Converted : public testing::Test {
 protected:
  void SetUp() override {
    set_compute_threads(1);
    if (!onednn_refusal().empty()) GTEST_SKIP() << onednn_refusal();
  }

  /// From operands in fp32 to a result in fp32.
  std::vector<float> run(Op& op, const std::vector<std::vector<float>>& operands) {
    std::vector<runtime::OwnedBuffer> memory;
    std::vector<runtime::ConstBuffer> inputs;
    for (std::size_t i = 0; i < operands.size(); ++i) {
      const Operand& o = op.inputs()[i];
      inputs.emplace_back(
          memory.emplace_back(runtime::host_device().allocate(core::Element::i8, o.stored_bytes)).buffer);
      if (*o.format == number_format(core::Element::f32)) {
        inputs[i] = operands[i];
      } else {
        op.packing_from_fp32(i)->run(queue_, "pack", {operands[i]}, {memory[i].buffer});
      }
    }
    const Operand& o = op.outputs()[0];
    const auto output = runtime::host_device().allocate(core::Element::i8, o.stored_bytes);
    op.run(queue_, "run", inputs, {output.buffer});
    std::vector<float> result(o.elements);
    op.unpacking_to_fp32(0)->run(queue_, "unpack", {output.buffer}, {result});
    return result;
  }
  std::unique_ptr<Op> product(const GemmShape& s) {
    return prepare({.shape = s, .precision = Precision::bf16}, {.backend = backend});
  }
  runtime::HostQueue queue_;
};

/// Three times a number shows whether it was rounded before: (1 + 2^-8)·3 is nearer to 3 + 2^-6 than to 3.
TEST_F(Converted, OperandsAndResultsAreThoseOfTheFormat) {
  const std::vector<float> given{1 + 0x1p-8F, 1 + 0x1.8p-8F, -3.14159F,
                                 0x1p-130F,   0x1.ffp127F,   std::numeric_limits<float>::infinity()};
  const std::vector<float> three{3};
  std::vector<float> wanted;
  for (const float x : given) wanted.push_back(nearest(3 * nearest(x)));
  EXPECT_EQ(wanted[0], 3);
  EXPECT_EQ(nearest(3 * given[0]), 3 + 0x1p-6F);
  const std::size_t n = given.size();
  EXPECT_EQ(run(*product({.m = n, .n = 1, .k = 1}), {given, three}), wanted);
  for (const bool packed : {false, true})
    EXPECT_EQ(run(*product({.m = 1, .n = n, .k = 1, .packed = packed}), {three, given}), wanted) << packed;
  const ConvShape conv{
      .width = 1, .height = 1, .channels = 1, .batch = 1, .filters = n, .filter_width = 1, .filter_height = 1};
  const auto layer = prepare({.shape = conv, .precision = Precision::bf16}, {.backend = backend});
  EXPECT_TRUE(layer->inputs()[1].packed) << "the library has no layout of its own here; take another shape";
  EXPECT_EQ(run(*layer, {three, given}), wanted);
  // Both summands are numbers of bf16, 1 + 2^-7·1.5 is none.
  EXPECT_EQ(run(*product({.m = 1, .n = 1, .k = 2}), {{1, 0x1.8p-7F}, {1, 1}}), std::vector<float>{1 + 0x1p-6F});
  EXPECT_TRUE(
      std::isnan(run(*product({.m = 1, .n = 1, .k = 1}), {{std::numeric_limits<float>::quiet_NaN()}, {1}}).front()));
}

TEST_F(Converted, ABiasStaysFp32AndReluIsInTheProduct) {
  const GemmShape s{.m = 1, .n = 3, .k = 1, .bias = true, .activation = Activation::relu};
  // Rounded to bf16 first, the bias of the first column would be 1.
  EXPECT_EQ(run(*product(s), {{1}, {-1, -1, 2}, {1 + 0x1p-9F, 0.5F, 1}}), (std::vector<float>{0x1p-9F, 0, 3}));
}

TEST_F(Converted, AddsToWhatIsThere) {
  const auto op = product({.m = 1, .n = 2, .k = 1, .accumulate = true});
  const auto memory = runtime::host_device().allocate(core::Element::i8, 4);
  const auto half = [](float x) { return Bf16{core::from_float(core::bf16_format, x)}; };
  const std::vector<Bf16> a{half(3)}, b{half(2), half(-1)}, before{half(0.5), half(7)};
  std::memcpy(memory.buffer.host(), before.data(), 4);
  const auto bytes = [](const std::vector<Bf16>& x) {
    return runtime::ConstBuffer(core::Element::i8, std::as_bytes(std::span(x)));
  };
  op->run(queue_, "run", {bytes(a), bytes(b)}, {memory.buffer});
  const std::vector<Bf16> wanted{half(6.5), half(4)};
  EXPECT_EQ(std::memcmp(memory.buffer.host(), wanted.data(), 4), 0);
}

TEST_F(Converted, StatesItsMemory) {
  constexpr GemmShape s{.m = 32, .n = 48, .k = 64};
  const auto op = product(s);
  EXPECT_EQ(op->inputs()[0].stored_bytes, 2 * s.m * s.k);
  EXPECT_EQ(op->outputs()[0].stored_bytes, 2 * s.m * s.n);
  EXPECT_EQ(op->cost().bytes, 2.0 * (s.m * s.k + s.k * s.n + s.m * s.n));
  const std::size_t copies = 4 * (s.m * s.k + s.k * s.n + s.m * s.n);
  EXPECT_GE(op->scratch_bytes(), copies);
  GemmShape packed = s;
  packed.packed = true;
  const auto prepared = product(packed);
  EXPECT_GE(prepared->scratch_bytes(), copies - 4 * s.k * s.n);
  EXPECT_NE(op->implementation().find("by conversion"), std::string::npos);
}

/// Operations of a thread share its workspace, which grows with the largest.
TEST_F(Converted, OperationsOfManySizesDoNotDisturbEachOther) {
  std::vector<std::unique_ptr<Op>> ops;
  std::vector<std::vector<std::vector<float>>> operands;
  std::vector<std::vector<float>> first;
  for (const std::size_t side : {3, 150, 20, 301}) {
    ops.push_back(product({.m = side, .n = side + 1, .k = side + 2}));
    operands.push_back({normal(side * (side + 2), side), normal((side + 2) * (side + 1), side + 1)});
    first.push_back(run(*ops.back(), operands.back()));
  }
  for (const std::size_t i : {3, 0, 2, 1}) EXPECT_EQ(run(*ops[i], operands[i]), first[i]) << i;
}

/// Ragged shapes of all operations, in all passes; a wrong element must show.
std::vector<Problem> problems() {
  std::vector<Problem> all;
  for (const auto a : {Transpose::no, Transpose::yes})
    for (const auto b : {Transpose::no, Transpose::yes})
      for (const bool packed : {false, true})
        all.push_back(
            {.shape = GemmShape{.m = 37, .n = 53, .k = 191, .transpose_a = a, .transpose_b = b, .packed = packed}});
  all.push_back({.shape = GemmShape{.m = 5, .n = 19, .k = 33, .count = 7}});
  const ConvShape conv{.width = 19,
                       .height = 14,
                       .channels = 11,
                       .batch = 3,
                       .filters = 21,
                       .filter_width = 3,
                       .filter_height = 5,
                       .pad_width = 1,
                       .pad_height = 2,
                       .stride_width = 2};
  for (const Pass pass : {Pass::forward, Pass::backward_data, Pass::backward_weights})
    all.push_back({.shape = conv, .pass = pass});
  for (const Cell cell : {Cell::vanilla, Cell::lstm, Cell::gru})
    for (const Pass pass : {Pass::forward, Pass::backward_data})
      all.push_back({.shape = RnnShape{.cell = cell, .hidden = 45, .batch = 3, .steps = 9, .input = 20}, .pass = pass});
  for (Problem& p : all) p.precision = Precision::bf16;
  return all;
}

TEST_F(Converted, EachOperationIsRightInEachPassOnOneThreadAndTwo) {
  for (const Problem& p : problems())
    for (const int threads : {1, 2}) {
      set_compute_threads(threads);
      const auto kernel_case = make_kernel_case(p, {.sets = 2, .seed = 7, .backend = backend});
      kernel_case->run(1);
      const KernelCaseCheck right = kernel_case->check(1e9, false);
      EXPECT_TRUE(right.right()) << text(p.shape) << name(p.pass) << " " << right.worst;
      EXPECT_FALSE(kernel_case->check(1e9, true).right()) << text(p.shape) << name(p.pass);
      EXPECT_NE(kernel_case->implementation().find("by conversion"), std::string::npos);
    }
}

TEST_F(Converted, TheLibrarysOwnBf16DiffersByRoundingAlone) {
  if (!has_bf16_kernels()) GTEST_SKIP() << how_multiplied(Precision::bf16);
  constexpr GemmShape s{.m = 40, .n = 50, .k = 300};
  const std::vector<std::vector<float>> operands{normal(s.m * s.k, 1), normal(s.k * s.n, 2)};
  const auto own = prepare({.shape = s, .precision = Precision::bf16}, {.backend = "onednn"});
  const auto found = run(*product(s), operands), wanted = run(*own, operands);
  std::size_t equal = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_NEAR(found[i], wanted[i], 0x1p-7 * std::fabs(wanted[i]) + 1e-4);
    equal += found[i] == wanted[i] ? 1 : 0;
  }
  EXPECT_GT(equal, found.size() * 9 / 10);
}

TEST_F(Converted, RefusesWhatFp32Refuses) {
  const auto refused = [](const Problem& p) { return op_refusal(p); };
  EXPECT_NE(refused({.shape = GemmShape{.m = 0, .n = 1, .k = 1}, .precision = Precision::bf16}), "");
  const Problem lstm{
      .shape = RnnShape{Cell::lstm, 8, 2, 3}, .pass = Pass::backward_weights, .precision = Precision::bf16};
  EXPECT_NE(refused(lstm).find("backward-data"), std::string::npos);
  for (const Problem& p : problems()) EXPECT_EQ(refused(p), "") << "bf16 is everywhere where the library is";
}

}  // namespace
}  // namespace gradmeter::kernels
