// SPDX-License-Identifier: Apache-2.0
#include "kernels/call_check.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/format.hpp"
#include "core/random.hpp"
#include "kernels/backends.hpp"
#include "kernels/cases/kernel_case.hpp"
#include "kernels/conv/reference.hpp"
#include "kernels/problems/problem_file.hpp"

namespace gradmeter::kernels {
namespace {

bool is_float(const NumberFormat& f) {
  return f == number_format(core::Element::f32) || f == number_format(core::Element::bf16);
}
bool is_number(const NumberFormat& f) { return is_float(f) || f == number_format(core::Element::i32); }

bool overlap(const runtime::ConstBuffer& a, const runtime::ConstBuffer& b) {
  return a.address() < b.address() + b.bytes() && b.address() < a.address() + a.bytes();
}

/// Reads the numbers of an operand where they are stored.
class StoredElements {
 public:
  StoredElements(const Op& op, const Operand& o, const runtime::ConstBuffer& memory)
      : op_(op), operand_(o), memory_(memory.host()) {}
  double operator()(std::size_t element) const {
    if (!operand_.packed) return operand_.format->load(memory_ + element * operand_.format->bytes);
    return stored_format(op_, operand_).load(memory_ + op_.stored_offset(operand_, element).value());
  }
  bool are_known() const {
    return operand_.format && operand_.elements > 0 && op_.stored_offset(operand_, 0).has_value();
  }

 private:
  const Op& op_;
  const Operand& operand_;
  const std::byte* memory_;
};

/// True if the operation is a product or convolution in a precision that is checked against float64.
bool multiplies(const Op& op) {
  if (!op.problem()) return false;
  const Precision p = op.problem()->precision;
  const KernelKind kind = op.problem()->operation();
  return (kind == KernelKind::gemm || kind == KernelKind::conv) &&
         (p == Precision::fp32 || p == Precision::bf16 || p == Precision::int8);
}
/// True if the operation brings one operand into another layout.
bool packs(const Op& op) {
  return !op.problem() && op.inputs().size() == 1 && op.outputs().size() == 1 &&
         op.implementation().starts_with("onednn");
}

std::string name_of(const Op& op) {
  if (!op.problem()) return "packing of an operand";
  return fmt::format("{} {} {}", problem_text(op.problem()->shape), name(op.problem()->pass),
                     name(op.problem()->precision));
}

/// A bound of the error of a sum where subnormal numbers are flushed to zero: each factor and each product may be off
/// by the smallest normal number.
double flush_error(const ReferenceSum& sum) {
  return std::numeric_limits<float>::min() * (4 * static_cast<double>(sum.terms) + sum.absolute_sum);
}

/// True if the operation is a product without ReLU, and its operands are known and few enough to be read quickly.
bool can_be_projected(const Op& op) {
  constexpr std::size_t most_elements = std::size_t{1} << 20;
  if (!multiplies(op)) return false;
  const auto* const gemm = std::get_if<GemmShape>(&op.problem()->shape);
  if (!gemm || gemm->activation == Activation::relu || op.inputs().size() < 2 || op.outputs().empty()) return false;
  const auto is_known = [&](const Operand& o) {
    return o.format && o.elements > 0 && op.stored_offset(o, 0).has_value();
  };
  const Operand &a = op.inputs()[0], &b = op.inputs()[1], &c = op.outputs()[0];
  return is_known(a) && is_known(b) && is_known(c) && is_number(*c.format) &&
         a.elements + b.elements + c.elements <= most_elements;
}

/// The numbers that the output holds before the product is added to them; empty: the product is not added.
std::vector<double> numbers_before(const Op& op, Op::Outputs outputs) {
  const Operand& c = op.outputs()[0];
  std::vector<double> out;
  if (!std::get<GemmShape>(op.problem()->shape).accumulate) return out;
  const StoredElements stored(op, c, outputs[0]);
  for (std::size_t i = 0; i < c.elements; ++i) out.push_back(stored(i));
  return out;
}

}  // namespace

/// An element to be checked: the index of its output, its index in the output's plain form, its offset in the stored
/// form [bytes], and the number that was there before the call.
struct CallCheck::Place {
  std::size_t output, element, at;
  double before;
};

CallCheck::CallCheck(std::uint64_t seed) : seed_(seed) { of_thread_ = this; }
CallCheck::~CallCheck() { of_thread_ = nullptr; }

void CallCheck::execute(Op& op, Op::Inputs inputs, Op::Outputs outputs) {
  const auto is_elsewhere = [](const auto& b) { return b.on_device(); };
  const bool in_place = std::ranges::any_of(outputs, [&](const runtime::Buffer& out) {
    return std::ranges::any_of(inputs, [&](const runtime::ConstBuffer& in) { return overlap(in, out); });
  });
  if (in_place || std::ranges::any_of(inputs, is_elsewhere) || std::ranges::any_of(outputs, is_elsewhere))
    return op.execute(inputs, outputs);
  const std::vector<double> before = can_be_projected(op) ? numbers_before(op, outputs) : std::vector<double>{};
  const auto places = draw_places(op, outputs);
  op.execute(inputs, outputs);
  if (places.empty()) return;
  ++calls_;
  if (fault_.empty()) check_elements(op, inputs, outputs, places);
  if (fault_.empty() && can_be_projected(op)) check_projection(op, inputs, outputs, before);
}

std::vector<CallCheck::Place> CallCheck::draw_places(const Op& op, Op::Outputs outputs) {
  constexpr double share = 0.01;
  std::vector<Place> places;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const Operand& o = op.outputs()[i];
    const bool accumulates = multiplies(op) && o.is_added_to;
    if (!o.format || !is_number(*o.format) || o.elements == 0 || (o.is_added_to && !accumulates)) continue;
    const double wanted = share * static_cast<double>(o.elements);
    const core::Random draws(seed_, calls_);
    for (const std::size_t element :
         sample_places(o.elements, static_cast<std::size_t>(std::clamp(wanted, 4.0, 16.0)), draws.bits(i))) {
      const auto at = op.stored_offset(o, element);
      if (!at) break;
      std::byte* const element_address = outputs[i].host() + *at;
      places.push_back({i, element, *at, o.format->load(element_address)});
      if (!accumulates) std::memset(element_address, static_cast<int>(unwritten_byte(*o.format)), o.format->bytes);
    }
  }
  return places;
}

