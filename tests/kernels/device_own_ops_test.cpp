// The device's own products, convolutions and recurrent layers against the host's references, on ragged sizes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include "core/error.hpp"
#include "core/random.hpp"
#include "core/small_float.hpp"
#include "kernels/cases/rnn_check.hpp"
#include "kernels/cuda/ops.hpp"
#include "kernels/cuda/own/product.hpp"
#include "kernels/lns/gemm.hpp"
#include "kernels/op.hpp"
#include "kernels/reference/conv.hpp"
#include "kernels/reference/rnn.hpp"
#include "runtime/cuda/device.hpp"
#include "support/accuracy.hpp"
#include "support/device_seeds.hpp"
#include "support/on_device.hpp"
#include "support/op_runner.hpp"
#include "support/ragged_shapes.hpp"

namespace gradmeter::kernels {
namespace {

constexpr int seeds = 5;

using test::Floats;

/// Plain operands in fp32 to an operation and back.
class OnDevice {
 public:
  OnDevice() { add_cuda_ops(); }
  std::unique_ptr<Op> prepare(const Problem& p, const OpOptions& o = {}) {
    return kernels::prepare(p, {.training = o.training, .backend = "own"}, device_);
  }

  /// What `op` makes of these; `before` is in the outputs that it adds to.
  std::vector<Floats> outputs(Op& op, const std::vector<Floats>& inputs, const std::vector<Floats>& before = {}) {
    const auto out = runner_.call(op, runner_.stored(op, inputs), 1, before);
    std::vector<Floats> all;
    for (std::size_t i = 0; i < out.size(); ++i) all.push_back(runner_.plain(op, out[i], i));
    return all;
  }

 private:
  runtime::CudaDevice device_{0};
  test::OpRunner runner_{device_};
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
  test::each_device_seed<seeds>([] {
    each_transposed([](const GemmShape& s) {
      OnDevice on;
      const Operands x(s);
      const Floats c = on.outputs(*on.prepare({.shape = s}), x.inputs(), {x.before})[0];
      test::expect_equal_floats(c, ordered_product(s, x.a, x.b, x.bias, x.before));
    });
  });
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
    std::vector<runtime::ConstBuffer> in;
    const std::vector<Floats> inputs = x.inputs();
    for (const Floats& f : inputs) in.emplace_back(f);
    const auto reference = prepare({.shape = s}, {.backend = "reference"});
    reference->run(queue, "reference", in, {right});
    EXPECT_LE(test::relative_error(c, right), gemm_tolerance(s));
  });
}

float rounded(float x, const core::SmallFormat& f) { return core::to_float(f, core::from_float(f, x)); }
Floats rounded(Floats x, const core::SmallFormat& f) {
  for (float& v : x) v = rounded(v, f);
  return x;
}

