// SPDX-License-Identifier: Apache-2.0
// Products that a GPU's library computes against the host's operations, on ragged sizes and in every precision that
// both have.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/element.hpp"
#include "core/error.hpp"
#include "core/random.hpp"
#include "kernels/cuda/backends.hpp"
#include "kernels/host/threads.hpp"
#include "kernels/op.hpp"
#include "runtime/cuda/device.hpp"
#include "support/device_seeds.hpp"
#include "support/kernel_references.hpp"
#include "support/op_runner.hpp"

namespace gradmeter::kernels {
namespace {

using core::Element;
using test::distance;
using test::Floats;
using Runner = test::OpRunner;

Floats gaussians(std::size_t n, std::uint64_t stream) {
  const core::Random random(11, stream);
  Floats x(n);
  for (std::size_t i = 0; i < n; ++i) x[i] = static_cast<float>(random.gaussian(i));
  return x;
}
Floats whole_numbers(std::size_t n, std::uint64_t stream) {
  const core::Random random(12, stream);
  Floats x(n);
  for (std::size_t i = 0; i < n; ++i) x[i] = static_cast<float>(static_cast<int>(random.bits(i) % 255) - 127);
  return x;
}

/// How far an operation of the device may be from the host's. Both round operands alike. bf16 and fp16: results are
/// rounded too, of sums in another order, and a bias. e5m2: the host has both operands in it, the device one.
double tolerance(const Problem& p) {
  switch (p.precision) {
    case Precision::bf16:
      return 0x1p-8;
    case Precision::fp16:
      return 0x1p-11;
    case Precision::fp8_e4m3:
      return 0x1p-9;
    case Precision::fp8_e5m2:
      return 0.12;
    default:
      return gemm_tolerance(std::get<GemmShape>(p.shape));
  }
}

constexpr Precision floating[] = {Precision::fp32, Precision::bf16, Precision::fp16, Precision::fp8_e4m3,
                                  Precision::fp8_e5m2};
constexpr GemmShape shapes[] = {{.m = 1, .n = 1, .k = 1},    {.m = 5, .n = 7, .k = 9},    {.m = 16, .n = 16, .k = 16},
                                {.m = 17, .n = 33, .k = 65}, {.m = 64, .n = 48, .k = 32}, {.m = 3, .n = 130, .k = 20}};

std::vector<Floats> drawn(const GemmShape& s) {
  std::vector<Floats> all{gaussians(s.count * s.m * s.k, 1), gaussians(s.count * s.k * s.n, 2)};
  if (s.bias) all.push_back(gaussians(s.n, 3));
  return all;
}

class DeviceProducts : public testing::Test {
 protected:
  static void SetUpTestSuite() { add_cuda_ops(); }
  void SetUp() override {
    set_compute_threads(1);
    const bool has_library =
        std::ranges::any_of(op_backends(), [](const OpBackend& row) { return row.name == "cublaslt"; });
    if (!has_library) GTEST_SKIP() << "built without cuBLASLt";
  }
#ifdef GRADMETER_CUDA_EMULATED
  void TearDown() override {
    for (const std::string& report : cuda_emulator::take_reports()) ADD_FAILURE() << report;
  }
#endif
  /// Of the host, which the device is held against.
  static bool lacks_onednn(const Problem& p) { return op_refusal(p).find("built without oneDNN") != std::string::npos; }
  void expect_the_hosts(const Problem& p, int calls = 1) {
    const auto inputs = drawn(std::get<GemmShape>(p.shape));
    SCOPED_TRACE(std::string(name(p.precision)) + " " + text(p.shape));
    if (!op_refusal(p, device_).empty()) GTEST_SKIP() << op_refusal(p, device_);
    if (lacks_onednn(p)) GTEST_SKIP() << op_refusal(p);
    const Floats expected = Runner(runtime::host_device()).run(p, inputs, calls);
    EXPECT_LE(distance(Runner(device_).run(p, inputs, calls), expected), tolerance(p));
  }

