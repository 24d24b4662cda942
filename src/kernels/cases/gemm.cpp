// Dense products of any precision whose numbers can be read as doubles.
#include <algorithm>
#include <cmath>

#include "kernels/cases/element_check.hpp"
#include "kernels/cases/makers.hpp"
#include "kernels/cases/op_case.hpp"
#include "kernels/number_format.hpp"

namespace gradmeter::kernels {
namespace {

class GemmCase final : public KernelCase {
 public:
  GemmCase(const Problem& p, const KernelCaseOptions& o)
      : s_(std::get<GemmShape>(p.shape)),
        precision_(p.precision),
        op_(p, o.sets, {.backend = o.backend, .algorithm = o.search}, *o.device),
        seeds_(o.sets) {
    for (std::size_t i = 0; i < o.sets; ++i) redraw(i, o.seed + 2 * i);
    op_.bind();
  }

  void run(std::size_t set) override { op_.run(set); }
  runtime::Queue* queue() override { return op_.queue(); }

  void redraw(std::size_t set, std::uint64_t seed) override {
    seeds_[set] = seed;
    op_.set_input(set, "a", left(set));
    op_.set_input(set, "b", right(set));
  }

  void prepare_check(const CheckedCall& call) override { op_.poison(call.set, "c", places_of(call)); }

  KernelCaseCheck finish_check(const CheckedCall& call) override {
    const auto places = places_of(call);
    const PlainNumbers a = left(call.set), b = right(call.set);
    PlainNumbers c = op_.output(call.set, "c");
    // Root mean square of a sum of k products of two random numbers.
    const double usual = usual_size(*a.format) * usual_size(*b.format) * std::sqrt(static_cast<double>(s_.k));
    if (call.inject_error) c.add(places[places.size() / 2], 0.5 * usual);
    ElementCheck element_check;
    for (const std::size_t at : places) {
      const ReferenceSum sum = reference(a, b, at / s_.n, at % s_.n);
      element_check.add(c.at(at), sum.value, allowed_distance(sum, precision_));
    }
    return element_check.verdict();
  }

  std::string implementation() const override { return op_.op().implementation(); }

 private:
  std::vector<std::size_t> places_of(const CheckedCall& call) const {
    const double count = std::max(call.flops_at_most / (2 * static_cast<double>(s_.k)), 16.0);
    return sample_places(s_.count * s_.m * s_.n, static_cast<std::size_t>(count), call.seed);
  }

  PlainNumbers left(std::size_t set) const {
    return draw("a", seeds_[set], precision_ == Precision::fp8_e5m2 ? core::Element::e5m2 : core::Element::e4m3);
  }
  /// No GPU multiplies two operands of e5m2: then the right one is in e4m3.
  PlainNumbers right(std::size_t set) const { return draw("b", seeds_[set] + 1, core::Element::e4m3); }

  /// Operands in fp8 are given in fp32, and rounded when they are packed. These numbers that leaves as they are.
  PlainNumbers draw(std::string_view input, std::uint64_t seed, core::Element fp8) const {
    PlainNumbers numbers = op_.draw(input, seed, random_range(precision_));
    if (precision_ == Precision::fp8_e4m3 || precision_ == Precision::fp8_e5m2)
      round_to_fp8({reinterpret_cast<float*>(numbers.bytes.data()), numbers.size()}, fp8);
    return numbers;
  }

  /// Of a row of all products.
  ReferenceSum reference(const PlainNumbers& a, const PlainNumbers& b, std::size_t any_row, std::size_t column) const {
    const std::size_t product = any_row / s_.m, row = any_row % s_.m;
    const std::size_t first_a = product * s_.m * s_.k, first_b = product * s_.k * s_.n;
    const bool ta = s_.transpose_a == Transpose::yes, tb = s_.transpose_b == Transpose::yes;
    ReferenceSum sum;
    for (std::size_t l = 0; l < s_.k; ++l)
      sum.add(a.at(first_a + (ta ? l * s_.m + row : row * s_.k + l)),
              b.at(first_b + (tb ? column * s_.k + l : l * s_.n + column)));
    return sum;
  }

  GemmShape s_;
  Precision precision_;
  OpCase op_;
  std::vector<std::uint64_t> seeds_;  ///< of each set's inputs
};

}  // namespace

std::size_t operand_bytes(const Problem& p) { return static_cast<std::size_t>(bytes(p)); }
std::size_t native_operand_bytes(const Problem& p) { return static_cast<std::size_t>(native_bytes(p)); }

std::unique_ptr<KernelCase> make_gemm_case(const Problem& p, const KernelCaseOptions& o) {
  return std::make_unique<GemmCase>(p, o);
}

}  // namespace gradmeter::kernels
