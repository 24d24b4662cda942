// Sparse times dense by our own kernels: fp32, pruned entry by entry (csr), in blocks of 16 x 1, or 2:4, held as csr.
#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <stdexcept>

#include "core/format.hpp"
#include "core/small_float.hpp"
#include "kernels/cases/element_check.hpp"
#include "kernels/cases/makers.hpp"
#include "kernels/cases/random_data.hpp"
#include "kernels/cases/sparse_case.hpp"
#include "kernels/number_format.hpp"
#include "kernels/vector_ops.hpp"

namespace gradmeter::kernels {
namespace {

class SparseCase final : public KernelCase {
 public:
  SparseCase(const SparseShape& s, const KernelCaseOptions& o) : s_(s) {
    for (std::size_t i = 0; i < o.sets; ++i) {
      sets_.push_back({{}, AlignedVector<float>(s.m * s.n)});
      redraw(i, o.seed + 3 * i);
    }
  }

  void run(std::size_t set) override {
    Operands& x = sets_[set];
    sparse_multiply(x.in.a, x.in.b, s_.n, x.c);
  }

  void redraw(std::size_t set, std::uint64_t seed) override {
    sets_[set].in = random_sparse_operands(s_, Precision::fp32, seed);
  }

  void prepare_check(const CheckedCall& call) override {
    constexpr std::size_t some = 64;
    for (const std::size_t at : sample_places(s_.m * s_.n, some, call.seed)) sets_[call.set].c[at] = std::nanf("");
  }
  KernelCaseCheck finish_check(const CheckedCall& call) override {
    const auto c = [&x = sets_[call.set]](std::size_t i) { return static_cast<double>(x.c[i]); };
    return checked_product(s_, Precision::fp32, sets_[call.set].in, c, call);
  }

  std::string implementation() const override {
    return fmt::format("highway {}:{}", s_.format == SparseFormat::blocked ? "bcsr16x1" : "csr", vector_target());
  }

 private:
  struct Operands {
    SparseOperands in;
    AlignedVector<float> c;
  };
  SparseShape s_;
  std::vector<Operands> sets_;
};

/// Rounds to a type of floats; of whole numbers it draws others.
void make_numbers_of(core::Element element, std::span<float> x, std::uint64_t seed) {
  if (element == core::Element::f32) return;
  if (element == core::Element::i8) {
    std::vector<std::byte> drawn(x.size());
    fill_random(drawn, number_format(element), seed);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(core::load(element, &drawn[i]));
    return;
  }
  std::array<std::byte, sizeof(float)> stored{};
  for (float& v : x) {
    core::store(element, stored.data(), v);
    v = static_cast<float>(core::load(element, stored.data()));
  }
}

void check_row(std::size_t row, const SparseShape& s, Precision precision, const SparseOperands& x,
               const ProductElement& c, ElementCheck& found) {
  std::vector<ReferenceSum> sums(s.n);
  const std::size_t height = x.a.height(), unit = row / height;
  for (std::size_t e = x.a.starts[unit]; e < x.a.starts[unit + 1]; ++e) {
    const double value = x.a.values[e * height + row % height];
    const float* b = x.b.data() + static_cast<std::size_t>(x.a.columns_of[e]) * s.n;
    for (std::size_t j = 0; j < s.n; ++j) sums[j].add(value, b[j]);
  }
  for (std::size_t j = 0; j < s.n; ++j)
    found.add(c(row * s.n + j), sums[j].value, allowed_distance(sums[j], precision));
}

}  // namespace

core::Element sparse_element(Precision p) {
  switch (p) {
    case Precision::fp32:
      return core::Element::f32;
    case Precision::bf16:
      return core::Element::bf16;
    case Precision::fp16:
      return core::Element::f16;
    case Precision::fp8_e4m3:
      return core::Element::e4m3;
    case Precision::int8:
      return core::Element::i8;
    default:
      throw std::logic_error("no sparse product has this precision");
  }
}

SparseOperands random_sparse_operands(const SparseShape& s, Precision precision, std::uint64_t seed) {
  SparseOperands x{random_sparse(s.m, s.k, s.sparsity, s.format, seed), AlignedVector<float>(s.k * s.n)};
  fill_gaussian(x.b, seed + 2);
  const core::Element element = sparse_element(precision);
  make_numbers_of(element, x.a.values, seed + 1);
  make_numbers_of(element, x.b, seed + 2);
  return x;
}

KernelCaseCheck checked_product(const SparseShape& s, Precision precision, const SparseOperands& x,
                                const ProductElement& c, const CheckedCall& call) {
  const double stored = static_cast<double>(x.a.values.size()), rows = static_cast<double>(s.m);
  const double of_a_row = 2 * (stored / rows + 1) * static_cast<double>(s.n);
  const std::size_t looked_at = std::clamp<std::size_t>(
      static_cast<std::size_t>(std::min(call.flops_at_most / of_a_row, rows)), std::min<std::size_t>(2, s.m), s.m);
  const double error = call.inject_error ? 0.5 * std::sqrt(std::max(1.0, stored / rows)) : 0;
  const auto found_at = [&](std::size_t i) { return c(i) + (i == s.n / 2 ? error : 0); };
  ElementCheck found;
  for (std::size_t i = 0; i < looked_at; ++i) {  // the first and the last row are among them
    check_row(looked_at > 1 ? i * (s.m - 1) / (looked_at - 1) : 0, s, precision, x, found_at, found);
  }
  KernelCaseCheck verdict = found.verdict();
  std::size_t zeros = 0;  // of all rows, unlike the rest; and so is whether they were written
  for (std::size_t i = 0; i < s.m * s.n; ++i) {
    zeros += c(i) == 0;
    if (std::isnan(c(i))) verdict.worst = c(i);
  }
  verdict.zero_share = static_cast<double>(zeros) / static_cast<double>(s.m * s.n);
  return verdict;
}

std::string sparse_case_refusal(const Problem& p) {
  if (p.pass != Pass::forward) return "sparse has one pass: the product";
  const auto& s = std::get<SparseShape>(p.shape);
  if (s.m == 0 || s.n == 0 || s.k == 0) return "sparse needs m, n and k of at least 1";
  if (!(s.sparsity >= 0 && s.sparsity <= 1)) return fmt::format("sparsity {} is not within 0 and 1", s.sparsity);
  if (s.k >= std::size_t{1} << 31) return "sparse has column numbers of 32 bits: k must be below 2^31";
  if (s.format != SparseFormat::two_of_four) return {};
  if (s.sparsity != 0.5)
    return fmt::format("2:4 keeps two of four neighbours: its sparsity is 0.5, not {}", s.sparsity);
  if (s.k % 4 != 0) return fmt::format("2:4 needs a k that is a multiple of 4: {} is none", s.k);
  return {};
}

std::size_t sparse_case_bytes(const Problem& p) {
  Problem held = p;
  auto& s = std::get<SparseShape>(held.shape);
  if (s.format == SparseFormat::two_of_four) s.format = SparseFormat::csr;
  return static_cast<std::size_t>(bytes(held));
}

std::unique_ptr<KernelCase> make_sparse_case(const Problem& p, const KernelCaseOptions& o) {
  return std::make_unique<SparseCase>(std::get<SparseShape>(p.shape), o);
}

}  // namespace gradmeter::kernels
