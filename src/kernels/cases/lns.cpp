// Dense products in the logarithmic number system: lns16 multiplies and adds in it, lns16-linear only stores in it.
#include <cmath>
#include <cstring>
#include <deque>
#include <limits>
#include <vector>

#include "core/random.hpp"
#include "kernels/aligned.hpp"
#include "kernels/cases/element_check.hpp"
#include "kernels/cases/makers.hpp"
#include "kernels/cases/random_data.hpp"
#include "kernels/lns/gemm.hpp"

namespace gradmeter::kernels {
namespace {

class LnsCase final : public KernelCase {
  struct Operands {
    AlignedVector<Lns16> a, b, c;
  };

 public:
  LnsCase(const Problem& p, const KernelCaseOptions& o)
      : s_(std::get<GemmShape>(p.shape)),
        sum_(p.precision == Precision::lns16 ? LnsSum::logarithmic : LnsSum::linear),
        problem_{.m = s_.m, .n = s_.n, .k = s_.k, .transpose_a = s_.transpose_a, .transpose_b = s_.transpose_b},
        gemm_(make_lns_gemm(problem_, lns_, sum_)),
        seed_(o.seed) {
    for (std::size_t i = 0; i < o.sets; ++i) {
      sets_.push_back(
          {AlignedVector<Lns16>(s_.m * s_.k), AlignedVector<Lns16>(s_.k * s_.n), AlignedVector<Lns16>(s_.m * s_.n)});
      fill(sets_.back().a, o.seed + 2 * i);
      fill(sets_.back().b, o.seed + 2 * i + 1);
    }
  }

  void run(std::size_t set) override { gemm_->run(sets_[set].a, sets_[set].b, sets_[set].c); }

  KernelCaseCheck check(double flops_at_most, bool inject_error) override {
    run(0);
    const double of_an_element = 2 * static_cast<double>(s_.k);
    const auto count = static_cast<std::size_t>(std::max(flops_at_most / of_an_element, 16.0));
    const auto places = sample_places(s_.m * s_.n, count, seed_);
    Operands& x = sets_[0];
    if (inject_error) x.c[places[places.size() / 2]].bits ^= 0x40;  // a quarter of an octave
    ElementCheck element_check;
    for (const std::size_t at : places) add_element(x, at / s_.n, at % s_.n, element_check);
    return element_check.verdict();
  }

  std::string implementation() const override { return gemm_->implementation(); }

 private:
  void fill(AlignedVector<Lns16>& out, std::uint64_t seed) const {
    TablePlaces places(core::Random(seed, 0x6c6e).bits(0));
    for (Lns16& x : out) x = draws_[places.next()];
  }

  std::vector<Lns16> encoded_draws() const {
    std::vector<Lns16> out;
    for (const double x : gaussian_draws()) out.push_back(lns_.encode(x));
    return out;
  }

  /// Logarithmic sums have one right answer, bit for bit: the scalar type's, in the order of k. Linear ones are
  /// compared with float64, and may be off by the roundings of storage and fp32 sums.
  void add_element(const Operands& x, std::size_t i, std::size_t j, ElementCheck& element_check) const {
    Lns16 sum;
    ReferenceSum exact;
    for (std::size_t l = 0; l < s_.k; ++l) {
      const Lns16 a = x.a[s_.transpose_a == Transpose::yes ? l * s_.m + i : i * s_.k + l];
      const Lns16 b = x.b[s_.transpose_b == Transpose::yes ? j * s_.k + l : l * s_.n + j];
      if (sum_ == LnsSum::logarithmic) sum = lns_.add(sum, lns_.multiply(a, b));
      exact.add(lns_.decode(a), lns_.decode(b));
    }
    const Lns16 found = x.c[i * s_.n + j];
    const double result = lns_.decode(found);
    if (sum_ == LnsSum::logarithmic) {
      // The error for the record is against float64; only the scalar type's word is right.
      return element_check.add(result, exact.value, found == sum ? std::numeric_limits<double>::infinity() : 0);
    }
    // Neighbours are a factor of 2^(1/256) apart, so rounding is by up to half of that.
    const double stored = 0.5 * (std::exp2(1.0 / 256) - 1);
    element_check.add(result, exact.value,
                      1.01 * stored * std::fabs(exact.value) + allowed_distance(exact, Precision::fp32));
  }

  GemmShape s_;
  LnsSum sum_;
  Lns lns_{8};
  std::vector<Lns16> draws_ = encoded_draws();
  GemmProblem problem_;
  std::unique_ptr<LnsGemm> gemm_;
  std::uint64_t seed_;
  std::deque<Operands> sets_;
};

}  // namespace

std::string lns_case_refusal(const Problem& p) {
  if (auto why = gemm_case_refusal(p); !why.empty()) return why;
  return std::get<GemmShape>(p.shape).packed ? "lns16 packs both operands in every call; leave packed out" : "";
}

/// Operands, and the packed copies that a call makes of them.
std::size_t lns_case_bytes(const Problem& p) { return 3 * static_cast<std::size_t>(bytes(p)); }

std::unique_ptr<KernelCase> make_lns_case(const Problem& p, const KernelCaseOptions& o) {
  return std::make_unique<LnsCase>(p, o);
}

}  // namespace gradmeter::kernels
