// Sparse times dense by our own kernels: fp32, pruned entry by entry (csr) or in blocks of 16 x 1.
#include <algorithm>
#include <cmath>

#include "core/format.hpp"
#include "kernels/cases/makers.hpp"
#include "kernels/cases/random_data.hpp"
#include "kernels/cases/sparse_case.hpp"
#include "kernels/vector_ops.hpp"

namespace gradmeter::kernels {
namespace {

class SparseCase final : public KernelCase {
 public:
  SparseCase(const SparseShape& s, const KernelCaseOptions& o) : s_(s) {
    for (std::size_t i = 0; i < o.sets; ++i) sets_.push_back(random_sparse_operands(s, o.seed + 3 * i));
  }

  void run(std::size_t set) override { sparse_multiply(sets_[set].a, sets_[set].b, s_.n, sets_[set].c); }

  KernelCaseCheck check(double flops_at_most, bool inject_error) override {
    run(0);
    return checked_product(s_, sets_[0], flops_at_most, inject_error);
  }

  std::string implementation() const override {
    return fmt::format("highway {}:{}", s_.format == SparseFormat::csr ? "csr" : "bcsr16x1", vector_target());
  }

 private:
  SparseShape s_;
  std::vector<SparseOperands> sets_;
};

void check_row(std::size_t row, std::size_t n, const SparseOperands& x, KernelCaseCheck& found, double& off,
               double& norm) {
  std::vector<double> sum(n), size(n);
  const std::size_t height = x.a.height(), unit = row / height;
  for (std::size_t e = x.a.starts[unit]; e < x.a.starts[unit + 1]; ++e) {
    const double value = x.a.values[e * height + row % height];
    const float* b = x.b.data() + static_cast<std::size_t>(x.a.columns_of[e]) * n;
    for (std::size_t j = 0; j < n; ++j) sum[j] += value * b[j], size[j] += std::fabs(value * b[j]);
  }
  const double summands = static_cast<double>(x.a.starts[unit + 1] - x.a.starts[unit]);
  for (std::size_t j = 0; j < n; ++j) {
    const double far = std::fabs(x.c[row * n + j] - sum[j]);
    const double allowed = 0x1p-24 * std::fabs(sum[j]) + 4 * 0x1p-24 * std::sqrt(summands) * size[j];
    off += far * far;
    norm += sum[j] * sum[j];
    const double worst = allowed > 0 ? far / allowed : far == 0 ? 0 : 2;
    if (!(worst <= found.worst)) found.worst = worst;  // a NaN stays
  }
}

}  // namespace

SparseOperands random_sparse_operands(const SparseShape& s, std::uint64_t seed) {
  SparseOperands x{random_sparse(s.m, s.k, s.sparsity, s.format, seed), AlignedVector<float>(s.k * s.n),
                   AlignedVector<float>(s.m * s.n)};
  fill_gaussian(x.b, seed + 2);
  return x;
}

KernelCaseCheck checked_product(const SparseShape& s, SparseOperands& x, double flops_at_most, bool inject_error) {
  const double stored = static_cast<double>(x.a.values.size()), rows = static_cast<double>(s.m);
  const double of_a_row = 2 * (stored / rows + 1) * static_cast<double>(s.n);
  const std::size_t looked_at = std::clamp<std::size_t>(
      static_cast<std::size_t>(std::min(flops_at_most / of_a_row, rows)), std::min<std::size_t>(2, s.m), s.m);
  if (inject_error) x.c[s.n / 2] += static_cast<float>(0.5 * std::sqrt(std::max(1.0, stored / rows)));
  KernelCaseCheck found;
  double off = 0, norm = 0;
  for (std::size_t i = 0; i < looked_at; ++i) {  // the first and the last row are among them
    check_row(looked_at > 1 ? i * (s.m - 1) / (looked_at - 1) : 0, s.n, x, found, off, norm);
  }
  found.error = norm > 0 ? std::sqrt(off / norm) : std::sqrt(off);
  found.zero_share = static_cast<double>(std::ranges::count(x.c, 0.0F)) / static_cast<double>(x.c.size());
  return found;
}

std::string sparse_case_refusal(const Problem& p) {
  if (p.pass != Pass::forward) return "sparse has one pass: the product";
  const auto& s = std::get<SparseShape>(p.shape);
  if (s.m == 0 || s.n == 0 || s.k == 0) return "sparse needs m, n and k of at least 1";
  if (!(s.sparsity >= 0 && s.sparsity <= 1)) return fmt::format("sparsity {} is not within 0 and 1", s.sparsity);
  if (s.k >= std::size_t{1} << 31) return "sparse has column numbers of 32 bits: k must be below 2^31";
  return {};
}

std::size_t sparse_case_bytes(const Problem& p) { return static_cast<std::size_t>(bytes(p)); }

std::unique_ptr<KernelCase> make_sparse_case(const Problem& p, const KernelCaseOptions& o) {
  return std::make_unique<SparseCase>(std::get<SparseShape>(p.shape), o);
}

}  // namespace gradmeter::kernels
