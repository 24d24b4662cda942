#include "kernels/cases/rnn_check.hpp"

#include <cmath>

#include "kernels/quantization.hpp"

namespace gradmeter::kernels {
namespace {

/// `relative` of an element's own size, `usual` of its tensor's root mean square.
struct Tolerance {
  double relative, usual, absolute;
};

// Forward steps are checked one by one, each from the same state as the reference's. So only a lstm's c carries errors
// on, and loses them as its gate forgets c. Backward errors propagate as gradients do, through products with weights
// and derivatives that on the whole shrink them. Hence eight times what one step's sum of input + hidden products may
// be off by in fp32: 16 roundings for the nonlinearities, 4·√(input + hidden) for the sum. Seen: up to a sixth of it.
//
// bf16: where fp32 computes, only results are rounded. Else the reference rounds where oneDNN does: states and r·h,
// backward also gates and the gradients of their sums. A number next to a tie may be rounded to either side. Forward
// that allows the result's own rounding and a little of the usual size; backward a unit in each of up to four factors,
// of the element or of the sum that it is part of. Seen: up to a quarter of it.
//
// int8: one quantum, half for the rounding of the result, half for a state next to a tie.
Tolerance tolerance(const Problem& p) {
  const auto& s = std::get<RnnShape>(p.shape);
  const double products = static_cast<double>(s.input_width() + s.hidden);
  const double sums = 8 * 0x1p-24 * (16 + 4 * std::sqrt(products));
  if (p.precision == Precision::int8) return {0, sums, rnn_quantum};
  if (p.precision == Precision::fp32) return {0x1p-24, sums, 0};
  if (p.pass != Pass::forward) return {4 * 0x1p-8, 4 * 0x1p-8, 0};
  return {0x1p-8, 0x1p-9 + sums, 0};
}

}  // namespace

double ComparedTensor::usual() const {
  double sum = 0;
  for (const double x : reference) sum += x * x;
  return sum > 0 ? std::sqrt(sum / static_cast<double>(reference.size())) : 1;
}

void corrupt_one(std::span<ComparedTensor> compared) {
  std::size_t all = 0;
  for (const ComparedTensor& l : compared) all += l.result.size();
  std::size_t at = all / 2;
  for (ComparedTensor& l : compared) {
    if (at < l.result.size()) {
      l.result[at] += 0.5 * l.usual();
      return;
    }
    at -= l.result.size();
  }
}

KernelCaseCheck checked_elements(std::span<const ComparedTensor> compared, const Problem& p) {
  const Tolerance t = tolerance(p);
  ElementCheck element_check;
  for (const ComparedTensor& l : compared) {
    const double usual = l.usual();
    for (std::size_t i = 0; i < l.result.size(); ++i) {
      const double allowed = t.relative * std::fabs(l.reference[i]) + t.usual * usual + t.absolute;
      element_check.add(l.result[i], l.reference[i], allowed, l.reference[i] != 0);
    }
  }
  return element_check.verdict();
}

}  // namespace gradmeter::kernels
