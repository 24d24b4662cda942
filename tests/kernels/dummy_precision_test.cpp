// SPDX-License-Identifier: Apache-2.0
// A precision as docs/adding.md describes it, in one file: its row, its numbers, and a product that computes in it.
#include <gtest/gtest.h>

#include "core/element.hpp"
#include "kernels/backends.hpp"
#include "kernels/cases/kernel_case.hpp"
#include "support/kernel_cases.hpp"

namespace gradmeter::kernels {
namespace {

double load_half(const std::byte* from) { return core::load(core::Element::f16, from); }
void store_half(std::byte* to, double value) { core::store(core::Element::f16, to, value); }
constexpr NumberFormat half_format{.name = "half", .bytes = 2, .load = load_half, .store = store_half};

Operand matrix(std::string_view name, std::size_t elements) {
  return {.name = name, .format = &half_format, .elements = elements, .stored_bytes = 2 * elements};
}

class HalfProduct final : public HostOp {
 public:
  HalfProduct(const GemmShape& s, runtime::Cost cost)
      : HostOp({matrix("a", s.m * s.k), matrix("b", s.k * s.n)}, {matrix("c", s.m * s.n)}, cost), s_(s) {}
  std::string implementation() const override { return "dummy three loops"; }

 protected:
  void compute(Reads in, Writes out) override {
    for (std::size_t i = 0; i < s_.m; ++i)
      for (std::size_t j = 0; j < s_.n; ++j) {
        float sum = 0;
        for (std::size_t l = 0; l < s_.k; ++l)
          sum += static_cast<float>(load_half(in[0] + 2 * (i * s_.k + l)) * load_half(in[1] + 2 * (l * s_.n + j)));
        store_half(out[0] + 2 * (i * s_.n + j), sum);
      }
  }

 private:
  GemmShape s_;
};

std::string refusal(const Problem& p) {
  const auto& s = std::get<GemmShape>(p.shape);
  return s.transpose_a == Transpose::yes || s.transpose_b == Transpose::yes || s.packed ? "half multiplies plain" : "";
}
std::unique_ptr<Op> make(const Problem& p, const OpOptions&, runtime::Device&) {
  return std::make_unique<HalfProduct>(std::get<GemmShape>(p.shape),
                                       runtime::Cost{.flops = flops(p), .bytes = bytes(p)});
}

Precision half() {
  static const Precision precision = [] {
    const Precision added = add_precision({"half", 2, 2, 0x1p-11, false, "of a test", "IEEE 754 binary16"});
    add_op_backend({"dummy", "three loops", KernelKind::gemm, added, "host", refusal, make});
    return added;
  }();
  return precision;
}

TEST(DummyPrecision, HasKernelCasesThatAreCheckedLikeAllOthers) {
  for (const auto& [m, n, k] : {std::array<std::size_t, 3>{1, 1, 1}, {7, 5, 33}, {20, 31, 64}})
    tests::expect_right_and_error_found({.shape = GemmShape{.m = m, .n = n, .k = k}, .precision = half()});
}

TEST(DummyPrecision, IsOneOfThePrecisionsAndRefusesWithItsReason) {
  const Problem p{.shape = GemmShape{.m = 4, .n = 3, .k = 2}, .precision = half()};
  EXPECT_EQ(name(half()), "half");
  EXPECT_EQ(precisions().back(), half());
  EXPECT_EQ(bytes(p), 2 * (8 + 6 + 12));
  EXPECT_EQ(make_kernel_case(p, {})->implementation(), "dummy three loops");
  Problem turned = p;
  std::get<GemmShape>(turned.shape).transpose_a = Transpose::yes;
  EXPECT_EQ(kernel_case_refusal(turned), "half multiplies plain");
  EXPECT_EQ(kernel_case_refusal({.shape = RnnShape{Cell::gru, 1, 1, 1}, .precision = half()}),
            "no backend has rnn in half");
}

}  // namespace
}  // namespace gradmeter::kernels
