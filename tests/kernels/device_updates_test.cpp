// SPDX-License-Identifier: Apache-2.0
// What follows a backward pass on a GPU against the host's loops, bit for bit: updates by norms, weights in other
// formats, and the scale of a loss, which nobody waits for.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "core/random.hpp"
#include "kernels/cuda/backends.hpp"
#include "kernels/loops.hpp"
#include "runtime/cuda/device.hpp"
#include "support/device_seeds.hpp"

namespace gradmeter::kernels {
namespace {

using Floats = std::vector<float>;

Floats random_floats(std::size_t n, std::uint64_t seed, float size = 2) {
  const core::Random random(seed, 0);
  Floats v(n);
  for (std::size_t i = 0; i < n; ++i) v[i] = size * static_cast<float>(random.gaussian(i));
  return v;
}
Floats squares_of(Floats v) {
  for (float& x : v) x *= x;
  return v;
}

/// An array of any type, for a copy of it in a device's memory.
struct Array {
  core::Element element;
  std::vector<std::byte> bytes;
  template <class T>
  Array(const std::vector<T>& values)  // NOLINT(google-explicit-constructor): tests list them
      : element(core::element_of<T>), bytes(values.size() * sizeof(T)) {
    if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  }
  Buffer buffer() { return {element, std::span(bytes)}; }
  bool operator==(const Array&) const = default;
};
using Arrays = std::vector<Array>;

/// Some calls in a row, each work of its own, on the same arrays.
using Call = std::function<void(const Loops&, std::span<const Buffer>)>;
using Calls = std::vector<Call>;

Arrays on_host(const Calls& calls, Arrays arrays) {
  std::vector<Buffer> buffers;
  for (Array& a : arrays) buffers.push_back(a.buffer());
  for (const Call& call : calls) call(Loops(), buffers);
  return arrays;
}

/// Nothing waits before all of it is done.
Arrays on_gpu(const Calls& calls, Arrays arrays) {
  runtime::CudaDevice device(0);
  const auto queue = device.make_queue();
  std::vector<runtime::OwnedBuffer> memory;
  std::vector<Buffer> buffers;
  for (Array& a : arrays) {
    memory.push_back(device.allocate(a.element, a.bytes.size() / core::size_of(a.element)));
    buffers.push_back(memory.back().buffer);
    queue->copy("upload", a.buffer(), buffers.back());
  }
  for (const Call& call : calls) queue->submit("update", {}, [&] { call(loops(), buffers); });
  for (std::size_t i = 0; i < arrays.size(); ++i) queue->copy("download", buffers[i], arrays[i].buffer());
  queue->synchronise();
  return arrays;
}

class DeviceUpdates : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { cuda::add_cuda_loops(); }

