// SPDX-License-Identifier: Apache-2.0
// Random sparse operands, the check of a sparse product against float64, and the case of the host's product.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <span>
#include <stdexcept>

#include "core/element.hpp"
#include "core/format.hpp"
#include "core/random.hpp"
#include "kernels/cases/kernel_case.hpp"
#include "kernels/number_format.hpp"
#include "kernels/pointwise/pointwise.hpp"
#include "kernels/sparse/sparse.hpp"

namespace gradmeter::kernels {
namespace {

/// Draws how many entries are left out before the next one that is kept. The distribution is geometric, and drawn by
/// inversion.
class Gaps {
 public:
  Gaps(double sparsity, std::uint64_t seed)
      : log_sparsity_(std::log(sparsity)), keeps_all_(sparsity == 0), random_(seed, 0x7370) {}
  /// The next gap, at most `limit`.
  std::size_t next(std::size_t limit) {
    if (keeps_all_) return 0;
    const double gap = std::floor(std::log1p(-random_.uniform(draws_++)) / log_sparsity_);
    // A larger gap, which may not fit an integer, counts as `limit`.
    return gap < static_cast<double>(limit) ? static_cast<std::size_t>(gap) : limit;
  }

 private:
  double log_sparsity_;
  bool keeps_all_;
  core::Random random_;
  std::uint64_t draws_ = 0;
};

void check_two_of_four(std::size_t columns, double sparsity) {
  if (sparsity != 0.5) throw std::invalid_argument(fmt::format("random_sparse: sparsity {} of 2:4, not 0.5", sparsity));
  if (columns % 4 != 0) throw std::invalid_argument(fmt::format("random_sparse: {} columns of 2:4", columns));
}

/// Draws the places of the entries of a 2:4 matrix.
void draw_two_of_four(SparseMatrix& a, std::uint64_t seed) {
  constexpr std::array<std::array<std::uint8_t, 2>, 6> pairs{{{0, 1}, {0, 2}, {0, 3}, {1, 2}, {1, 3}, {2, 3}}};
  RandomTableIndices places(core::Random(seed, 0x3234).bits(0));
  const std::size_t row_entries = a.columns / 2;
  a.columns_of.reserve(a.rows * row_entries);
  for (std::size_t row = 0; row < a.rows; ++row) {
    for (std::size_t first = 0; first < a.columns; first += 4)
      for (const std::uint8_t within : pairs[places.next() * pairs.size() / draw_table_size])
        a.columns_of.push_back(static_cast<std::int32_t>(first + within));
    a.starts[row + 1] = (row + 1) * row_entries;
  }
}

}  // namespace

SparseMatrix random_sparse(std::size_t rows, std::size_t columns, double sparsity, SparseFormat format,
                           std::uint64_t seed) {
  if (!(sparsity >= 0 && sparsity <= 1)) {
    throw std::invalid_argument(fmt::format("random_sparse: sparsity {} is not within [0, 1]", sparsity));
  }
  if (columns > static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max())) {
    throw std::invalid_argument(fmt::format("random_sparse: {} columns are more than 2^31 - 1", columns));
  }
  if (format == SparseFormat::two_of_four) check_two_of_four(columns, sparsity);
  SparseMatrix a{.rows = rows, .columns = columns, .format = format};
  const std::size_t units = (rows + a.height() - 1) / a.height(), places = units * columns;
  a.starts.assign(units + 1, 0);
  if (format == SparseFormat::two_of_four) {
    draw_two_of_four(a, seed);
  } else if (sparsity < 1) {
    Gaps gaps(sparsity, seed);
    for (std::size_t at = gaps.next(places); at < places; at += 1 + gaps.next(places)) {
      a.columns_of.push_back(static_cast<std::int32_t>(at % columns));
      a.starts[at / columns + 1] = a.columns_of.size();
    }
  }
  // Sets the starts of units without entries.
  for (std::size_t u = 1; u <= units; ++u) a.starts[u] = std::max(a.starts[u], a.starts[u - 1]);
  a.values.resize(a.columns_of.size() * a.height());
  fill_gaussian(a.values, seed + 1);
  const std::size_t beyond = units * a.height() - rows;  // rows of the last unit that are beyond the matrix
  for (std::size_t e = units > 0 ? a.starts[units - 1] : 0; beyond > 0 && e < a.columns_of.size(); ++e) {
    const auto end = a.values.begin() + static_cast<std::ptrdiff_t>((e + 1) * a.height());
    std::fill(end - static_cast<std::ptrdiff_t>(beyond), end, 0.0F);
  }
  return a;
}

std::vector<float> to_dense(const SparseMatrix& a) {
  std::vector<float> dense(a.rows * a.columns);
  for (std::size_t u = 0; u < a.units(); ++u)
    for (std::size_t e = a.starts[u]; e < a.starts[u + 1]; ++e)
      for (std::size_t r = 0; r < a.height() && u * a.height() + r < a.rows; ++r) {
        const auto column = static_cast<std::size_t>(a.columns_of[e]);
        dense[(u * a.height() + r) * a.columns + column] = a.values[e * a.height() + r];
      }
  return dense;
}

