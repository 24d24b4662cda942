// The device's own products, convolutions and recurrent layers against the host's references, on ragged sizes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <vector>

#include "core/error.hpp"
#include "core/random.hpp"
#include "core/small_float.hpp"
#include "kernels/accuracy.hpp"
#include "kernels/cuda/own_ops.hpp"
#include "kernels/cuda/product.hpp"
#include "kernels/op.hpp"
#include "kernels/reference/conv.hpp"
#include "runtime/cuda/queue.hpp"
#include "support/device_seeds.hpp"
#include "support/on_device.hpp"

namespace gradmeter::kernels {
namespace {

constexpr unsigned seeds = 5;

using Floats = std::vector<float>;
using runtime::Buffer;
using runtime::ConstBuffer;
using runtime::OwnedBuffer;

/// Plain operands in fp32 to an operation and back.
class OnDevice {
 public:
  OnDevice() {
    static const bool added = (cuda::add_cuda_own_ops(), true);
    (void)added;
  }
  std::unique_ptr<Op> prepare(const Problem& p, const OpOptions& o = {}) { return kernels::prepare(p, o, device_); }

  OwnedBuffer put(const Floats& x) {
    OwnedBuffer b = device_.allocate(core::Element::f32, x.size());
    queue_->at_once([&] { std::memcpy(b.buffer.host(), x.data(), b.buffer.bytes()); });
    return b;
  }
  Floats get(const ConstBuffer& b) {
    Floats x(b.bytes() / sizeof(float));
    queue_->at_once([&] { std::memcpy(x.data(), b.host(), b.bytes()); });
    return x;
  }
  void run(Op& op, std::vector<ConstBuffer> in, std::vector<Buffer> out) { op.run(*queue_, "test", in, out); }
  /// An input in its stored form.
  OwnedBuffer stored(const Op& op, std::size_t input, const Floats& x) {
    OwnedBuffer plain = put(x);
    if (*op.inputs()[input].format == number_format(core::Element::f32)) return plain;
    OwnedBuffer b = device_.allocate(core::Element::i8, op.inputs()[input].stored_bytes);
    run(*op.packing_floats(input), {plain.buffer}, {b.buffer});
    kept_.push_back(plain);
    return b;
  }
  /// What `op` makes of these; `before` is in the outputs that it adds to.
  std::vector<Floats> outputs(Op& op, const std::vector<Floats>& inputs, const std::vector<Floats>& before = {}) {
    std::vector<OwnedBuffer> in, out;
    for (std::size_t i = 0; i < inputs.size(); ++i) in.push_back(stored(op, i, inputs[i]));
    for (std::size_t i = 0; i < op.outputs().size(); ++i) {
      out.push_back(device_.allocate(core::Element::i8, op.outputs()[i].stored_bytes));
      if (i < before.size() && !before[i].empty()) out.back() = put(before[i]);
    }
    std::vector<ConstBuffer> read;
    std::vector<Buffer> written;
    for (const OwnedBuffer& b : in) read.emplace_back(b.buffer);
    for (const OwnedBuffer& b : out) written.push_back(b.buffer);
    run(op, read, written);
    std::vector<Floats> all;
    for (std::size_t i = 0; i < out.size(); ++i) all.push_back(floats(op, i, out[i].buffer));
    return all;
  }

 private:
  Floats floats(const Op& op, std::size_t output, const Buffer& b) {
    const Operand& o = op.outputs()[output];
    if (!o.format || *o.format == number_format(core::Element::f32)) return get(b);
    const OwnedBuffer plain = device_.allocate(core::Element::f32, o.elements);
    run(*op.unpacking_floats(output), {b}, {plain.buffer});
    return get(plain.buffer);
  }