  /// changed: how many of the arrays the calls must change, from the first.
  static void expect_host(const std::string& what, const Calls& calls, const Arrays& arrays, std::size_t changed) {
    const Arrays expected = on_host(calls, arrays);
    for (std::size_t i = 0; i < changed; ++i) EXPECT_FALSE(expected[i] == arrays[i]) << what << " changes nothing";
    test::each_device_seed([&] {
      const Arrays found = on_gpu(calls, arrays);
      for (std::size_t i = 0; i < arrays.size(); ++i) EXPECT_TRUE(found[i] == expected[i]) << what << ", array " << i;
    });
  }
};

/// More pieces than a launch takes, in lengths around lanes, blocks and nothing, with gaps that belong to none.
std::vector<TensorPiece> pieces_of(std::size_t& elements) {
  std::vector<TensorPiece> pieces;
  elements = 0;
  const auto add = [&](std::size_t count) {
    pieces.push_back({elements, count});
    elements += count + pieces.size() % 3;
  };
  for (const std::size_t count : {1U, 7U, 8U, 9U, 0U, 4095U, 4096U, 4097U, 0U, 4104U, 20003U}) add(count);
  while (pieces.size() < 70) add(pieces.size());
  add(0);
  return pieces;
}

/// w, m, v, sums, g, counts.
Arrays arrays_for_norms(std::size_t elements, std::size_t pieces, const std::vector<std::int64_t>& counts) {
  return {random_floats(elements, 1),      random_floats(elements, 2), squares_of(random_floats(elements, 3)),
          std::vector<double>(2 * pieces), random_floats(elements, 4), counts};
}

TEST_F(DeviceUpdates, ByNormsHaveTheHostsBits) {
  std::size_t n = 0;
  const auto pieces = pieces_of(n);
  const LarsParameters lars{.step = 0.3F, .mu = 0.9F, .eta = 0.01F, .decay = 0.02F};
  const Calls of_lars{[&](const Loops& l, auto b) { l.lars_norms(b[0], b[4], pieces, b[3]); },
                      [&](const Loops& l, auto b) { l.lars(b[0], b[1], b[4], pieces, b[3], lars, {}); }};
  expect_host("lars", of_lars, arrays_for_norms(n, pieces.size(), {}), 2);
  const LambParameters lamb{.step = 0.3F, .beta1 = 0.9F, .beta2 = 0.99F, .epsilon = 1e-6F, .decay = 0.02F};
  for (const std::int64_t skipped : {0, 4}) {
    const Calls of_lamb{[&](const Loops& l, auto b) {
                          l.lamb_norms(b[0], b[1], b[2], b[4], pieces, b[3], lamb, {9, b[5]});
                        },
                        [&](const Loops& l, auto b) {
                          l.lamb(b[0], b[1], b[2], pieces, b[3], lamb, {9, b[5]});
                        }};
    expect_host("lamb", of_lamb, arrays_for_norms(n, pieces.size(), {0, skipped, 0}), 4);
  }
}

TEST_F(DeviceUpdates, ByNormsOfZeroTakeTheWholeStep) {
  const std::vector<TensorPiece> pieces{{0, 5}, {5, 5}};
  Arrays arrays = arrays_for_norms(10, 2, {});
  arrays[0] = Floats(10);
  const LarsParameters lars{.step = 0.3F, .mu = 0, .eta = 0.01F, .decay = 0};
  expect_host("lars",
              {[&](const Loops& l, auto b) { l.lars_norms(b[0], b[4], pieces, b[3]); },
               [&](const Loops& l, auto b) { l.lars(b[0], b[1], b[4], pieces, b[3], lars, {}); }},
              arrays, 2);
}

TEST_F(DeviceUpdates, OutsideOfTheirBuffersAreRefused) {
  runtime::CudaDevice device(0);
  const auto queue = device.make_queue();
  const auto w = device.allocate(core::Element::f32, 10), sums = device.allocate(core::Element::f64, 2);
  const std::vector<TensorPiece> pieces{{6, 5}};
  const auto norms = [&] { loops().lars_norms(w.buffer, w.buffer, pieces, sums.buffer); };
  EXPECT_THROW(queue->submit("norms", {}, norms), std::invalid_argument);
  queue->synchronise();  // the workspace is given back in the stream
}

/// w, m, v, target, g, counts.
Arrays arrays_of(std::size_t n, const std::vector<std::int64_t>& counts) {
  return {random_floats(n, 1), random_floats(n, 2), squares_of(random_floats(n, 3)),
          random_floats(n, 4), random_floats(n, 5), counts};
}

struct Update {
  std::string name;
  Call call;
  std::size_t changes;  ///< arrays from the first
};
/// Each with update number 9.
std::vector<Update> updates(bool counts) {
  const auto t = [counts](auto b) {
    return UpdateNumber{9, counts ? ConstBuffer(b[5]) : ConstBuffer(runtime::empty_buffer)};
  };
  std::vector<Update> all{
      {"sgd", [=](const Loops& l, auto b) { l.sgd(b[0], b[4], 0.1F, t(b)); }, 1},
      {"momentum",
       [=](const Loops& l, auto b) {
         l.momentum(b[0], b[1], b[4], {0.1F, 0.9F, true}, t(b));
       },
       2},
      {"adam", [=](const Loops& l, auto b) { l.adam_step(b[0], b[1], b[2], b[4], {.step = 0.1F}, 0.99F, t(b)); }, 3},
      {"bf16", [=](const Loops& l, auto b) { l.bf16_nearest(b[3], b[0], t(b)); }, 1},
      {"bf16-kahan", [=](const Loops& l, auto b) { l.bf16_kahan(b[0], b[3], b[1], t(b)); }, 2},
      {"bf16-sr", [=](const Loops& l, auto b) { l.bf16_stochastic(b[0], b[3], 1027, t(b)); }, 1}};
  for (const unsigned bits : {6U, 7U, 8U})
    for (const bool kahan : {false, true}) {
      const LnsUpdateRule u{bits, kahan};
      const auto carry = [kahan](auto b) { return kahan ? b[1] : runtime::empty_buffer; };
      const std::string name = "lns " + std::to_string(bits) + (kahan ? " kahan" : "");
      all.push_back({name + " add", [=](const Loops& l, auto b) { l.lns_update(u, b[0], b[3], carry(b), t(b)); },
                     kahan ? 2U : 1U});
      all.push_back({name + " descend",
                     [=](const Loops& l, auto b) { l.lns_descend(u, b[0], b[4], 0.1F, carry(b), t(b)); },
                     kahan ? 2U : 1U});
    }
  return all;
}

TEST_F(DeviceUpdates, HaveTheHostsBits) {
  for (const std::size_t n : {1U, 255U, 1000U})
    for (const Update& u : updates(false)) expect_host(u.name, {u.call}, arrays_of(n, {}), u.changes);
  expect_host("lns_round", {[](const Loops& l, auto b) { l.lns_round(7, b[0]); }}, {random_floats(999, 1)}, 1);
}

/// The number that counts is theirs less the steps that were skipped.
TEST_F(DeviceUpdates, AreThoseOfTheStepsThatWereMade) {
  for (const Update& u : updates(true)) expect_host(u.name, {u.call}, arrays_of(777, {0, 3, 5}), u.changes);
}

TEST_F(DeviceUpdates, AreNotMadeInASkippedStep) {
  std::size_t n = 0;
  const auto pieces = pieces_of(n);
  std::vector<Update> all = updates(true);
  for (const Update& u : all) {
    const Arrays before = arrays_of(777, {1, 3, 5});
    EXPECT_TRUE(on_host({u.call}, before) == before) << u.name;
    expect_host(u.name, {u.call}, before, 0);
  }
  const LambParameters lamb{.step = 0.3F, .beta1 = 0.9F, .beta2 = 0.99F, .epsilon = 1e-6F, .decay = 0.02F};
  const LarsParameters lars{.step = 0.3F, .mu = 0.9F, .eta = 0.01F, .decay = 0.02F};
  expect_host("lamb",
              {[&](const Loops& l, auto b) {
                 l.lamb_norms(b[0], b[1], b[2], b[4], pieces, b[3], lamb, {9, b[5]});
               },
               [&](const Loops& l, auto b) {
                 l.lamb(b[0], b[1], b[2], pieces, b[3], lamb, {9, b[5]});
               }},
              arrays_for_norms(n, pieces.size(), {1, 0, 0}), 0);
  expect_host("lars", {[&](const Loops& l, auto b) {
                l.lars(b[0], b[1], b[4], pieces, b[3], lars, {9, b[5]});
              }},
              arrays_for_norms(n, pieces.size(), {1, 0, 0}), 0);
}

/// Steps of a training whose gradients overflow in some: checks, updates and the scale are work in a row, and the host
/// learns nothing before the end.
TEST_F(DeviceUpdates, FollowALossScaleThatAdapts) {
  constexpr std::size_t n = 1000;
  for (const float wrong : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                            std::numeric_limits<float>::quiet_NaN()})
    for (const std::size_t place : {0U, 31U, 517U, 999U}) {
      Floats overflowing = random_floats(n, 6);
      overflowing[place] = wrong;
      const auto step = [](std::uint64_t number, std::size_t g) {
        return Calls{[=](const Loops& l, auto b) { l.note_non_finite(b[g], b[3]); },
                     [=](const Loops& l, auto b) {
                       l.adam_step(b[0], b[1], b[2], b[g], {.step = 0.1F}, 1, {number, b[3]});
                     },
                     [](const Loops& l, auto b) { l.end_step(b[4], b[3], 2); },
                     [](const Loops& l, auto b) { l.unscale(b[5], b[4]); }};
      };
      Calls calls;
      for (const auto& [number, g] : std::vector<std::pair<std::uint64_t, std::size_t>>{
               {1, 6}, {2, 7}, {3, 6}, {4, 6}, {5, 6}, {6, 7}, {7, 7}, {8, 6}})
        for (const Call& c : step(number, g)) calls.push_back(c);
      const Arrays arrays{random_floats(n, 1),
                          random_floats(n, 2),
                          squares_of(random_floats(n, 3)),
                          std::vector<std::int64_t>{0, 0, 0},
                          Floats{1024},
                          random_floats(n, 4),
                          random_floats(n, 5),
                          overflowing};
      expect_host("a scale", calls, arrays, 6);
      const Arrays ends = on_host(calls, arrays);
      std::vector<std::int64_t> counts(3);
      std::memcpy(counts.data(), ends[3].bytes.data(), ends[3].bytes.size());
      EXPECT_EQ(counts, (std::vector<std::int64_t>{0, 3, 1}));
    }
}