void CallCheck::check_projection(const Op& op, Op::Inputs inputs, Op::Outputs outputs, std::span<const double> before) {
  const auto& s = std::get<GemmShape>(op.problem()->shape);
  const Precision precision = op.problem()->precision;
  const StoredElements a(op, op.inputs()[0], inputs[0]), b(op, op.inputs()[1], inputs[1]),
      c(op, op.outputs()[0], outputs[0]);
  const bool ta = s.transpose_a == Transpose::yes, tb = s.transpose_b == Transpose::yes;
  const core::Random draws(seed_, calls_);
  std::vector<double> sign(s.n);
  for (std::size_t j = 0; j < s.n; ++j) sign[j] = draws.bits(1000 + j / 64) >> j % 64 & 1 ? 1 : -1;
  ReferenceSum bias_sum;
  if (s.bias) {
    const StoredElements bias(op, op.inputs()[2], inputs[2]);
    for (std::size_t j = 0; j < s.n; ++j) bias_sum.add(bias(j), sign[j]);
  }
  std::vector<double> projected(s.k), magnitude(s.k);
  for (std::size_t product = 0; product < op.outputs()[0].elements / (s.m * s.n); ++product) {
    for (std::size_t l = 0; l < s.k; ++l) {
      projected[l] = magnitude[l] = 0;
      for (std::size_t j = 0; j < s.n; ++j) {
        const double x = b(product * s.k * s.n + (tb ? j * s.k + l : l * s.n + j));
        projected[l] += x * sign[j], magnitude[l] += std::fabs(x);
      }
    }
    for (std::size_t i = 0; i < s.m; ++i) {
      ReferenceSum sum{.value = bias_sum.value,
                       .absolute_sum = bias_sum.absolute_sum,
                       .terms = s.k + (s.bias ? 1 : 0) + (s.accumulate ? 1 : 0)};
      for (std::size_t l = 0; l < s.k; ++l) {
        const double x = a(product * s.m * s.k + (ta ? l * s.m + i : i * s.k + l));
        sum.value += x * projected[l], sum.absolute_sum += std::fabs(x) * magnitude[l];
      }
      double found = 0, stored = 0;
      for (std::size_t j = 0; j < s.n; ++j) {
        const std::size_t at = (product * s.m + i) * s.n + j;
        if (!before.empty()) sum.value += before[at] * sign[j], sum.absolute_sum += std::fabs(before[at]);
        found += c(at) * sign[j], stored += std::fabs(c(at));
      }
      // Where training has diverged, nothing can be checked.
      if (!std::isfinite(sum.absolute_sum) || sum.absolute_sum > 0.5 * double{std::numeric_limits<float>::max()})
        continue;
      const ReferenceSum row_bound{
          .value = std::max(stored, std::fabs(sum.value)), .absolute_sum = sum.absolute_sum, .terms = sum.terms};
      // The bound of a row is the sum of its elements' bounds.
      const double allowed = allowed_distance(row_bound, precision) + 0x1p-40 * sum.absolute_sum +
                             (is_float(*op.outputs()[0].format) ? static_cast<double>(s.n) * flush_error(sum) : 0);
      if (std::fabs(found - sum.value) <= allowed) continue;
      fault_ = fmt::format("{}: row {} of the {} is {:.6g} in its projection, by float64 {:.6g}", name_of(op),
                           product * s.m + i, op.outputs()[0].name, found, sum.value);
      return;
    }
  }
}

