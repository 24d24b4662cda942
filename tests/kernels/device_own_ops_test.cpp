// SPDX-License-Identifier: Apache-2.0
// The device's own products and convolutions against the host's references, on ragged sizes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include "core/element.hpp"
#include "core/error.hpp"
#include "core/random.hpp"
#include "kernels/conv/reference.hpp"
#include "kernels/cuda/backends.hpp"
#include "kernels/gemm/gpu_kernels.hpp"
#include "kernels/lns/lns.hpp"
#include "kernels/op.hpp"
#include "support/accuracy.hpp"
#include "support/device_seeds.hpp"
#include "support/kernel_references.hpp"
#include "support/on_device.hpp"
#include "support/own_ops.hpp"
#include "support/ragged_shapes.hpp"

namespace gradmeter::kernels {
namespace {

constexpr int seeds = 5;

using test::drawn;
using test::Floats;
using test::OwnOps;
using test::rounded;

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
      OwnOps on;
      const Operands x(s);
      const Floats c = on.outputs(*on.prepare({.shape = s}), x.inputs(), {x.before})[0];
      test::expect_equal_floats(c, ordered_product(s, x.a, x.b, x.bias, x.before));
    });
  });
}

TEST(DeviceOwnGemm, TakesMoreBatchesThanItsGridHas) {
  const GemmShape s{.m = 1, .n = 1, .k = 2, .count = 1031};
  OwnOps on;
  const Operands x(s);
  const Floats c = on.outputs(*on.prepare({.shape = s}), x.inputs())[0];
  test::expect_equal_floats(c, ordered_product(s, x.a, x.b, x.bias, x.before));
}

TEST(DeviceOwnGemm, IsTheReferences) {
  each_transposed([](const GemmShape& s) {
    OwnOps on;
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

TEST(DeviceOwnGemm, OfSixteenBitsSumsInFloats) {
  test::each_device_seed<seeds>([] {
    for (const Precision p : {Precision::bf16, Precision::fp16}) {
      const core::SmallFormat& f = p == Precision::bf16 ? core::bf16_format : core::fp16_format;
      for (GemmShape s : gemm_shapes) {
        if (s.accumulate) continue;
        SCOPED_TRACE(text(s));
        OwnOps on;
        const Operands x(s);
        const Floats c = on.outputs(*on.prepare({.shape = s, .precision = p}), x.inputs())[0];
        const Floats sums = ordered_product(s, rounded(x.a, f), rounded(x.b, f), x.bias, x.before);
        test::expect_equal_floats(c, rounded(sums, f));
      }
    }
  });
}

TEST(DeviceOwnGemm, RefusesWhatItHasNot) {
  OwnOps on;
  const GemmShape s{.m = 2, .n = 2, .k = 2};
  GemmShape packed = s;
  packed.packed = true;
  EXPECT_THROW(on.prepare({.shape = packed}), core::UsageError);
  EXPECT_THROW(on.prepare({.shape = s, .precision = Precision::int8}), core::UsageError);
  const auto op = on.prepare({.shape = s});
  EXPECT_THROW(op->packing_from_fp32(0), std::logic_error);
  EXPECT_THROW(op->unpacking_to_fp32(0), std::logic_error);
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
        OwnOps on;
        Operands x(s);
        x.a = with_specials(x.a);
        const Floats c = on.outputs(*on.prepare({.shape = s, .precision = p}), x.inputs())[0];
        test::expect_equal_floats(c, lns_product(s, info(p), x));
      });
  });
}

TEST(DeviceOwnLns, RefusesWhatTheHostRefuses) {
  OwnOps on;
  const auto refused = [&](GemmShape s) {
    EXPECT_THROW(on.prepare({.shape = s, .precision = Precision::lns16}), core::UsageError);
  };
  refused({.m = 2, .n = 2, .k = 2, .accumulate = true});
  refused({.m = 2, .n = 2, .k = 2, .count = 2});
  refused({.m = 2, .n = 2, .k = 2, .packed = true});
}

/// `op` of the pass on gradients and images, and the reference's element.
void expect_convolution(const ConvShape& s, Pass pass, Precision p, Floats& of_first_seed) {
  SCOPED_TRACE(text(s) + " " + std::string(name(pass)) + " " + std::string(name(p)));
  OwnOps on;
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
    const ReferenceSum sum = conv_at(s, pass, in[0], in[1], i);
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
  OwnOps on;
  ConvShape s = test::ragged_convolutions[1];
  EXPECT_THROW(on.prepare({.shape = s, .precision = Precision::int8}), core::UsageError);
  EXPECT_THROW(on.outputs(*on.prepare({.shape = s}), {Floats(4), Floats(5)}), std::invalid_argument);
  s.filter_width = 100;
  EXPECT_THROW(on.prepare({.shape = s}), core::UsageError);
}

}  // namespace
}  // namespace gradmeter::kernels
