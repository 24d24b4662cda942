// SPDX-License-Identifier: Apache-2.0
// Loops of transformer layers on the device against the host's and the float64 references.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "core/random.hpp"
#include "kernels/attention/gpu_kernels.hpp"
#include "kernels/attention/transformer.hpp"
#include "support/device_seeds.hpp"
#include "support/on_device.hpp"

namespace gradmeter::kernels {
namespace {

using test::on_device;
using test::read_back;
using Floats = std::vector<float>;

constexpr float close = 0x1p-20F;

Floats gaussians(std::size_t n, std::uint64_t stream, float size = 2) {
  const core::Random random(8, stream);
  Floats x(n);
  for (std::size_t i = 0; i < n; ++i) x[i] = size * static_cast<float>(random.gaussian(i));
  return x;
}

void expect_near(const Floats& got, const Floats& right, const Floats& tolerance) {
  ASSERT_EQ(got.size(), right.size());
  for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], right[i], tolerance[i]) << i << " of " << got.size();
}

TEST(DeviceGelu, IsTheReferences) {
  test::each_device_seed([] {
    for (const std::size_t n : {0u, 1u, 257u, 1000u}) {
      const Floats x = gaussians(n, 0, 4), delta = gaussians(n, 1);
      Floats y(n), to(n), value_tolerance(n), gradient_tolerance(n);
      gelu_reference(x, y);
      gelu_backward_reference(x, delta, to);
      const runtime::Stream stream;
      const auto on_x = on_device<float>(x, stream), on_delta = on_device<float>(delta, stream);
      runtime::DeviceBuffer<float> on_y(n), on_to(n);
      cuda::gelu(on_x.span(), on_y.span(), stream.get());
      cuda::gelu_backward(on_x.span(), on_delta.span(), on_to.span(), stream.get());
      for (std::size_t i = 0; i < n; ++i) {
        value_tolerance[i] = close * (1 + std::fabs(x[i]));
        gradient_tolerance[i] = 2 * close * (1 + std::fabs(x[i])) * std::fabs(delta[i]);
      }
      expect_near(read_back<float>(on_y.span(), stream), y, value_tolerance);
      expect_near(read_back<float>(on_to.span(), stream), to, gradient_tolerance);
    }
  });
}

Floats tolerance_of(const Floats& right, float share) {
  Floats tolerance(right.size());
  for (std::size_t i = 0; i < right.size(); ++i) tolerance[i] = share * (1 + std::fabs(right[i]));
  return tolerance;
}

TEST(DeviceLayerNorm, IsTheHosts) {
  test::each_device_seed([] {
    for (const auto& [rows, width] :
         {std::pair<std::size_t, std::size_t>{9, 1}, {9, 31}, {40, 64}, {9, 300}, {1030, 5}}) {
      const std::size_t n = rows * width;
      const Floats x = gaussians(n, 0), gain = gaussians(width, 1), bias = gaussians(width, 2), delta = gaussians(n, 3);
      Floats y(n), to(n), by_gain(width), by_bias(width);
      layer_norm(x, gain, bias, y);
      layer_norm_backward(x, gain, delta, to);
      layer_norm_backward_parameters(x, delta, by_gain, by_bias);
      const runtime::Stream stream;
      const auto on_x = on_device<float>(x, stream), on_gain = on_device<float>(gain, stream),
                 on_bias = on_device<float>(bias, stream), on_delta = on_device<float>(delta, stream);
      runtime::DeviceBuffer<float> on_y(n), on_to(n), on_by_gain(width), on_by_bias(width),
          workspace(cuda::layer_norm_workspace(rows, width));
      cuda::layer_norm(on_x.span(), on_gain.span(), on_bias.span(), on_y.span(), stream.get());
      cuda::layer_norm_backward(on_x.span(), on_gain.span(), on_delta.span(), on_to.span(), stream.get());
      cuda::layer_norm_backward_parameters(on_x.span(), on_delta.span(), on_by_gain.span(), on_by_bias.span(),
                                           workspace.span(), stream.get());
      expect_near(read_back<float>(on_y.span(), stream), y, tolerance_of(y, close));
      // One element has no variance: the deviation is 1/316, which enlarges what its gradient is off.
      expect_near(read_back<float>(on_to.span(), stream), to, tolerance_of(to, width == 1 ? 0x1p-12F : close));
      expect_near(read_back<float>(on_by_gain.span(), stream), by_gain, tolerance_of(by_gain, close));
      test::expect_equal_floats(read_back<float>(on_by_bias.span(), stream), by_bias);
    }
  });
}

TEST(DeviceCausalSoftmax, IsTheReferences) {
  test::each_device_seed([] {
    for (const std::size_t steps : {1u, 5u, 33u}) {
      const std::size_t n = 3 * steps * steps;
      const Floats scores = gaussians(n, 0, 8);
      Floats right = scores, gradient = gaussians(n, 1);
      causal_softmax_reference(right, steps, 0.3F);
      const runtime::Stream stream;
      auto on = on_device<float>(scores, stream), on_gradient = on_device<float>(gradient, stream);
      cuda::causal_softmax(on.span(), steps, 0.3F, stream.get());
      const Floats got = read_back<float>(on.span(), stream);
      Floats tolerance = right;
      for (float& t : tolerance) t *= t > 0 ? close * (1 + std::fabs(std::log(t))) : 0;
      expect_near(got, right, tolerance);
      cuda::causal_softmax_backward(on.span(), on_gradient.span(), steps, 0.3F, stream.get());
      causal_softmax_backward(got, gradient, steps, 0.3F);
      expect_near(read_back<float>(on_gradient.span(), stream), gradient, tolerance_of(gradient, close));
    }
  });
}

}  // namespace
}  // namespace gradmeter::kernels
