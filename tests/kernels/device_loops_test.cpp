// SPDX-License-Identifier: Apache-2.0
// The loops of layers and optimizers on a GPU against the host's, by the way that layers call them: within work of a
// queue, on buffers.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "core/random.hpp"
#include "kernels/cuda/backends.hpp"
#include "kernels/loops.hpp"
#include "runtime/cuda/device.hpp"
#include "support/device_seeds.hpp"
#include "support/on_device.hpp"

namespace gradmeter::kernels {
namespace {

using runtime::empty_buffer;
using Values = std::vector<float>;

Values random_values(std::size_t n, std::uint64_t seed) {
  const core::Random random(seed, 0);
  Values v(n);
  for (std::size_t i = 0; i < n; ++i) v[i] = static_cast<float>(4 * random.uniform(i) - 2);
  return v;
}

/// Buffers of one call by their order: those that are read, then those that are written, which it also returns.
using Call = std::function<void(const Loops&, std::span<const ConstBuffer>, std::span<const Buffer>)>;

std::vector<Values> on_host(const Call& call, const std::vector<Values>& in, std::vector<Values> out) {
  std::vector<ConstBuffer> reads(in.begin(), in.end());
  std::vector<Buffer> writes;
  for (Values& v : out) writes.emplace_back(v);
  call(Loops(), reads, writes);
  return out;
}

std::vector<Values> on_gpu(const Call& call, const std::vector<Values>& in, std::vector<Values> out) {
  runtime::CudaDevice device(0);
  const auto queue = device.make_queue();
  std::vector<runtime::OwnedBuffer> memory;
  std::vector<ConstBuffer> reads;
  std::vector<Buffer> writes;
  const auto upload = [&](const Values& v) {
    memory.push_back(device.allocate(core::Element::f32, v.size()));
    queue->copy("upload", v, memory.back().buffer);
    return memory.back().buffer;
  };
  for (const Values& v : in) reads.emplace_back(upload(v));
  for (const Values& v : out) writes.push_back(upload(v));
  queue->submit("loop", {}, [&] { call(loops(), reads, writes); });
  for (std::size_t i = 0; i < out.size(); ++i) queue->copy("download", writes[i], out[i]);
  queue->synchronise();
  return out;
}

class DeviceLoops : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { cuda::add_cuda_loops(); }