  runtime::CudaDevice device_{0};
};

TEST_F(DeviceProducts, HaveTheHostsNumbersInEveryPrecisionAndDirection) {
  test::each_device_seed([&] {
    for (const Precision p : floating)
      for (GemmShape s : shapes)
        for (const int transposes : {0, 1, 2, 3}) {
          s.transpose_a = transposes % 2 ? Transpose::yes : Transpose::no;
          s.transpose_b = transposes / 2 ? Transpose::yes : Transpose::no;
          expect_the_hosts({.shape = s, .precision = p});
        }
  });
}

/// What rows count as moved is what lies in memory, but for a scale.
TEST_F(DeviceProducts, MoveTheBytesThatRowsCount) {
  const GemmShape s{.m = 64, .n = 48, .k = 32};
  std::vector<Precision> all(std::begin(floating), std::end(floating));
  all.insert(all.end(), {Precision::int8, Precision::tf32, Precision::fp8_e4m3_fast, Precision::fp8_e5m2_fast});
  for (const Precision precision : all) {
    const Problem p{.shape = s, .precision = precision};
    if (!op_refusal(p, device_).empty()) continue;
    const auto op = prepare(p, {}, device_);
    double stored = 0;
    for (const Operand& o : op->inputs()) stored += static_cast<double>(o.stored_bytes);
    for (const Operand& o : op->outputs()) stored += static_cast<double>(o.stored_bytes);
    EXPECT_LE(native_bytes(p), stored) << name(precision);
    EXPECT_GE(native_bytes(p), stored - 64) << name(precision);
    EXPECT_DOUBLE_EQ(op->cost().bytes, native_bytes(p)) << name(precision);
  }
}

TEST_F(DeviceProducts, AddTheBiasAndCutBelowZero) {
  for (const Precision p : floating)
    for (GemmShape s : shapes)
      for (const Activation a : {Activation::none, Activation::relu}) {
        s.bias = true, s.activation = a, s.transpose_b = Transpose::yes;
        expect_the_hosts({.shape = s, .precision = p});
        s.bias = false;
        expect_the_hosts({.shape = s, .precision = p});
      }
}

TEST_F(DeviceProducts, AddToWhatIsThere) {
  for (const Precision p : floating)
    for (GemmShape s : shapes) {
      s.accumulate = true;
      expect_the_hosts({.shape = s, .precision = p}, 3);
    }
}

TEST_F(DeviceProducts, OfManyAreOneAfterAnother) {
  for (const Precision p : floating)
    for (GemmShape s : shapes) {
      s.count = 3;
      expect_the_hosts({.shape = s, .precision = p});
      s.transpose_a = Transpose::yes;
      expect_the_hosts({.shape = s, .precision = p});
    }
}

/// Factors in their format, and sums exact enough to tell a format from another.
TEST_F(DeviceProducts, OfTheWideFp8AreOfTheNarrowOneOnTheRight) {
  const GemmShape s{.m = 19, .n = 11, .k = 40};
  const Problem p{.shape = s, .precision = Precision::fp8_e5m2};
  if (!op_refusal(p, device_).empty()) GTEST_SKIP() << op_refusal(p, device_);
  const auto inputs = drawn(s);
  const auto rounded = [](Floats x, const core::SmallFormat& f) {
    float most = 0;
    for (const float v : x) most = std::max(most, std::fabs(v));
    const float factor = most / core::to_float(f, f.largest());
    for (float& v : x) v = core::to_float(f, core::from_float(f, v / factor, core::Overflow::saturate)) * factor;
    return x;
  };
  const std::vector<Floats> as_stored{rounded(inputs[0], core::e5m2_format), rounded(inputs[1], core::e4m3_format)};
  const Floats expected = Runner(runtime::host_device()).run({.shape = s}, as_stored);
  EXPECT_LE(distance(Runner(device_).run(p, inputs), expected), 1e-5);
}

/// tf32 has the numbers of operands cut to 10 bits of mantissa, fp32 those of whole ones.
TEST_F(DeviceProducts, InTf32AreOfOperandsWithTenBits) {
  const GemmShape s{.m = 19, .n = 11, .k = 200};
  const Problem p{.shape = s, .precision = Precision::tf32};
  if (!op_refusal(p, device_).empty()) GTEST_SKIP() << op_refusal(p, device_);
  const auto inputs = drawn(s);
  std::vector<Floats> cut = inputs;
  for (Floats& x : cut)
    for (float& v : x) v = std::bit_cast<float>(std::bit_cast<std::uint32_t>(v) & 0xffffe000U);
  const Floats in_fp32 = Runner(runtime::host_device()).run({.shape = s}, inputs);
  const double rounded = distance(Runner(device_).run(p, inputs), in_fp32);
  EXPECT_GT(rounded, 0x1p-14);  // it is not fp32
  EXPECT_LT(rounded, 0x1p-9);
  EXPECT_LE(distance(Runner(device_).run({.shape = s}, inputs), in_fp32), 1e-6);  // and fp32 is not tf32
  EXPECT_LE(distance(Runner(device_).run(p, cut), Runner(runtime::host_device()).run({.shape = s}, cut)), 1e-6);
  EXPECT_THAT(prepare(p, {}, device_)->implementation(), testing::EndsWith(", tf32"));
  EXPECT_THAT(prepare({.shape = s}, {}, device_)->implementation(), testing::Not(testing::HasSubstr("tf32")));
}

/// Sums of one sign, so that each addition's error stays.
TEST_F(DeviceProducts, OfFp8SumInFewerBitsOnlyInTheFastMode) {
  const GemmShape s{.m = 17, .n = 16, .k = 2048};
  for (const auto& [usual, fast] : {std::pair(Precision::fp8_e4m3, Precision::fp8_e4m3_fast),
                                    std::pair(Precision::fp8_e5m2, Precision::fp8_e5m2_fast)}) {
    if (!op_refusal({.shape = s, .precision = fast}, device_).empty())
      GTEST_SKIP() << op_refusal({.shape = s, .precision = fast}, device_);
    auto inputs = drawn(s);
    for (Floats& x : inputs)
      for (float& v : x) v = std::fabs(v);
    const Floats in_fp32 = Runner(device_).run({.shape = s, .precision = usual}, inputs);
    const double apart = distance(Runner(device_).run({.shape = s, .precision = fast}, inputs), in_fp32);
    EXPECT_LT(apart, 0x1p-6) << name(fast);
#ifdef GRADMETER_CUDA_EMULATED
    EXPECT_GT(apart, 0x1p-14) << name(fast);  // a device may sum in more bits
#endif
    EXPECT_THAT(prepare({.shape = s, .precision = fast}, {}, device_)->implementation(),
                testing::EndsWith(", fast accumulation"));
    EXPECT_THAT(prepare({.shape = s, .precision = usual}, {}, device_)->implementation(),
                testing::Not(testing::HasSubstr("fast")));
  }
}

TEST_F(DeviceProducts, OfWholeNumbersAreExact) {
  test::each_device_seed([&] {
    for (GemmShape s : shapes)
      for (const int transposes : {0, 1, 2, 3}) {
        s.transpose_a = transposes % 2 ? Transpose::yes : Transpose::no;
        s.transpose_b = transposes / 2 ? Transpose::yes : Transpose::no;
        s.count = transposes == 3 ? 2 : 1;
        const std::vector<Floats> inputs{whole_numbers(s.count * s.m * s.k, 1), whole_numbers(s.count * s.k * s.n, 2)};
        const Floats expected = Runner(runtime::host_device()).run({.shape = s}, inputs);
        EXPECT_EQ(Runner(device_).run({.shape = s, .precision = Precision::int8}, inputs), expected) << text(s);
        s.accumulate = true;
        Floats twice = expected;
        for (float& x : twice) x *= 2;
        EXPECT_EQ(Runner(device_).run({.shape = s, .precision = Precision::int8}, inputs, 2), twice) << text(s);
      }
  });
}

TEST_F(DeviceProducts, OfPlainWholeNumbersNeedNoFloats) {
  const GemmShape s{.m = 3, .n = 5, .k = 7};
  const auto op = prepare({.shape = s, .precision = Precision::int8}, {}, device_);
  Runner runner(device_);
  std::vector<runtime::OwnedBuffer> memory;
  for (const std::size_t input : {0, 1}) {
    const std::size_t n = op->inputs()[input].elements;
    const auto plain = device_.allocate(Element::i8, n);
    runner.queue().run_and_wait([&] {
      auto x = plain.buffer.values<std::int8_t>();
      for (std::size_t i = 0; i < n; ++i) x[i] = static_cast<std::int8_t>(static_cast<int>(37 * i % 255) - 127);
    });
    memory.push_back(device_.allocate(Element::i8, op->inputs()[input].stored_bytes));
    op->packing(input)->run(runner.queue(), "pack", {plain.buffer}, {memory.back().buffer});
    runner.queue().synchronise();
  }
  const auto c = device_.allocate(Element::i8, op->outputs()[0].stored_bytes);
  const auto sums = device_.allocate(Element::i32, s.m * s.n);
  op->run(runner.queue(), "gemm", {memory[0].buffer, memory[1].buffer}, {c.buffer});
  op->unpacking(0)->run(runner.queue(), "unpack", {c.buffer}, {sums.buffer});
  runner.queue().run_and_wait([&] {
    for (std::size_t i = 0; i < s.m; ++i)
      for (std::size_t j = 0; j < s.n; ++j) {
        int sum = 0;
        for (std::size_t k = 0; k < s.k; ++k)
          sum +=
              (static_cast<int>(37 * (i * s.k + k) % 255) - 127) * (static_cast<int>(37 * (k * s.n + j) % 255) - 127);
        EXPECT_EQ(sums.buffer.values<std::int32_t>()[i * s.n + j], sum);
      }
  });
}

/// What the zero point adds is another number on the host, whose activations have no sign: models subtract what a
/// product of zeros gives.
TEST_F(DeviceProducts, OfQuantizedNumbersAreTheHostsButForTheZeroPoint) {
  const GemmShape s{.m = 6, .n = 10, .k = 50, .transpose_b = Transpose::yes};
  const Problem p{.shape = s, .precision = Precision::int8};
  if (!op_refusal(p).empty()) GTEST_SKIP() << op_refusal(p);
  OpOptions o;
  o.quantization = quantize_range(-1.5F, 4);
  for (std::size_t i = 0; i < s.n; ++i) o.quantization->weight_quanta.push_back(0.05F + 0.001F * static_cast<float>(i));
  auto inputs = drawn(s);
  const auto without_zero = [&](runtime::Device& device) {
    Floats c = Runner(device).run(p, inputs, 1, o);
    const Floats zero = Runner(device).run(p, {Floats(s.m * s.k), inputs[1]}, 1, o);
    for (std::size_t i = 0; i < c.size(); ++i) c[i] -= zero[i];
    return c;
  };
  // A quotient that is nearly halfway between two levels may be rounded to either.
  EXPECT_LE(distance(without_zero(device_), without_zero(runtime::host_device())), 0.01);
}

TEST_F(DeviceProducts, TakeOperandsThatAreHardlyAligned) {
  for (const Precision p : {Precision::fp32, Precision::bf16, Precision::fp16}) {
    const Problem problem{.shape = GemmShape{.m = 9, .n = 12, .k = 24, .bias = true}, .precision = p};
    const auto inputs = drawn(std::get<GemmShape>(problem.shape));
    const auto op = prepare(problem, {}, device_);
    Runner runner(device_);
    const Floats aligned = runner.run(*op, inputs);
    for (const std::size_t offset : {1, 2, 3, 8}) EXPECT_EQ(runner.run(*op, inputs, 1, offset), aligned) << offset;
  }
}

TEST_F(DeviceProducts, OfTwoQueuesHaveWorkspacesOfTheirOwn) {
  test::each_device_seed([&] {
    const Problem p{.shape = GemmShape{.m = 20, .n = 30, .k = 40}};
    const auto inputs = drawn(std::get<GemmShape>(p.shape));
    const auto x = prepare(p, {}, device_), y = prepare(p, {}, device_);
    Runner first(device_), second(device_);
    std::vector<runtime::OwnedBuffer> memory;
    for (const float factor : {1.0F, -3.0F})
      for (std::size_t i = 0; i < 2; ++i) {
        Floats scaled = inputs[i];
        if (i == 0)
          for (float& v : scaled) v *= factor;
        memory.push_back(first.stored(*x, i, scaled));
      }
    const auto c = device_.allocate(Element::f32, 600), d = device_.allocate(Element::f32, 600);
    x->run(first.queue(), "gemm", {memory[0].buffer, memory[1].buffer}, {c.buffer});
    y->run(second.queue(), "gemm", {memory[2].buffer, memory[3].buffer}, {d.buffer});
    Floats expected = first.read(c.buffer);
    EXPECT_LE(distance(expected, Runner(runtime::host_device()).run(p, inputs)), tolerance(p));
    for (float& v : expected) v *= -3;
    EXPECT_LE(distance(second.read(d.buffer), expected), 1e-6);
  });
}

TEST_F(DeviceProducts, ChooseTheFastestAlgorithmAndSayWhich) {
  const Problem p{.shape = GemmShape{.m = 40, .n = 24, .k = 64, .accumulate = true}, .precision = Precision::bf16};
  const auto inputs = drawn(std::get<GemmShape>(p.shape));
  const auto op = prepare(p, {.algorithm = AlgorithmSearch::exhaustive}, device_);
  EXPECT_EQ(op->implementation().find("cublaslt algorithm "), 0U) << op->implementation();
  EXPECT_NE(op->implementation().find(", split-k "), std::string::npos) << op->implementation();
#ifdef GRADMETER_CUDA_EMULATED
  // The emulator's first algorithm splits k, and the last is the fastest.
  const auto estimated = prepare(p, {}, device_);
  EXPECT_EQ(estimated->implementation(), "cublaslt algorithm 60, tile 15, stages 7, cluster 2, split-k 3");
  EXPECT_EQ(estimated->scratch_bytes(), 3U * 40 * 24 * 4);
  EXPECT_EQ(op->implementation(), "cublaslt algorithm 62, tile 15, stages 9, cluster 2, split-k 1");
  EXPECT_EQ(op->scratch_bytes(), 0U);
#endif
  if (lacks_onednn(p)) GTEST_SKIP() << op_refusal(p);
  const Floats expected = Runner(runtime::host_device()).run(p, inputs);
  EXPECT_LE(distance(Runner(device_).run(*op, inputs), expected), tolerance(p));
}

TEST_F(DeviceProducts, StateWhatTheyCost) {
  const GemmShape s{.m = 10, .n = 20, .k = 30};
  const auto bytes = [&](Precision p) { return prepare({.shape = s, .precision = p}, {}, device_)->cost().bytes; };
  EXPECT_EQ(bytes(Precision::fp32), 4 * (300 + 600 + 200));
  EXPECT_EQ(bytes(Precision::fp16), 2 * (300 + 600 + 200));
  EXPECT_EQ(bytes(Precision::int8), 300 + 600 + 4 * 200);
  EXPECT_EQ(prepare({.shape = s}, {}, device_)->cost().flops, s.flops());
}

TEST_F(DeviceProducts, RefuseWithTheReason) {
  GemmShape s{.m = 2, .n = 3, .k = 4, .bias = true, .count = 2};
  const auto why = [&](Precision p) {
    const auto row = std::ranges::find_if(op_backends(),
                                          [&](const OpBackend& r) { return r.name == "cublaslt" && r.precision == p; });
    return row->refusal({.shape = s, .precision = p});
  };
  EXPECT_EQ(why(Precision::fp32), "products by the count have no bias");
  s.count = 1;
  EXPECT_EQ(why(Precision::int8),
            "int8 products on a GPU have neither bias nor activation: cuBLASLt has none for sums of int32");
  EXPECT_NE(op_refusal({.shape = GemmShape{.m = 0, .n = 1, .k = 1}}, device_), "");
  EXPECT_THROW(prepare({.shape = s}, {.backend = "onednn"}, device_), core::UsageError);

  const auto op = prepare({.shape = GemmShape{.m = 2, .n = 3, .k = 4}}, {}, device_);
  Runner runner(device_);
  const auto a = runner.upload(Floats(8)), b = runner.upload(Floats(12)), c = runner.upload(Floats(6));
  EXPECT_THROW(op->run(runner.queue(), "gemm", {a.buffer, c.buffer}, {c.buffer}), std::invalid_argument);
  EXPECT_THROW(op->run(runner.queue(), "gemm", {a.buffer}, {c.buffer}), std::invalid_argument);
  const Floats of_the_host(8);
  EXPECT_THROW(op->run(runner.queue(), "gemm", {of_the_host, b.buffer}, {c.buffer}), std::logic_error);
  EXPECT_THROW(op->packing(0), std::logic_error);
  EXPECT_THROW(op->unpacking_to_fp32(0), std::logic_error);
}

/// Of what a device has for an operation the host's on copies is the last resort.
TEST_F(DeviceProducts, PreferLibrariesThenOurOwnThenTheHost) {
  std::map<std::pair<KernelKind, Precision>, std::vector<std::string_view>> rows;
  for (const OpBackend& row : op_backends())
    if (row.device == "cuda") rows[{row.operation, row.precision}].push_back(row.name);
  using Names = std::vector<std::string_view>;
  EXPECT_EQ((rows[{KernelKind::gemm, Precision::fp32}]), (Names{"cublaslt", "own"}));
  EXPECT_EQ((rows[{KernelKind::gemm, Precision::fp8_e4m3}]), (Names{"cublaslt", "host"}));
  for (const Precision mode : {Precision::tf32, Precision::fp8_e4m3_fast, Precision::fp8_e5m2_fast})
    EXPECT_EQ((rows[{KernelKind::gemm, mode}]), Names{"cublaslt"}) << name(mode);  // nothing else computes so
  EXPECT_EQ((rows[{KernelKind::gemm, Precision::lns16}]), Names{"own"});
  EXPECT_EQ((rows[{KernelKind::conv, Precision::int4}]), Names{"host"});
  EXPECT_EQ((rows[{KernelKind::conv, Precision::fp32}].back()), "own");
  const std::size_t before = op_backends().size();
  add_cuda_ops();
  EXPECT_EQ(op_backends().size(), before);
}

/// What no library and no kernel of ours has is the host's, bit for bit.
TEST_F(DeviceProducts, LeaveTheRestToTheHost) {
  test::each_device_seed([&] {
    const GemmShape s{.m = 5, .n = 6, .k = 7, .bias = true};
    const Problem product{.shape = s, .precision = Precision::int4};
    EXPECT_EQ(prepare(product, {}, device_)->implementation().find("on the host: "), 0U);
    EXPECT_EQ(Runner(device_).run(product, drawn(s)), Runner(runtime::host_device()).run(product, drawn(s)));
    const Problem conv{.shape = ConvShape{.width = 7,
                                          .height = 5,
                                          .channels = 3,
                                          .batch = 2,
                                          .filters = 4,
                                          .filter_width = 3,
                                          .filter_height = 3,
                                          .pad_width = 1},
                       .precision = Precision::int4};
    if (!op_refusal(conv).empty()) return;
    const auto inputs = std::vector{gaussians(2 * 3 * 7 * 5, 1), gaussians(4 * 3 * 9, 2)};
    EXPECT_EQ(Runner(device_).run(conv, inputs), Runner(runtime::host_device()).run(conv, inputs));
  });
}

/// Numbers that the narrow formats have not.
TEST_F(DeviceProducts, ShowWhatIsNoNumber) {
  const GemmShape s{.m = 2, .n = 2, .k = 3};
  for (const Precision precision : floating) {
    const Problem p{.shape = s, .precision = precision};
    if (!op_refusal(p, device_).empty()) continue;
    auto inputs = drawn(s);
    for (const float bad : {INFINITY, NAN}) {
      inputs[0][0] = bad;
      const Floats c = Runner(device_).run(p, inputs);
      EXPECT_FALSE(std::isfinite(c[0]) || std::isfinite(c[1])) << name(precision);
      EXPECT_TRUE(std::isfinite(c[2]) && std::isfinite(c[3])) << name(precision);
    }
    const Floats zeros = Runner(device_).run(p, {Floats(6), inputs[1]});
    EXPECT_EQ(zeros, Floats(4)) << name(precision);
  }
}

}  // namespace
}  // namespace gradmeter::kernels