// The kernel case of sparse_multiply: fp32, with A pruned entry by entry (csr), in blocks of 16 x 1 (blocked), or as
// 2:4, which is held as csr.

namespace {

class SparseCase final : public KernelCase {
 public:
  SparseCase(const SparseShape& s, const KernelCaseOptions& o) : shape_(s) {
    for (std::size_t i = 0; i < o.sets; ++i) {
      sets_.push_back({{}, AlignedVector<float>(s.m * s.n)});
      redraw(i, o.seed + 3 * i);
    }
  }

  void run(std::size_t set) override {
    Operands& x = sets_[set];
    sparse_multiply(x.in.a, x.in.b, shape_.n, x.c);
  }

  void redraw(std::size_t set, std::uint64_t seed) override {
    sets_[set].in = random_sparse_operands(shape_, Precision::fp32, seed);
  }

  void prepare_check(const CheckedCall& call) override {
    constexpr std::size_t poisoned = 64;
    for (const std::size_t at : sample_places(shape_.m * shape_.n, poisoned, call.seed))
      sets_[call.set].c[at] = std::nanf("");
  }
  KernelCaseCheck finish_check(const CheckedCall& call) override {
    const auto c = [&x = sets_[call.set]](std::size_t i) { return static_cast<double>(x.c[i]); };
    return checked_product(shape_, Precision::fp32, sets_[call.set].in, c, call);
  }

  std::string implementation() const override {
    return fmt::format("highway {}:{}", shape_.format == SparseFormat::blocked ? "bcsr16x1" : "csr", vector_target());
  }

 private:
  struct Operands {
    SparseOperands in;
    AlignedVector<float> c;
  };
  SparseShape shape_;
  std::vector<Operands> sets_;
};

/// Rounds the numbers to a type of floats. For whole numbers, draws them anew.
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
               const ReadProductElement& c, ElementCheck& element_check) {
  std::vector<ReferenceSum> sums(s.n);
  const std::size_t height = x.a.height(), unit = row / height;
  for (std::size_t e = x.a.starts[unit]; e < x.a.starts[unit + 1]; ++e) {
    const double value = x.a.values[e * height + row % height];
    const float* b = x.b.data() + static_cast<std::size_t>(x.a.columns_of[e]) * s.n;
    for (std::size_t j = 0; j < s.n; ++j) sums[j].add(value, b[j]);
  }
  // In precisions other than fp32, GPUs compute on tensor cores, whose additions cut digits off.
  const auto allowed = precision == Precision::fp32 ? allowed_distance_of_random_terms : allowed_distance;
  for (std::size_t j = 0; j < s.n; ++j) element_check.add(c(row * s.n + j), sums[j].value, allowed(sums[j], precision));
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
                                const ReadProductElement& c, const CheckedCall& call) {
  const double stored_numbers = static_cast<double>(x.a.values.size()), rows = static_cast<double>(s.m);
  const double row_flops = 2 * (stored_numbers / rows + 1) * static_cast<double>(s.n);
  const std::size_t checked_rows = std::clamp<std::size_t>(
      static_cast<std::size_t>(std::min(call.flops_at_most / row_flops, rows)), std::min<std::size_t>(2, s.m), s.m);
  const double error = call.inject_error ? 0.5 * std::sqrt(std::max(1.0, stored_numbers / rows)) : 0;
  const auto element_at = [&](std::size_t i) { return c(i) + (i == s.n / 2 ? error : 0); };
  ElementCheck element_check;
  for (std::size_t i = 0; i < checked_rows; ++i) {  // rows at equal distances, the first and the last among them
    check_row(checked_rows > 1 ? i * (s.m - 1) / (checked_rows - 1) : 0, s, precision, x, element_at, element_check);
  }
  KernelCaseCheck verdict = element_check.verdict();
  // Elements that were not written are looked for in all rows, zeros in those that have entries.
  std::size_t zeros = 0, counted = 0;
  for (std::size_t row = 0; row < s.m; ++row) {
    const std::size_t unit = row / x.a.height();
    const bool has_entries = x.a.starts[unit + 1] > x.a.starts[unit];
    for (std::size_t i = row * s.n; i < (row + 1) * s.n; ++i) {
      counted += has_entries, zeros += has_entries && c(i) == 0;
      if (std::isnan(c(i))) verdict.worst = c(i);
    }
  }
  verdict.zero_share = counted > 0 ? static_cast<double>(zeros) / static_cast<double>(counted) : 0;
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
  Problem held_problem = p;
  auto& s = std::get<SparseShape>(held_problem.shape);
  if (s.format == SparseFormat::two_of_four) s.format = SparseFormat::csr;
  return whole_bytes(held_bytes(held_problem));
}

std::unique_ptr<KernelCase> make_sparse_case(const Problem& p, const KernelCaseOptions& o) {
  return std::make_unique<SparseCase>(std::get<SparseShape>(p.shape), o);
}

}  // namespace gradmeter::kernels