  /// tolerance: of results around 1; 0: bit for bit.
  static void expect_host(const char* what, const Call& call, const std::vector<Values>& in,
                          const std::vector<Values>& out, float tolerance = 0) {
    const auto expected = on_host(call, in, out);
    test::each_device_seed([&] {
      SCOPED_TRACE(what);
      const auto found = on_gpu(call, in, out);
      for (std::size_t b = 0; b < out.size(); ++b) {
        if (tolerance == 0) {
          test::expect_equal_floats(found[b], expected[b]);
        } else {
          for (std::size_t i = 0; i < found[b].size(); ++i)
            ASSERT_NEAR(found[b][i], expected[b][i], tolerance * (1 + std::fabs(expected[b][i]))) << i;
        }
      }
    });
  }
};

TEST_F(DeviceLoops, OfPointwiseArithmeticHaveTheHostsBits) {
  for (const std::size_t n : {1U, 255U, 257U, 1000U}) {
    const Values a = random_values(n, 1), b = random_values(n, 2), c = random_values(n, 3);
    expect_host("clear", [](const Loops& l, auto, auto out) { l.clear(out[0]); }, {}, {c});
    expect_host("fill", [](const Loops& l, auto, auto out) { l.fill(out[0], 3.5F); }, {}, {c});
    expect_host("scale", [](const Loops& l, auto, auto out) { l.scale(out[0], 0.7F); }, {}, {c});
    expect_host("add", [](const Loops& l, auto in, auto out) { l.add(in[0], in[1], out[0]); }, {a, b}, {c});
    expect_host("add to one's own", [](const Loops& l, auto in, auto out) { l.add(in[0], out[0], out[0]); }, {a}, {c});
    expect_host("add_and_scale",
                [](const Loops& l, auto in, auto out) { l.add_and_scale(in[0], in[1], 1.0F / 3, out[0]); }, {a, b},
                {c});
    expect_host("relu_backward", [](const Loops& l, auto in, auto out) { l.relu_backward(in[0], out[0]); }, {a}, {c});
  }
}

TEST_F(DeviceLoops, OfRowsAndChannelsHaveTheHostsBits) {
  constexpr std::size_t rows = 13, width = 37, samples = 3, channels = 5, pixels = 23;
  const Values x = random_values(rows * width, 1), row = random_values(width, 2), any = random_values(rows * width, 3);
  for (const bool is_relu : {false, true})
    expect_host("add_row", [=](const Loops& l, auto in, auto out) { l.add_row(in[0], in[1], is_relu, out[0]); },
                {x, row}, {any});
  expect_host("column_sums", [](const Loops& l, auto in, auto out) { l.column_sums(in[0], out[0]); }, {x}, {row});
  const Values images = random_values(samples * channels * pixels, 4), bias = random_values(channels, 5);
  expect_host("add_channels_and_relu",
              [](const Loops& l, auto in, auto out) { l.add_channels_and_relu(in[0], pixels, out[0]); }, {bias},
              {images});
  expect_host("channel_sums", [](const Loops& l, auto in, auto out) { l.channel_sums(in[0], pixels, out[0]); },
              {images}, {bias});
  const Values many = random_values(1100 * channels * 2, 6), tall = random_values(1100 * channels, 7);
  expect_host("channel_sums of many images",
              [](const Loops& l, auto in, auto out) { l.channel_sums(in[0], 2, out[0]); }, {many}, {bias});
  expect_host("column_sums of many rows", [](const Loops& l, auto in, auto out) { l.column_sums(in[0], out[0]); },
              {tall}, {bias});
}

TEST_F(DeviceLoops, ThatMoveNumbersHaveTheHostsBits) {
  constexpr std::size_t rows = 7, columns = 5, width = 3, words = 11;
  const Values x = random_values(rows * columns * width, 1), any = random_values(rows * columns * width, 2);
  expect_host("swap_rows_and_columns",
              [](const Loops& l, auto in, auto out) { l.swap_rows_and_columns(in[0], rows, columns, width, out[0]); },
              {x}, {any});
  const Values tokens = random_values(2 * 3 * 3 * 4 * 5, 3), to = random_values(tokens.size(), 4);
  for (const bool to_heads : {false, true})
    expect_host("reorder_heads",
                [=](const Loops& l, auto in, auto out) {
                  l.reorder_heads(in[0], {.samples = 2, .steps = 3, .heads = 4, .width = 5, .to_heads = to_heads},
                                  out[0]);
                },
                {tokens}, {to});
  Values text(29);
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<float>(i * i % words);
  const Values table = random_values(words * width, 5), vectors = random_values(text.size() * width, 6);
  expect_host("embed", [](const Loops& l, auto in, auto out) { l.embed(in[0], in[1], width, out[0]); }, {text, table},
              {vectors});
  for (const bool clears : {false, true})
    expect_host("embed_backward",
                [=](const Loops& l, auto in, auto out) { l.embed_backward(in[0], in[1], width, clears, out[0]); },
                {text, vectors}, {table});
}

TEST_F(DeviceLoops, OfOptimizersHaveTheHostsBits) {
  constexpr std::size_t n = 777;
  const Values g = random_values(n, 1), w = random_values(n, 2), m = random_values(n, 3);
  Values v = random_values(n, 4);
  for (float& x : v) x = std::fabs(x);
  expect_host("sgd", [](const Loops& l, auto in, auto out) { l.sgd(out[0], in[0], 0.1F, {}); }, {g}, {w});
  for (const bool nesterov : {false, true})
    expect_host("momentum",
                [=](const Loops& l, auto in, auto out) {
                  l.momentum(out[0], out[1], in[0], {.step = 0.1F, .mu = 0.9F, .nesterov = nesterov}, {});
                },
                {g}, {w, m});
  for (const float decay_factor : {1.0F, 0.99F})
    expect_host(
        "adam",
        [=](const Loops& l, auto in, auto out) { l.adam(out[0], out[1], out[2], in[0], {.update = 3}, decay_factor); },
        {g}, {w, m, v});
}

TEST_F(DeviceLoops, WithExponentialsAreNearTheHosts) {
  constexpr std::size_t rows = 9, width = 33, steps = 7;
  const Values x = random_values(rows * width, 1), delta = random_values(rows * width, 2),
               gain = random_values(width, 3), bias = random_values(width, 4), any = random_values(rows * width, 5);
  constexpr float near = 0x1p-17F;
  expect_host(
      "gelu", [](const Loops& l, auto in, auto out) { l.gelu(in[0], out[0]); }, {x}, {any}, near);
  expect_host(
      "gelu_backward", [](const Loops& l, auto in, auto out) { l.gelu_backward(in[0], in[1], out[0]); }, {x, delta},
      {any}, near);
  expect_host(
      "layer_norm", [](const Loops& l, auto in, auto out) { l.layer_norm(in[0], in[1], in[2], out[0]); },
      {x, gain, bias}, {any}, near);
  expect_host(
      "layer_norm_backward",
      [](const Loops& l, auto in, auto out) { l.layer_norm_backward(in[0], in[1], in[2], out[0]); }, {x, gain, delta},
      {any}, near);
  expect_host(
      "layer_norm_backward_parameters",
      [](const Loops& l, auto in, auto out) { l.layer_norm_backward_parameters(in[0], in[1], out[0], out[1]); },
      {x, delta}, {gain, bias}, near);
  const Values scores = random_values(3 * steps * steps, 6), gradient = random_values(scores.size(), 7);
  expect_host(
      "causal_softmax", [](const Loops& l, auto, auto out) { l.causal_softmax(out[0], steps, 0.3F); }, {}, {scores},
      near);
  expect_host(
      "causal_softmax_backward",
      [](const Loops& l, auto in, auto out) { l.causal_softmax_backward(in[0], out[0], steps, 0.3F); }, {scores},
      {gradient}, near);
}

/// The loss comes when the queue got there, once; without a gradient too.
TEST_F(DeviceLoops, LossesArriveAtTheHost) {
  constexpr std::size_t rows = 19, classes = 10;
  Values logits = random_values(rows * classes, 1), gradient(rows * classes);
  std::vector<std::int32_t> labels(rows);
  for (std::size_t i = 0; i < rows; ++i) labels[i] = static_cast<std::int32_t>(3 * i % classes);
  CrossEntropy expected{};
  Loops().cross_entropy(logits, labels, empty_buffer, gradient, [&](const CrossEntropy& c) { expected = c; });
  test::each_device_seed([&] {
    runtime::CudaDevice device(0);
    const auto queue = device.make_queue();
    const auto x = device.allocate(core::Element::f32, logits.size()), y = device.allocate(core::Element::i32, rows),
               g = device.allocate(core::Element::f32, logits.size());
    queue->copy("upload", logits, x.buffer);
    queue->copy("upload", labels, y.buffer);
    std::vector<CrossEntropy> found;
    const auto take = [&](const CrossEntropy& c) { found.push_back(c); };
    queue->submit("loss", {}, [&] { loops().cross_entropy(x.buffer, y.buffer, empty_buffer, g.buffer, take); });
    queue->submit("loss", {},
                  [&] { loops().cross_entropy(x.buffer, y.buffer, empty_buffer, g.buffer.part(0, 0), take); });
    Values back(gradient.size());
    queue->copy("download", g.buffer, back);
    queue->synchronise();
    ASSERT_EQ(found.size(), 2U);
    for (const CrossEntropy& c : found) {
      EXPECT_NEAR(c.loss_sum, expected.loss_sum, 1e-5);
      EXPECT_EQ(c.correct, expected.correct);
    }
    for (std::size_t i = 0; i < back.size(); ++i) EXPECT_NEAR(back[i], gradient[i], 1e-6) << i;
  });
}

TEST_F(DeviceLoops, OfOtherMemoryAreTheHosts) {
  runtime::CudaDevice device(0);
  const auto queue = device.make_queue();
  const auto b = device.allocate(core::Element::f32, 10);
  Values ones(10, 1), sums(10);
  queue->submit("fill", {}, [&] { loops().fill(b.buffer, 2); });
  queue->run_and_wait([&] { loops().add(b.buffer, ones, sums); });
  EXPECT_EQ(sums, Values(10, 3));
}

}  // namespace
}  // namespace gradmeter::kernels
