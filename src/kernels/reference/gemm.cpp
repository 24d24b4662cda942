// C = op(A)·op(B) by the definition, summed in float64 in the order of k, rounded once to float32. Blocks of op(B) are
// unpacked so that the inner loop is contiguous: slow against a real GEMM, quick enough to check one.
#include <algorithm>
#include <vector>

#include "kernels/gemm_backends.hpp"

namespace gradmeter::kernels {

namespace {

// 128 × 256 doubles of op(B) are 256 KiB: they stay in a second-level cache.
constexpr std::size_t block_k = 128, block_n = 256;

class ReferenceGemm final : public Gemm {
 public:
  explicit ReferenceGemm(const GemmShape& problem) : p_(problem), sums_(p_.m * block_n), panel_(block_k * block_n) {}

  void run(std::span<const float> a, std::span<const float> b, std::span<const float> bias,
           std::span<float> c) override {
    require_operands(p_, a, b, bias, c);
    for (std::size_t j0 = 0; j0 < p_.n; j0 += block_n) {
      const std::size_t width = std::min(block_n, p_.n - j0);
      std::fill(sums_.begin(), sums_.end(), 0.0);
      for (std::size_t k0 = 0; k0 < p_.k; k0 += block_k) add_block(a, b, j0, width, k0, std::min(block_k, p_.k - k0));
      finish(bias, c, j0, width);
    }
  }

  std::string implementation() const override { return "reference float64"; }

 private:
  void add_block(std::span<const float> a, std::span<const float> b, std::size_t j0, std::size_t width, std::size_t k0,
                 std::size_t depth) {
    const bool ta = p_.transpose_a == Transpose::yes, tb = p_.transpose_b == Transpose::yes;
    for (std::size_t k = 0; k < depth; ++k)
      for (std::size_t j = 0; j < width; ++j)
        panel_[k * block_n + j] = tb ? b[(j0 + j) * p_.k + k0 + k] : b[(k0 + k) * p_.n + j0 + j];
    for (std::size_t i = 0; i < p_.m; ++i) {
      double* sums = &sums_[i * block_n];
      for (std::size_t k = 0; k < depth; ++k) {
        const double left = ta ? a[(k0 + k) * p_.m + i] : a[i * p_.k + k0 + k];
        const double* right = &panel_[k * block_n];
        for (std::size_t j = 0; j < width; ++j) sums[j] += left * right[j];
      }
    }
  }

  void finish(std::span<const float> bias, std::span<float> c, std::size_t j0, std::size_t width) const {
    for (std::size_t i = 0; i < p_.m; ++i)
      for (std::size_t j = 0; j < width; ++j) {
        float& out = c[i * p_.n + j0 + j];
        double value = sums_[i * block_n + j];
        if (p_.accumulate) value += double{out};
        if (p_.bias) value += double{bias[j0 + j]};
        if (p_.activation == Activation::relu && value < 0) value = 0;
        out = static_cast<float>(value);
      }
  }

  GemmShape p_;
  std::vector<double> sums_, panel_;
};

}  // namespace

std::unique_ptr<Gemm> make_reference_gemm(const GemmShape& problem) { return std::make_unique<ReferenceGemm>(problem); }

}  // namespace gradmeter::kernels
