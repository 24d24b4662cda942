// SPDX-License-Identifier: Apache-2.0
// The loops of a training step on the device against the host's, on ragged sizes.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "core/random.hpp"
#include "kernels/lns/gpu_kernels.hpp"
#include "kernels/lns/lns.hpp"
#include "kernels/pointwise/bf16_weights.hpp"
#include "kernels/pointwise/gpu_kernels.hpp"
#include "kernels/pointwise/updates.hpp"
#include "support/device_seeds.hpp"
#include "support/kernel_references.hpp"
#include "support/on_device.hpp"

namespace gradmeter::kernels {
namespace {

using test::expect_equal_floats;
using test::on_device;
using test::read_back;
using Floats = std::vector<float>;
using Halves = std::vector<Bf16>;

constexpr std::size_t lengths[] = {0, 1, 31, 32, 33, 255, 256, 257, 1000, 4097};

/// Gaussians with zeros, large and subnormal numbers between them.
Floats numbers(std::size_t n, std::uint64_t stream) {
  const core::Random random(5, stream);
  Floats x(n);
  for (std::size_t i = 0; i < n; ++i) x[i] = static_cast<float>(random.gaussian(i));
  for (std::size_t i = 3; i < n; i += 11) x[i] = 0;
  for (std::size_t i = 5; i < n; i += 97) x[i] *= 1e30F;
  for (std::size_t i = 7; i < n; i += 97) x[i] *= 1e-40F;
  return x;
}
Halves halves(std::size_t n, std::uint64_t stream) {
  Halves to(n);
  to_bf16(numbers(n, stream), to);
  return to;
}
void expect_equal(const Floats& a, const Floats& b) { expect_equal_floats(a, b); }
void expect_equal(const Halves& a, const Halves& b) { EXPECT_EQ(a, b); }

template <class T>
std::vector<T> drawn(std::size_t n, std::uint64_t stream) {
  if constexpr (std::is_same_v<T, float>) {
    return numbers(n, stream);
  } else {
    return halves(n, stream);
  }
}

/// Second moments are not negative.
template <class T>
std::vector<T> squares(std::size_t n) {
  Floats x = numbers(n, 9);
  for (float& v : x) v = std::min(v * v, 1e30F);
  if constexpr (std::is_same_v<T, float>) {
    return x;
  } else {
    Halves to(n);
    to_bf16(x, to);
    return to;
  }
}

template <class T>
class DeviceUpdates : public ::testing::Test {};
using Stored = ::testing::Types<float, Bf16>;
TYPED_TEST_SUITE(DeviceUpdates, Stored);

TYPED_TEST(DeviceUpdates, HaveTheHostsBits) {
  using T = TypeParam;
  test::each_device_seed([] {
    for (const std::size_t n : lengths) {
      SCOPED_TRACE(n);
      const runtime::Stream stream;
      auto w = drawn<T>(n, 0), m = drawn<T>(n, 1), v = squares<T>(n);
      const auto g = drawn<T>(n, 2);
      auto on_w = on_device<T>(w, stream), on_m = on_device<T>(m, stream), on_v = on_device<T>(v, stream);
      const auto on_g = on_device<T>(g, stream);
      const auto both_equal = [&] {
        expect_equal(read_back<T>(on_w.span(), stream), w);
        expect_equal(read_back<T>(on_m.span(), stream), m);
        expect_equal(read_back<T>(on_v.span(), stream), v);
      };
      sgd(w, g, 0.1F);
      cuda::sgd(on_w.span(), on_g.span(), 0.1F, {}, stream.get());
      both_equal();
      for (const bool nesterov : {false, true}) {
        const MomentumParameters p{.step = 0.03F, .mu = 0.9F, .nesterov = nesterov};
        momentum(w, m, g, p);
        cuda::momentum(on_w.span(), on_m.span(), on_g.span(), p, {}, stream.get());
        both_equal();
      }
      for (const std::uint64_t update : {1u, 1000u}) {
        const AdamParameters p{.update = update};
        adam(w, m, v, g, p);
        cuda::adam(on_w.span(), on_m.span(), on_v.span(), on_g.span(), p, 1, stream.get());
        both_equal();
      }
    }
  });
}

TEST(DevicePointwise, AdamWDecaysInTheSamePass) {
  const std::size_t n = 1000;
  Floats w = numbers(n, 0), m = numbers(n, 1), v = squares<float>(n);
  const Floats g = numbers(n, 2);
  const runtime::Stream stream;
  auto on_w = on_device<float>(w, stream), on_m = on_device<float>(m, stream), on_v = on_device<float>(v, stream);
  const auto on_g = on_device<float>(g, stream);
  scale(w, 0.99F);
  adam(w, m, v, g, {});
  cuda::adam(on_w.span(), on_m.span(), on_v.span(), on_g.span(), {}, 0.99F, stream.get());
  expect_equal(read_back<float>(on_w.span(), stream), w);
}

TEST(DevicePointwise, LoopsHaveTheHostsBits) {
  test::each_device_seed([] {
    for (const std::size_t n : lengths) {
      SCOPED_TRACE(n);
      const runtime::Stream stream;
      const Floats activation = numbers(n, 0);
      Floats x = numbers(n, 1), rounded(n), back(n);
      if (n > 100) x[100] = std::numeric_limits<float>::quiet_NaN();
      Halves half(n);
      const auto on_activation = on_device<float>(activation, stream);
      auto on_x = on_device<float>(x, stream);
      runtime::DeviceBuffer<float> on_rounded(n), on_back(n);
      runtime::DeviceBuffer<Bf16> on_half(n);
      relu_backward(activation, x);
      cuda::relu_backward(on_activation.span(), on_x.span(), stream.get());
      scale(x, 0.3F);
      cuda::scale(on_x.span(), 0.3F, stream.get());
      to_bf16(x, half);
      cuda::to_bf16(on_x.span(), on_half.span(), stream.get());
      to_floats(half, back);
      cuda::to_floats(on_half.span(), on_back.span(), stream.get());
      std::ranges::transform(x, rounded.begin(), bf16_nearest);
      cuda::bf16_nearest(on_x.span(), on_rounded.span(), {}, stream.get());
      expect_equal(read_back<float>(on_x.span(), stream), x);
      expect_equal(read_back<Bf16>(on_half.span(), stream), half);
      expect_equal(read_back<float>(on_back.span(), stream), back);
      expect_equal(read_back<float>(on_rounded.span(), stream), rounded);
    }
  });
}

TEST(DevicePointwise, ColumnsAreSummedInTheHostsOrder) {
  test::each_device_seed([] {
    for (const auto& [rows, columns] :
         {std::pair{0U, 3U}, {1U, 1U}, {37U, 10U}, {64U, 33U}, {37U, 300U}, {1024U, 3U}, {1025U, 3U}, {2100U, 33U}}) {
      const Floats matrix = numbers(std::size_t{rows} * columns, 3);
      Floats out(columns);
      const runtime::Stream stream;
      const auto on = on_device<float>(matrix, stream);
      runtime::DeviceBuffer<float> on_out(columns), workspace(cuda::column_sums_workspace(rows, columns));
      column_sums(matrix, columns, out);
      cuda::column_sums(on.span(), columns, on_out.span(), workspace.span(), stream.get());
      expect_equal(read_back<float>(on_out.span(), stream), out);
    }
  });
}

TEST(DeviceBf16Update, HasTheHostsBits) {
  test::each_device_seed([] {
    for (const std::size_t n : lengths) {
      for (const std::uint64_t place : {0u, 3u, 1026u}) {
        SCOPED_TRACE(std::to_string(n) + " from " + std::to_string(place));
        Floats w = numbers(n, 0), carry(n), drawn(n);
        const Floats target = numbers(n, 1);
        round_to_bf16(w, w);
        const runtime::Stream stream;
        auto on_w = on_device<float>(w, stream), on_carry = on_device<float>(carry, stream);
        const auto on_target = on_device<float>(target, stream);
        runtime::DeviceBuffer<float> on_drawn(n);
        for (std::size_t i = 0; i < n; ++i) {
          bf16_kahan(w[i], target[i], carry[i]);
          using Rule = Bf16Stochastic;
          const std::uint64_t at = place + i, bits = core::Random(Rule::seed, 4).bits(at / Rule::numbers_per_draw);
          drawn[i] = Rule::rounded(target[i], bits, at);
        }
        cuda::bf16_kahan(on_w.span(), on_target.span(), on_carry.span(), {}, stream.get());
        cuda::bf16_stochastic(on_drawn.span(), on_target.span(), place, {.number = 4}, stream.get());
        expect_equal(read_back<float>(on_w.span(), stream), w);
        expect_equal(read_back<float>(on_carry.span(), stream), carry);
        expect_equal(read_back<float>(on_drawn.span(), stream), drawn);
      }
    }
  });
}

void expect_loss(std::size_t rows, std::size_t classes, bool with_gradient) {
  Floats logits(rows * classes), gradient(with_gradient ? logits.size() : 0), expected(gradient.size());
  const core::Random random(6, classes);
  std::vector<std::int32_t> labels(rows);
  for (std::size_t i = 0; i < logits.size(); ++i) logits[i] = 5 * static_cast<float>(random.gaussian(i));
  for (std::size_t i = 0; i < rows; ++i) labels[i] = static_cast<std::int32_t>(random.below(i, classes));
  for (std::size_t i = 0; classes > 4 && i < rows; i += 3) logits[i * classes + 4] = logits[i * classes + 1] = 30;
  const float loss_scale = 3, scale = rows == 0 ? 1 : loss_scale / static_cast<float>(rows);
  const CrossEntropy right = softmax_cross_entropy_reference(logits, labels, classes, scale, expected);

  const runtime::Stream stream;
  const auto on_logits = on_device<float>(logits, stream);
  const auto on_labels = on_device<std::int32_t>(labels, stream);
  const auto on_scale = on_device<float>(Floats{loss_scale}, stream);
  runtime::DeviceBuffer<float> on_gradient(gradient.size());
  runtime::DeviceBuffer<CrossEntropy> on_total(1);
  runtime::DeviceBuffer<std::byte> workspace(cuda::cross_entropy_workspace(rows));
  cuda::softmax_cross_entropy(on_logits.span(), on_labels.span(), classes, on_scale.span(), on_gradient.span(),
                              on_total.span(), workspace.span(), stream.get());
  const CrossEntropy got = read_back<CrossEntropy>(on_total.span(), stream)[0];
  EXPECT_EQ(got.correct, right.correct);
  EXPECT_NEAR(got.loss_sum, right.loss_sum, 0x1p-21 * right.loss_sum);
  gradient = read_back<float>(on_gradient.span(), stream);
  for (std::size_t i = 0; i < gradient.size(); ++i) ASSERT_NEAR(gradient[i], expected[i], 0x1p-21F * scale) << i;
}

TEST(DeviceLoss, IsTheReferences) {
  test::each_device_seed([] {
    for (const std::size_t rows : {0u, 1u, 7u, 8u, 9u, 300u}) {
      for (const std::size_t classes : {1u, 10u, 33u, 1000u}) {
        if (rows * classes > 20000) continue;
        SCOPED_TRACE(std::to_string(rows) + " by " + std::to_string(classes));
        expect_loss(rows, classes, true);
        expect_loss(rows, classes, false);
      }
    }
  });
}

TEST(DeviceLoss, OfALabelOutsideTheClassesIsNaN) {
  const runtime::Stream stream;
  const auto on_logits = on_device<float>(Floats{1, 2, 3, 4}, stream);
  const auto on_labels = on_device<std::int32_t>(std::vector<std::int32_t>{1, -1}, stream);
  runtime::DeviceBuffer<CrossEntropy> on_total(1);
  runtime::DeviceBuffer<std::byte> workspace(cuda::cross_entropy_workspace(2));
  cuda::softmax_cross_entropy(on_logits.span(), on_labels.span(), 2, {}, {}, on_total.span(), workspace.span(),
                              stream.get());
  EXPECT_TRUE(std::isnan(read_back<CrossEntropy>(on_total.span(), stream)[0].loss_sum));
}

TEST(DeviceLnsGemm, HasTheReferencesBits) {
  test::each_device_seed([] {
    for (const unsigned fraction_bits : {6u, 8u}) {
      const Lns lns(fraction_bits);
      for (const auto transpose : {Transpose::no, Transpose::yes}) {
        for (const GemmShape shape : {GemmShape{.m = 1, .n = 1, .k = 1}, GemmShape{.m = 17, .n = 33, .k = 40},
                                      GemmShape{.m = 16, .n = 16, .k = 16}, GemmShape{.m = 5, .n = 3, .k = 100}}) {
          GemmShape s = shape;
          s.transpose_a = transpose;
          s.transpose_b = s.m > 5 ? transpose : Transpose::no;
          std::vector<Lns16> a(s.m * s.k), b(s.k * s.n), c(s.m * s.n);
          lns_encode(lns, numbers(a.size(), 1), a);
          lns_encode(lns, numbers(b.size(), 2), b);
          lns_gemm_reference(s, lns, a, b, c);
          const runtime::Stream stream;
          const auto on_a = on_device<Lns16>(a, stream), on_b = on_device<Lns16>(b, stream);
          const auto table = on_device<std::int16_t>(lns.tables().doubled(), stream);
          runtime::DeviceBuffer<Lns16> on_c(c.size());
          cuda::lns_gemm(s, table.span(), on_a.span(), on_b.span(), on_c.span(), stream.get());
          ASSERT_EQ(read_back<Lns16>(on_c.span(), stream), c) << s.m << " " << s.n << " " << s.k;
        }
      }
    }
  });
}

#ifdef GRADMETER_CUDA_EMULATED
/// The launch is accepted; the kernel itself, of 17 million threads, is not run.
TEST(DeviceLnsGemm, TakesMoreRowsThanAGridHasInY) {
  cuda_emulator::set_seed(0);
  const GemmShape s{.m = 16 * 65'536, .n = 1, .k = 1};
  const Lns lns(6);
  const runtime::Stream stream;
  const auto table = on_device<std::int16_t>(lns.tables().doubled(), stream);
  const runtime::DeviceBuffer<Lns16> a(s.m), b(1);
  runtime::DeviceBuffer<Lns16> c(s.m);
  cuda_emulator::fail_kernel(1);
  EXPECT_NO_THROW(cuda::lns_gemm(s, table.span(), a.span(), b.span(), c.span(), stream.get()));
  EXPECT_THROW(stream.synchronize(), core::BackendError) << "it was launched";
  EXPECT_TRUE(cuda_emulator::take_reports().empty());
}
#endif

TEST(DeviceKernels, RefuseWrongLengths) {
  runtime::DeviceBuffer<float> four(4), five(5);
  EXPECT_THROW(cuda::sgd(four.span(), five.span(), 1, {}, nullptr), std::invalid_argument);
  EXPECT_THROW(cuda::momentum(four.span(), four.span(), five.span(), {}, {}, nullptr), std::invalid_argument);
  EXPECT_THROW(cuda::adam(four.span(), five.span(), four.span(), four.span(), {}, 1, nullptr), std::invalid_argument);
  EXPECT_THROW(cuda::column_sums(five.span(), 4, four.span(), {}, nullptr), std::invalid_argument);
  EXPECT_THROW(cuda::bf16_kahan(four.span(), four.span(), five.span(), {}, nullptr), std::invalid_argument);
}

}  // namespace
}  // namespace gradmeter::kernels