TEST(DeviceOwnGemm, OfSixteenBitsSumsInFloats) {
  test::each_device_seed<seeds>([] {
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
  });
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

/// Special numbers among others, which the conversion has a way of its own for.
Floats with_specials(Floats x) {
  constexpr float specials[] = {0,     -0.0F,  1e-40F, -3e-45F,
                                1e38F, -3e38F, 1e-20F, std::numeric_limits<float>::infinity()};
  for (std::size_t i = 0; i < std::size(specials) && 3 * i < x.size(); ++i) x[3 * i] = specials[i];
  return x;
}

/// What the definition makes of operands in the system, as floats.
Floats lns_product(const GemmShape& s, const PrecisionInfo& p, const Operands& x) {
  const Lns lns(p.logarithm_bits);
  const auto encoded = [&](const Floats& f) {
    std::vector<Lns16> words(f.size());
    lns_encode(lns, f, words);
    return words;
  };
  const auto decoded = [&](const std::vector<Lns16>& words) {
    Floats f(words.size());
    lns_decode(lns, words, f);
    return f;
  };
  const auto a = encoded(x.a), b = encoded(x.b), bias = encoded(x.bias);
  std::vector<Lns16> c(s.m * s.n);
  GemmShape alone = s;
  alone.bias = false, alone.activation = Activation::none;
  if (p.logarithmic_sums) {
    lns_gemm_reference(alone, lns, a, b, c);
  } else {
    c = encoded(ordered_product(alone, decoded(a), decoded(b), {}, Floats(c.size())));
  }
  for (std::size_t i = 0; i < c.size(); ++i) {
    if (s.bias) c[i] = lns.add(c[i], bias[i % s.n]);
    if (s.activation == Activation::relu && c[i].negative()) c[i] = {};
  }
  return decoded(c);
}

TEST(DeviceOwnLns, HasTheHostsBits) {
  test::each_device_seed<seeds>([] {
    for (const Precision p : {Precision::lns16, Precision::lns16_linear, Precision::lns16_f7, Precision::lns16_f6})
      each_transposed([p](const GemmShape& s) {
        if (s.count > 1 || s.accumulate) return;
        OnDevice on;
        Operands x(s);
        x.a = with_specials(x.a);
        const Floats c = on.outputs(*on.prepare({.shape = s, .precision = p}), x.inputs())[0];
        test::expect_equal_floats(c, lns_product(s, info(p), x));
      });
  });
}

TEST(DeviceOwnLns, RefusesWhatTheHostRefuses) {
  OnDevice on;
  const auto refused = [&](GemmShape s) {
    EXPECT_THROW(on.prepare({.shape = s, .precision = Precision::lns16}), core::UsageError);
  };
  refused({.m = 2, .n = 2, .k = 2, .accumulate = true});
  refused({.m = 2, .n = 2, .k = 2, .count = 2});
  refused({.m = 2, .n = 2, .k = 2, .packed = true});
}

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
  test::each_device_seed<seeds>([&] {
    for (const ConvShape& s : test::ragged_convolutions)
      for (const Pass pass : {Pass::forward, Pass::backward_data, Pass::backward_weights})
        for (const Precision p : {Precision::fp32, Precision::bf16, Precision::fp16})
          expect_convolution(s, pass, p, of_first_seed[text(s) + std::string(name(pass)) + std::string(name(p))]);
  });
}

TEST(DeviceOwnConvolution, RefusesWhatItHasNot) {
  OnDevice on;
  ConvShape s = test::ragged_convolutions[1];
  EXPECT_THROW(on.prepare({.shape = s, .precision = Precision::int8}), core::UsageError);
  EXPECT_THROW(on.outputs(*on.prepare({.shape = s}), {Floats(4), Floats(5)}), std::invalid_argument);
  s.filter_width = 100;
  EXPECT_THROW(on.prepare({.shape = s}), core::UsageError);
}

Floats scaled(Floats x, float by) {
  for (float& v : x) v *= by;
  return x;
}
std::vector<double> wide(const Floats& x) { return {x.begin(), x.end()}; }

/// Forward and backward on the device, and what the reference makes of the same.
class RecurrentCheck {
 public:
  RecurrentCheck(const RnnShape& s, Precision p) : s_(s), p_(p) {
    const std::size_t columns = gates_of(s.cell) * s.hidden, state = s.batch * s.hidden;
    const float by = 1 / std::sqrt(static_cast<float>(s.hidden));
    inputs_ = {drawn(s.steps * s.batch * s.input_width(), 1), scaled(drawn(state, 2), 0.5F)};
    if (s.cell == Cell::lstm) inputs_.push_back(scaled(drawn(state, 3), 0.5F));
    inputs_.push_back(scaled(drawn(s.input_width() * columns, 4), by));
    inputs_.push_back(scaled(drawn(s.hidden * columns, 5), by));
    inputs_.push_back(scaled(drawn(columns, 6), 0.1F));
    gradient_ = drawn(s.steps * state, 7);
    forward_ = on_.outputs(*on_.prepare({.shape = s, .precision = p}, {.training = true}), inputs_);
    if (p != Precision::fp32)
      for (std::size_t i = 0; i + 1 < inputs_.size(); ++i)
        if (s.cell != Cell::lstm || i != 2) inputs_[i] = rounded(inputs_[i], format());
    reference_ = reference_inputs();
    trace_ = rnn_forward_reference(reference_);
  }

  void forward() {
    expect_right(Pass::forward, {{wide(forward_[0]), trace_.hidden}});
    const Floats inference = on_.outputs(*on_.prepare({.shape = s_, .precision = p_}), inputs_)[0];
    test::expect_equal_floats(inference, forward_[0]);
  }