  runtime::CudaDevice device_{0};
  std::unique_ptr<runtime::Queue> queue_ = device_.make_queue();
  std::vector<OwnedBuffer> kept_;
};

Floats drawn(std::size_t n, std::uint64_t stream) {
  const core::Random random(5, stream);
  Floats x(n);
  for (std::size_t i = 0; i < n; ++i) x[i] = static_cast<float>(random.gaussian(i));
  return x;
}

/// As the device has it: pieces of k one after another, each product added by one fused operation.
Floats ordered_product(const GemmShape& s, const Floats& a, const Floats& b, const Floats& bias, const Floats& before) {
  const bool ta = s.transpose_a == Transpose::yes, tb = s.transpose_b == Transpose::yes;
  const cuda::ProductPieces pieces = cuda::pieces_of({static_cast<unsigned>(s.m), static_cast<unsigned>(s.n),
                                                      static_cast<unsigned>(s.k), static_cast<unsigned>(s.count)});
  Floats c = before;
  for (std::size_t at = 0; at < c.size(); ++at) {
    const std::size_t p = at / (s.m * s.n), i = at / s.n % s.m, j = at % s.n;
    const float *const left = &a[p * s.m * s.k], *const right = &b[p * s.k * s.n];
    float sum = 0;
    for (std::size_t first = 0; first < s.k; first += pieces.length) {
      float piece = 0;
      for (std::size_t k = first; k < std::min<std::size_t>(first + pieces.length, s.k); ++k)
        piece = std::fma(left[ta ? k * s.m + i : i * s.k + k], right[tb ? j * s.k + k : k * s.n + j], piece);
      sum = pieces.count == 1 ? piece : sum + piece;
    }
    if (s.accumulate) sum += c[at];
    if (s.bias) sum += bias[j];
    c[at] = s.activation == Activation::relu && sum < 0 ? 0 : sum;
  }
  return c;
}

constexpr GemmShape gemm_shapes[] = {
    {.m = 1, .n = 1, .k = 1},
    {.m = 3, .n = 5, .k = 7, .bias = true},
    {.m = 33, .n = 31, .k = 17, .activation = Activation::relu, .accumulate = true},
    {.m = 64, .n = 64, .k = 16, .count = 2},
    {.m = 65, .n = 70, .k = 530, .bias = true, .activation = Activation::relu},
    {.m = 10, .n = 33, .k = 1100, .accumulate = true},
    {.m = 7, .n = 9, .k = 5, .accumulate = true, .count = 35},
    {.m = 20, .n = 70, .k = 3, .count = 70},
};

struct Operands {
  Floats a, b, bias, before;
  explicit Operands(const GemmShape& s)
      : a(drawn(s.count * s.m * s.k, 1)),
        b(drawn(s.count * s.k * s.n, 2)),
        bias(drawn(s.bias ? s.n : 0, 3)),
        before(drawn(s.count * s.m * s.n, 4)) {}
  std::vector<Floats> inputs() const {
    return bias.empty() ? std::vector<Floats>{a, b} : std::vector<Floats>{a, b, bias};
  }
};

template <class Body>
void each_transposed(Body body) {
  for (const GemmShape& shape : gemm_shapes)
    for (const auto a : {Transpose::no, Transpose::yes})
      for (const auto b : {Transpose::no, Transpose::yes}) {
        GemmShape s = shape;
        s.transpose_a = a, s.transpose_b = b;
        SCOPED_TRACE(text(s));
        body(s);
      }
}

TEST(DeviceOwnGemm, SumsInItsStatedOrder) {
  test::each_device_seed(
      [] {
        each_transposed([](const GemmShape& s) {
          OnDevice on;
          const Operands x(s);
          const Floats c = on.outputs(*on.prepare({.shape = s}), x.inputs(), {x.before})[0];
          test::expect_equal_floats(c, ordered_product(s, x.a, x.b, x.bias, x.before));
        });
      },
      seeds);
}

TEST(DeviceOwnGemm, TakesMoreBatchesThanItsGridHas) {
  const GemmShape s{.m = 1, .n = 1, .k = 2, .count = 1031};
  OnDevice on;
  const Operands x(s);
  const Floats c = on.outputs(*on.prepare({.shape = s}), x.inputs())[0];
  test::expect_equal_floats(c, ordered_product(s, x.a, x.b, x.bias, x.before));
}

TEST(DeviceOwnGemm, IsTheReferences) {
  each_transposed([](const GemmShape& s) {
    OnDevice on;
    const Operands x(s);
    const Floats c = on.outputs(*on.prepare({.shape = s}), x.inputs(), {x.before})[0];
    Floats right = x.before;
    runtime::HostQueue queue;
    std::vector<ConstBuffer> in;
    const std::vector<Floats> inputs = x.inputs();
    for (const Floats& f : inputs) in.emplace_back(f);
    const auto reference = prepare({.shape = s}, {.backend = "reference"});
    reference->run(queue, "reference", in, {right});
    EXPECT_LE(relative_error(c, right), gemm_tolerance(s));
  });
}

float rounded(float x, const core::SmallFormat& f) { return core::to_float(f, core::from_float(f, x)); }
Floats rounded(Floats x, const core::SmallFormat& f) {
  for (float& v : x) v = rounded(v, f);
  return x;
}

TEST(DeviceOwnGemm, OfSixteenBitsSumsInFloats) {
  test::each_device_seed(
      [] {
        for (const Precision p : {Precision::bf16, Precision::fp16}) {
          const core::SmallFormat& f = p == Precision::bf16 ? core::bf16_format : core::fp16_format;
          for (GemmShape s : gemm_shapes) {
            if (s.accumulate) continue;
            SCOPED_TRACE(text(s));
            OnDevice on;
            const Operands x(s);
            const Floats c = on.outputs(*on.prepare({.shape = s, .precision = p}), x.inputs())[0];
            const Floats sums = ordered_product(s, rounded(x.a, f), rounded(x.b, f), x.bias, x.before);
            test::expect_equal_floats(c, rounded(sums, f));
          }
        }
      },
      seeds);
}

TEST(DeviceOwnGemm, RefusesWhatItHasNot) {
  OnDevice on;
  const GemmShape s{.m = 2, .n = 2, .k = 2};
  GemmShape packed = s;
  packed.packed = true;
  EXPECT_THROW(on.prepare({.shape = packed}), core::UsageError);
  EXPECT_THROW(on.prepare({.shape = s, .precision = Precision::int8}), core::UsageError);
  const auto op = on.prepare({.shape = s});
  EXPECT_THROW(op->packing_floats(0), std::logic_error);
  EXPECT_THROW(op->unpacking_floats(0), std::logic_error);
  EXPECT_THROW(on.outputs(*op, {Floats(4), Floats(5)}), std::invalid_argument);
}

constexpr ConvShape conv_shapes[] = {
    {.width = 1, .height = 1, .channels = 1, .batch = 1, .filters = 1, .filter_width = 1, .filter_height = 1},
    {.width = 9,
     .height = 7,
     .channels = 5,
     .batch = 2,
     .filters = 19,
     .filter_width = 3,
     .filter_height = 2,
     .pad_width = 1},
    {.width = 11,
     .height = 13,
     .channels = 3,
     .batch = 3,
     .filters = 4,
     .filter_width = 5,
     .filter_height = 3,
     .pad_width = 2,
     .pad_height = 1,
     .stride_width = 3,
     .stride_height = 2},
    {.width = 5,
     .height = 4,
     .channels = 2,
     .batch = 1,
     .filters = 33,
     .filter_width = 2,
     .filter_height = 2,
     .pad_width = 3,
     .pad_height = 3,
     .stride_width = 2,
     .stride_height = 5},
    {.width = 40,
     .height = 20,
     .channels = 2,
     .batch = 2,
     .filters = 3,
     .filter_width = 3,
     .filter_height = 3,
     .pad_width = 1,
     .pad_height = 1},
};

/// `op` of the pass on gradients and images, and the reference's element.
ReferenceSum conv_at(const ConvShape& s, Pass pass, const std::vector<Floats>& in, std::size_t at) {
  if (pass == Pass::forward) return conv_forward_at(s, in[0], in[1], at);
  return pass == Pass::backward_data ? conv_backward_data_at(s, in[0], in[1], at)
                                     : conv_backward_weights_at(s, in[0], in[1], at);
}

void expect_convolution(const ConvShape& s, Pass pass, Precision p, Floats& of_first_seed) {
  SCOPED_TRACE(text(s) + " " + std::string(name(pass)) + " " + std::string(name(p)));
  OnDevice on;
  const auto op = on.prepare({.shape = s, .pass = pass, .precision = p});
  std::vector<Floats> in{drawn(op->inputs()[0].elements, 1), drawn(op->inputs()[1].elements, 2)};
  const Floats out = on.outputs(*op, in)[0];
  if (of_first_seed.empty()) of_first_seed = out;
  test::expect_equal_floats(out, of_first_seed);
  const core::SmallFormat f = p == Precision::bf16 ? core::bf16_format : core::fp16_format;
  if (p != Precision::fp32) in = {rounded(in[0], f), rounded(in[1], f)};
  const double roundoff =
      p == Precision::fp32 ? 0x1p-24
                           : core::info(p == Precision::bf16 ? core::Element::bf16 : core::Element::f16).unit_roundoff;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const ReferenceSum sum = conv_at(s, pass, in, i);
    ASSERT_NEAR(out[i], sum.value, roundoff * std::fabs(sum.value) + allowed_distance(sum, Precision::fp32)) << i;
  }
}

TEST(DeviceOwnConvolution, IsTheReferencesInEveryPass) {
  std::map<std::string, Floats> of_first_seed;
  test::each_device_seed(
      [&] {
        for (const ConvShape& s : conv_shapes)
          for (const Pass pass : {Pass::forward, Pass::backward_data, Pass::backward_weights})
            for (const Precision p : {Precision::fp32, Precision::bf16, Precision::fp16})
              expect_convolution(s, pass, p, of_first_seed[text(s) + std::string(name(pass)) + std::string(name(p))]);
      },
      seeds);
}

TEST(DeviceOwnConvolution, RefusesWhatItHasNot) {
  OnDevice on;
  ConvShape s = conv_shapes[1];
  EXPECT_THROW(on.prepare({.shape = s, .precision = Precision::int8}), core::UsageError);
  EXPECT_THROW(on.outputs(*on.prepare({.shape = s}), {Floats(4), Floats(5)}), std::invalid_argument);
  s.filter_width = 100;
  EXPECT_THROW(on.prepare({.shape = s}), core::UsageError);
}

}  // namespace
}  // namespace gradmeter::kernels