void CallCheck::check_elements(const Op& op, Op::Inputs inputs, Op::Outputs outputs, std::span<const Place> places) {
  const auto input = [&](std::size_t i) { return StoredElements(op, op.inputs()[i], inputs[i]); };
  const bool is_product = multiplies(op) && input(0).are_known() && input(1).are_known();
  const bool is_packing = packs(op) && op.inputs()[0].format && is_float(*op.inputs()[0].format) &&
                          op.inputs()[0].elements == op.outputs()[0].elements && input(0).are_known();
  const auto* const gemm = op.problem() ? std::get_if<GemmShape>(&op.problem()->shape) : nullptr;
  for (const Place& p : places) {
    const Operand& o = op.outputs()[p.output];
    const std::byte* const element_address = outputs[p.output].host() + p.at;
    const bool is_written = std::any_of(element_address, element_address + o.format->bytes,
                                        [&](std::byte b) { return b != unwritten_byte(*o.format); });
    if (!is_written && !o.is_added_to) {
      fault_ = fmt::format("{}: element {} of the {} was not written", name_of(op), p.element, o.name);
      return;
    }
    const double found = o.format->load(element_address);
    double expected = found, allowed = 0;
    if (is_packing && is_float(*o.format)) {
      expected = input(0)(p.element);
      allowed = 0x1p-8 * std::fabs(expected) + std::numeric_limits<float>::min();
      // Operations of the converting backends round to bf16 the operands that they pack in fp32.
      if (*o.format == *op.inputs()[0].format && !is_converted(op)) allowed = std::numeric_limits<float>::min();
    } else if (is_product && gemm) {
      ReferenceSum sum = product_at(*gemm, input(0), input(1), p.element);
      if (gemm->bias) sum.add(input(2)(p.element % gemm->n), 1);
      if (gemm->accumulate) sum.add(p.before, 1);
      allowed = allowed_distance(sum, op.problem()->precision) + (is_float(*o.format) ? flush_error(sum) : 0);
      expected = gemm->activation == Activation::relu ? std::max(sum.value, 0.0) : sum.value;
    } else if (is_product) {
      const ReferenceSum sum =
          conv_at(std::get<ConvShape>(op.problem()->shape), op.problem()->pass, input(0), input(1), p.element);
      allowed = allowed_distance(sum, op.problem()->precision) + (is_float(*o.format) ? flush_error(sum) : 0);
      expected = sum.value;
    }
    // Where training has diverged, numbers are NaN or too large for the result and cannot be checked.
    if (!std::isfinite(expected) || std::fabs(expected) > 0.5 * double{std::numeric_limits<float>::max()}) continue;
    if (std::fabs(found - expected) <= allowed) continue;
    fault_ = fmt::format("{}: element {} of the {} is {:.6g}, by float64 {:.6g}", name_of(op), p.element, o.name, found,
                         expected);
    return;
  }
}

}  // namespace gradmeter::kernels
