// SPDX-License-Identifier: Apache-2.0
// The product on spans of the host, and the backend that computes products by their definition.
#include "kernels/gemm/gemm.hpp"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <vector>

#include "core/format.hpp"
#include "kernels/backends.hpp"
#include "kernels/number_format.hpp"
#include "kernels/op.hpp"

namespace gradmeter::kernels {

Gemm::Gemm(const GemmShape& s, std::string_view backend) {
  if (s.m == 0 || s.n == 0 || s.k == 0)
    throw std::invalid_argument(fmt::format("gemm: {} x {} x {} has an empty extent", s.m, s.n, s.k));
  op_ = prepare({.shape = s}, {.backend = backend});
}

Gemm::~Gemm() = default;

void Gemm::run(std::span<const float> a, std::span<const float> b, std::span<const float> bias, std::span<float> c) {
  const std::array<runtime::ConstBuffer, 3> inputs{a, b, bias};
  const runtime::Buffer output = c;
  runtime::HostQueue queue;
  op_->run(queue, "gemm", std::span(inputs).first(bias.empty() ? 2 : 3), {&output, 1});
}

std::string Gemm::implementation() const { return op_->implementation(); }

// C = op(A)·op(B) by the definition, summed in float64 in the order of k and rounded once to float32. Blocks of op(B)
// are copied to `panel_`, so that the inner loop reads contiguous memory: slower than a library, but fast enough to
// check one.

namespace {

// 128 × 256 doubles of op(B) are 256 KiB: they stay in a second-level cache.
constexpr std::size_t block_k = 128, block_n = 256;

Operand floats(std::string_view name, std::size_t n, bool is_added_to = false) {
  return {.name = name,
          .format = &number_format(core::Element::f32),
          .elements = n,
          .stored_bytes = n * sizeof(float),
          .is_added_to = is_added_to};
}

std::vector<Operand> operands_of(const GemmShape& s) {
  std::vector<Operand> operands{floats("a", s.count * s.m * s.k), floats("b", s.count * s.k * s.n)};
  if (s.bias) operands.push_back(floats("bias", s.n));
  return operands;
}

class ReferenceGemm final : public HostOp {
 public:
  ReferenceGemm(const GemmShape& s, runtime::Cost cost)
      : HostOp(operands_of(s), {floats("c", s.count * s.m * s.n, s.accumulate)}, cost),
        shape_(s),
        sums_(shape_.m * block_n),
        panel_(block_k * block_n) {}

  std::string implementation() const override { return "reference float64"; }

 protected:
  void compute(Reads in, Writes out) override {
    const auto floats_at = [](const std::byte* at, std::size_t n) {
      return std::span(reinterpret_cast<const float*>(at), n);
    };
    const std::size_t a_elements = shape_.m * shape_.k, b_elements = shape_.k * shape_.n,
                      c_elements = shape_.m * shape_.n;
    const auto a = floats_at(in[0], shape_.count * a_elements), b = floats_at(in[1], shape_.count * b_elements);
    const auto bias = floats_at(shape_.bias ? in[2] : nullptr, shape_.bias ? shape_.n : 0);
    const std::span<float> c(reinterpret_cast<float*>(out[0]), shape_.count * c_elements);
    for (std::size_t i = 0; i < shape_.count; ++i)
      multiply(a.subspan(i * a_elements, a_elements), b.subspan(i * b_elements, b_elements), bias,
               c.subspan(i * c_elements, c_elements));
  }

 private:
  void multiply(std::span<const float> a, std::span<const float> b, std::span<const float> bias, std::span<float> c) {
    for (std::size_t j0 = 0; j0 < shape_.n; j0 += block_n) {
      const std::size_t width = std::min(block_n, shape_.n - j0);
      std::fill(sums_.begin(), sums_.end(), 0.0);
      for (std::size_t k0 = 0; k0 < shape_.k; k0 += block_k)
        add_block(a, b, j0, width, k0, std::min(block_k, shape_.k - k0));
      finish(bias, c, j0, width);
    }
  }

  void add_block(std::span<const float> a, std::span<const float> b, std::size_t j0, std::size_t width, std::size_t k0,
                 std::size_t depth) {
    const bool ta = shape_.transpose_a == Transpose::yes, tb = shape_.transpose_b == Transpose::yes;
    for (std::size_t k = 0; k < depth; ++k)
      for (std::size_t j = 0; j < width; ++j)
        panel_[k * block_n + j] = tb ? b[(j0 + j) * shape_.k + k0 + k] : b[(k0 + k) * shape_.n + j0 + j];
    for (std::size_t i = 0; i < shape_.m; ++i) {
      double* sums = &sums_[i * block_n];
      for (std::size_t k = 0; k < depth; ++k) {
        const double left = ta ? a[(k0 + k) * shape_.m + i] : a[i * shape_.k + k0 + k];
        const double* right = &panel_[k * block_n];
        for (std::size_t j = 0; j < width; ++j) sums[j] += left * right[j];
      }
    }
  }

  void finish(std::span<const float> bias, std::span<float> c, std::size_t j0, std::size_t width) const {
    for (std::size_t i = 0; i < shape_.m; ++i)
      for (std::size_t j = 0; j < width; ++j) {
        float& out = c[i * shape_.n + j0 + j];
        double value = sums_[i * block_n + j];
        if (shape_.accumulate) value += double{out};
        if (shape_.bias) value += double{bias[j0 + j]};
        if (shape_.activation == Activation::relu && value < 0) value = 0;
        out = static_cast<float>(value);
      }
  }

  GemmShape shape_;
  std::vector<double> sums_, panel_;
};

}  // namespace

std::string gemm_reference_refusal(const Problem& p) {
  if (auto why = gemm_shape_refusal(p); !why.empty()) return why;
  return std::get<GemmShape>(p.shape).packed ? "the reference has no layout of its own; leave packed out" : "";
}

std::unique_ptr<Op> make_gemm_reference(const Problem& p, const OpOptions&, runtime::Device&) {
  return std::make_unique<ReferenceGemm>(std::get<GemmShape>(p.shape),
                                         runtime::Cost{.flops = flops(p), .bytes = bytes(p)});
}

}  // namespace gradmeter::kernels
