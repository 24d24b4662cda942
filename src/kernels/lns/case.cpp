// SPDX-License-Identifier: Apache-2.0
// The kernel case of dense products in the logarithmic number system: lns16 multiplies and adds logarithms;
// lns16-linear only stores numbers as logarithms.
#include <cmath>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

#include "core/random.hpp"
#include "kernels/cases/kernel_case.hpp"
#include "kernels/cases/op_case.hpp"
#include "kernels/lns/lns.hpp"
#include "kernels/number_format.hpp"

namespace gradmeter::kernels {
namespace {

class LnsCase final : public KernelCase {
 public:
  LnsCase(const Problem& p, const KernelCaseOptions& o)
      : shape_(std::get<GemmShape>(p.shape)),
        is_logarithmic_(info(p.precision).logarithmic_sums),
        lns_(info(p.precision).logarithm_bits),
        op_(p, o.sets, {.backend = o.backend}, *o.device) {
    for (std::size_t i = 0; i < o.sets; ++i) redraw(i, o.seed + 2 * i);
    op_.bind();
  }

  void run(std::size_t set) override { op_.run(set); }
  runtime::Queue* queue() override { return op_.queue(); }

  void redraw(std::size_t set, std::uint64_t seed) override {
    fill(set, "a", seed);
    fill(set, "b", seed + 1);
  }

  void prepare_check(const CheckedCall& call) override { op_.poison(call.set, "c", places_of(call)); }

  KernelCaseCheck finish_check(const CheckedCall& call) override {
    const auto places = places_of(call);
    std::vector<std::byte> a = op_.stored_input(call.set, "a"), b = op_.stored_input(call.set, "b"),
                           c = op_.stored_output(call.set, "c");
    const Operands operands{numbers(a), numbers(b), numbers(c)};
    if (call.inject_error)
      operands.c[places[places.size() / 2]].bits ^= 0x40;  // changes the number by a quarter of an octave
    ElementCheck element_check;
    for (const std::size_t at : places) add_element(operands, at / shape_.n, at % shape_.n, element_check);
    return element_check.verdict();
  }

  std::string implementation() const override { return op_.op().implementation(); }

 private:
  std::vector<std::size_t> places_of(const CheckedCall& call) const {
    const double count = std::max(call.flops_at_most / (2 * static_cast<double>(shape_.k)), 16.0);
    return sample_places(shape_.m * shape_.n, static_cast<std::size_t>(count), call.seed);
  }

  struct Operands {
    std::span<Lns16> a, b, c;
  };
  static std::span<Lns16> numbers(std::span<std::byte> memory) {
    return {reinterpret_cast<Lns16*>(memory.data()), memory.size() / sizeof(Lns16)};
  }
  void fill(std::size_t set, std::string_view operand, std::uint64_t seed) {
    std::vector<std::byte> memory(op_.op().inputs()[index_of(op_.op().inputs(), operand)].stored_bytes);
    RandomTableIndices places(core::Random(seed, 0x6c6e).bits(0));
    for (Lns16& x : numbers(memory)) x = draws_[places.next()];
    op_.store_input(set, operand, memory);
  }

  std::vector<Lns16> encoded_draws() const {
    std::vector<Lns16> out;
    for (const double x : gaussian_draws()) out.push_back(lns_.encode(x));
    return out;
  }

  /// Checks element (i, j) of C. With logarithmic sums, only one word is right: that which `Lns` computes in the order
  /// of k. With linear sums, the element is compared with float64, and may be off by the roundings of storage and fp32.
  void add_element(const Operands& operands, std::size_t i, std::size_t j, ElementCheck& element_check) const {
    Lns16 sum;
    ReferenceSum exact;
    for (std::size_t l = 0; l < shape_.k; ++l) {
      const Lns16 a = operands.a[shape_.transpose_a == Transpose::yes ? l * shape_.m + i : i * shape_.k + l];
      const Lns16 b = operands.b[shape_.transpose_b == Transpose::yes ? j * shape_.k + l : l * shape_.n + j];
      if (is_logarithmic_) sum = lns_.add(sum, lns_.multiply(a, b));
      exact.add(lns_.decode(a), lns_.decode(b));
    }
    const Lns16 found = operands.c[i * shape_.n + j];
    const double result = lns_.decode(found);
    if (is_logarithmic_) {
      // The recorded error is against float64, but the element is right only if it is the word that `Lns` computes.
      return element_check.add(result, exact.value, found == sum ? std::numeric_limits<double>::infinity() : 0);
    }
    // Neighbours are a factor of 2^(1/2^F) apart, so a stored number is off by up to half of their distance.
    const double storage_rounding = 0.5 * (std::exp2(1.0 / (1U << lns_.fraction_bits())) - 1);
    element_check.add(
        result, exact.value,
        1.01 * storage_rounding * std::fabs(exact.value) + allowed_distance_of_random_terms(exact, Precision::fp32));
  }

  GemmShape shape_;
  bool is_logarithmic_;
  Lns lns_;
  std::vector<Lns16> draws_ = encoded_draws();
  OpCase op_;
};

}  // namespace

/// Three times the bytes of the operands, for the operands and the packed copies that a call makes.
std::size_t lns_case_bytes(const Problem& p) { return whole_bytes(3 * held_bytes(p)); }

std::unique_ptr<KernelCase> make_lns_case(const Problem& p, const KernelCaseOptions& o) {
  return std::make_unique<LnsCase>(p, o);
}

}  // namespace gradmeter::kernels