TEST_F(DeviceUpdates, ScalesStayWithinNormalNumbers) {
  for (const auto& [scale, skips] : {std::pair{0x1p127F, 0}, std::pair{0x1p126F, 0}, std::pair{0x1p-126F, 1}})
    expect_host("end_step", {[](const Loops& l, auto b) { l.end_step(b[0], b[1], 1); }},
                {Floats{scale}, std::vector<std::int64_t>{skips, 0, 0}}, scale == 0x1p126F ? 1 : 0);
}

/// Loss and gradient, with a scale in the device's memory and without.
TEST_F(DeviceUpdates, OfLogarithmsBeginWithALossOfTheHostsBits) {
  for (const unsigned bits : {6U, 7U, 8U})
    for (const auto& [rows, classes] : {std::pair{1U, 1U}, std::pair{19U, 10U}, std::pair{300U, 33U}}) {
      std::vector<std::int32_t> labels(rows);
      for (std::size_t i = 0; i < rows; ++i) labels[i] = static_cast<std::int32_t>(3 * i % classes);
      Floats logits = random_floats(std::size_t{rows} * classes, 7, 3);
      for (std::size_t i = 0; classes > 4 && i < rows; i += 3) logits[i * classes + 4] = logits[i * classes + 1] = 30;
      for (const float scale : {0.0F, 1024.0F}) {
        std::vector<CrossEntropy> losses;
        const auto take = [&](const CrossEntropy& c) { losses.push_back(c); };
        const Calls calls{[&, bits = bits](const Loops& l, auto b) {
          const ConstBuffer factor = scale > 0 ? ConstBuffer(b[3]) : ConstBuffer(runtime::empty_buffer);
          l.lns_cross_entropy(bits, b[1], b[2], factor, b[0], take);
          l.lns_cross_entropy(bits, b[1], b[2], factor, b[0].part(0, 0), take);
        }};
        expect_host("lns loss", calls, {Floats(logits.size(), 7), logits, labels, Floats{scale}}, 1);
        for (const CrossEntropy& c : losses) {
          EXPECT_EQ(c.loss_sum, losses[0].loss_sum);
          EXPECT_EQ(c.correct, losses[0].correct);
        }
        EXPECT_GE(losses.size(), 4U);
      }
    }
}

}  // namespace
}  // namespace gradmeter::kernels
