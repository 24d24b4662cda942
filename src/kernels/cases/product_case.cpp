// SPDX-License-Identifier: Apache-2.0
// Cases of operations whose every element is a sum of products: dense products and convolutions. Data is brought into
// the backend's layouts before anything is timed, as DeepBench does. Each element is checked by its definition.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <span>
#include <variant>

#include "kernels/cases/kernel_case.hpp"
#include "kernels/cases/op_case.hpp"
#include "kernels/conv/reference.hpp"
#include "kernels/number_format.hpp"

namespace gradmeter::kernels {
namespace {

class ProductCase final : public KernelCase {
 public:
  ProductCase(const Problem& p, const KernelCaseOptions& o)
      : problem_(p),
        on_host_(o.device == &runtime::host_device()),
        op_(p, o.sets, {.backend = o.backend, .algorithm = o.search}, *o.device),
        result_(op_.op().outputs()[0]),
        seeds_(o.sets) {
    const std::size_t seeds_of_a_set = p.operation() == KernelKind::gemm ? 2 : 3;
    for (std::size_t i = 0; i < o.sets; ++i) redraw(i, o.seed + seeds_of_a_set * i);
    op_.bind();
  }

  void run(std::size_t set) override { op_.run(set); }
  runtime::Queue* queue() override { return op_.queue(); }

  void redraw(std::size_t set, std::uint64_t seed) override {
    seeds_[set] = seed;
    for (const Operand& factor : factors()) op_.set_input(set, factor.name, drawn(factor.name, set));
  }

  void prepare_check(const CheckedCall& call) override { op_.poison(call.set, result_.name, sampled_elements(call)); }

  KernelCaseCheck finish_check(const CheckedCall& call) override {
    PlainNumbers result = op_.output(call.set, result_.name);
    const auto sampled = sampled_elements(call);
    if (call.inject_error) result.add(sampled[sampled.size() / 2], 0.5 * rms_of_result());
    const auto left = drawn(factors()[0].name, call.set).floats(), right = drawn(factors()[1].name, call.set).floats();
    ElementCheck element_check;
    for (const std::size_t i : sampled) {
      const ReferenceSum sum = reference(left, right, i);
      element_check.add(result.at(i), sum.value, allowed(sum), sum.terms > 0);
    }
    return element_check.verdict();
  }

  std::string implementation() const override { return op_.op().implementation(); }

 private:
  /// The operands that are multiplied; a bias is left out.
  std::span<const Operand> factors() const { return op_.op().inputs().first(2); }

  double flops_of_an_element() const { return flops(problem_) / static_cast<double>(result_.elements); }
  std::vector<std::size_t> sampled_elements(const CheckedCall& call) const {
    const double count = std::clamp(call.flops_at_most / flops_of_an_element(), 16.0,
                                    std::max(16.0, static_cast<double>(result_.elements)));
    return sample_places(result_.elements, static_cast<std::size_t>(count), call.seed);
  }

  /// Draws the numbers of an operand. For fp8, whose operands are given in fp32, they are rounded to fp8, so that
  /// packing leaves them unchanged; for tf32 they have only the bits that tf32 keeps. No GPU multiplies two operands in
  /// e5m2, so the right one is then in e4m3.
  PlainNumbers drawn(std::string_view operand, std::size_t set) const {
    const bool is_first = operand == "a" || operand == "input", is_second = operand == "b" || operand == "filters";
    PlainNumbers numbers = op_.draw(operand, seeds_[set] + (is_first ? 0U : is_second ? 1U : 2U));
    const Precision p = problem_.precision;
    const bool is_e5m2 = p == Precision::fp8_e5m2 || p == Precision::fp8_e5m2_fast;
    const auto floats = [&] { return std::span(reinterpret_cast<float*>(numbers.bytes.data()), numbers.size()); };
    if (is_e5m2 || p == Precision::fp8_e4m3 || p == Precision::fp8_e4m3_fast)
      round_to_fp8(floats(), is_e5m2 && is_first ? core::Element::e5m2 : core::Element::e4m3);
    if (p == Precision::tf32)
      for (float& v : floats()) v = std::bit_cast<float>(std::bit_cast<std::uint32_t>(v) & 0xffffe000U);
    return numbers;
  }

  /// The root mean square of the result's elements, as sums of products of random numbers.
  double rms_of_result() const {
    return random_root_mean_square(*factors()[0].format) * random_root_mean_square(*factors()[1].format) *
           std::sqrt(std::max(flops_of_an_element() / 2, 1.0));
  }

  /// A GPU's tensor cores cut digits off, and its libraries may choose Winograd's transforms.
  double allowed(const ReferenceSum& sum) const {
    return on_host_ ? allowed_distance_of_random_terms(sum, problem_.precision)
                    : allowed_distance(sum, problem_.precision);
  }

  ReferenceSum reference(std::span<const float> left, std::span<const float> right, std::size_t index) const {
    if (const auto* const conv = std::get_if<ConvShape>(&problem_.shape))
      return conv_at(*conv, problem_.pass, left, right, index);
    const auto a = [left](std::size_t i) { return double{left[i]}; };
    const auto b = [right](std::size_t i) { return double{right[i]}; };
    return product_at(std::get<GemmShape>(problem_.shape), a, b, index);
  }

  Problem problem_;
  const bool on_host_;
  OpCase op_;
  const Operand& result_;
  std::vector<std::uint64_t> seeds_;  ///< seeds of each set's inputs
};

}  // namespace

std::size_t operand_bytes(const Problem& p) { return whole_bytes(held_bytes(p)); }
std::size_t native_operand_bytes(const Problem& p) { return whole_bytes(native_held_bytes(p)); }

std::unique_ptr<KernelCase> make_product_case(const Problem& p, const KernelCaseOptions& o) {
  return std::make_unique<ProductCase>(p, o);
}

}  // namespace gradmeter::kernels