  void backward() {
    std::vector<Floats> in = inputs_;
    in.insert(in.end(), {forward_[0], forward_[1], gradient_});
    const auto op = on_.prepare({.shape = s_, .pass = Pass::backward_data, .precision = p_});
    std::vector<Floats> before;
    for (const Operand& o : op->outputs()) before.push_back(o.added_to ? drawn(o.elements, 8) : Floats{});
    const std::vector<Floats> out = on_.outputs(*op, in, before);
    const RnnGradients right = rnn_backward_reference(reference_, trace_, wide(gradient_));
    std::vector<ComparedTensor> compared;
    for (std::size_t i = 0; i < out.size(); ++i) {
      ComparedTensor& c = compared.emplace_back(ComparedTensor{wide(out[i]), {}});
      for (std::size_t at = 0; at < out[i].size(); ++at)
        c.reference.push_back(of(op->outputs()[i].name, right, at) + (before[i].empty() ? 0 : before[i][at]));
    }
    expect_right(Pass::backward_data, compared);
  }

 private:
  const core::SmallFormat& format() const { return p_ == Precision::bf16 ? core::bf16_format : core::fp16_format; }
  RnnInputs reference_inputs() const {
    RnnInputs in{s_.cell, s_.hidden, s_.batch, s_.steps, s_.input};
    const std::size_t memory = s_.cell == Cell::lstm ? 1 : 0;
    in.layer = wide(inputs_[0]), in.state = wide(inputs_[1]);
    if (memory == 1) in.memory = wide(inputs_[2]);
    in.weights = inputs_[2 + memory], in.recurrent = inputs_[3 + memory], in.bias = wide(inputs_[4 + memory]);
    in.observed = wide(forward_[0]), in.rounds_last = p_ != Precision::fp32;
    return in;
  }
  double of(std::string_view name, const RnnGradients& g, std::size_t at) const {
    if (name == "input gradient") return g.layer[at];
    if (name == "state gradient") return g.state[at];
    if (name == "memory gradient") return g.memory[at];
    if (name == "weights gradient") return weights_gradient_at(reference_, g, at);
    return name == "bias gradient" ? bias_gradient_at(reference_, g, at)
                                   : recurrent_gradient_at(reference_, trace_, g, at);
  }
  /// fp16 is finer than bf16.
  void expect_right(Pass pass, const std::vector<ComparedTensor>& compared) const {
    const Precision p = p_ == Precision::fp32 ? p_ : Precision::bf16;
    const KernelCaseCheck check = checked_elements(compared, {.shape = s_, .pass = pass, .precision = p});
    EXPECT_TRUE(check.right()) << check.worst;
  }

  RnnShape s_;
  Precision p_;
  OnDevice on_;
  std::vector<Floats> inputs_, forward_;  // forward_: output, kept
  Floats gradient_;
  RnnInputs reference_;
  RnnTrace trace_;
};

TEST(DeviceOwnRecurrent, IsTheReferencesForwardAndBackward) {
  test::each_device_seed<seeds>([] {
    for (const Cell cell : {Cell::vanilla, Cell::lstm, Cell::gru})
      for (const RnnShape& s : {RnnShape{cell, 1, 1, 1}, RnnShape{cell, 33, 3, 5}, RnnShape{cell, 20, 35, 3, 7},
                                RnnShape{cell, 6, 40, 14, 70}})
        for (const Precision p : {Precision::fp32, Precision::bf16, Precision::fp16}) {
          if (p != Precision::fp32 && s.input != 7) continue;
          SCOPED_TRACE(text(s) + " " + std::string(name(p)));
          RecurrentCheck check(s, p);
          check.forward();
          check.backward();
        }
  });
}

TEST(DeviceOwnRecurrent, RefusesWhatItHasNot) {
  OnDevice on;
  const RnnShape s{Cell::gru, 3, 2, 2};
  EXPECT_THROW(on.prepare({.shape = s, .precision = Precision::int8}), core::UsageError);
  EXPECT_THROW(on.prepare({.shape = s, .pass = Pass::backward_weights}), core::UsageError);
  EXPECT_THROW(on.prepare({.shape = RnnShape{Cell::gru, 3, 2, 0}}), core::UsageError);
}

}  // namespace
}  // namespace gradmeter::kernels
