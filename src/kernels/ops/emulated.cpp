// Products and convolutions in formats that this processor has no instructions for: operands in fp32 are rounded to the
// format, and fp32 computes. For accuracy alone: times are those of fp32 and of rounding.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "core/small_float.hpp"
#include "kernels/number_format.hpp"
#include "kernels/ops/converted_op.hpp"
#include "kernels/ops/makers.hpp"
#include "kernels/threads.hpp"

namespace gradmeter::kernels {
namespace {

constexpr std::size_t rounding_grain = 1 << 12;  // elements for each thread at least

/// The largest size of a finite number; 1 where there is none but zero, so that it can be divided by.
float largest_of(std::span<const float> x) {
  float most = 0;
  for (const float v : x)
    if (std::isfinite(v)) most = std::max(most, std::fabs(v));
  return most > 0 ? most : 1;
}

template <class Round>
void round_each(std::span<float> x, const Round& round) {
  split(x.size(), rounding_grain, [&](std::size_t first, std::size_t n) {
    for (float& v : x.subspan(first, n)) v = round(v);
  });
}

/// Without a scale: what is too large becomes infinite, what is too small zero.
void round_to_fp16(std::span<float> x) {
  round_each(x, [](float v) { return core::to_float(core::fp16_format, core::from_float(core::fp16_format, v)); });
}

template <core::Element element>
void round_to_fp8_format(std::span<float> x) {
  round_to_fp8(x, element);
}

/// Whole numbers from -7 to 7 times a quantum of the operand.
void round_to_int4(std::span<float> x) {
  const float quantum = largest_of(x) / 7;
  round_each(x, [quantum](float v) { return std::isfinite(v) ? std::nearbyint(v / quantum) * quantum : v; });
}

/// A copy, rounded as a whole.
template <void (*round)(std::span<float>)>
constexpr Conversion rounding{.element = core::Element::f32,
                              .to_floats =
                                  [](std::span<const std::byte> from, std::span<float> to) {
                                    std::memcpy(to.data(), from.data(), from.size());
                                    round(to);
                                  },
                              .from_floats =
                                  [](std::span<const float> from, std::span<std::byte> to) {
                                    std::memcpy(to.data(), from.data(), to.size());
                                    round({reinterpret_cast<float*>(to.data()), from.size()});
                                  }};

struct Emulation {
  Precision precision;
  const Conversion& conversion;
  bool rounds_results;  ///< a result is stored in the format too, else in fp32
};
constexpr std::array emulations{
    Emulation{Precision::fp16, rounding<round_to_fp16>, true},
    Emulation{Precision::fp8_e4m3, rounding<round_to_fp8_format<core::Element::e4m3>>, false},
    Emulation{Precision::fp8_e5m2, rounding<round_to_fp8_format<core::Element::e5m2>>, false},
    Emulation{Precision::int4, rounding<round_to_int4>, false},
};

}  // namespace

std::string emulated_op_refusal(const Problem& p) { return op_refusal(in_fp32(p)); }

/// The first two inputs are factors and rounded; a bias is not.
std::unique_ptr<Op> make_emulated_op(const Problem& p, const OpOptions& options, runtime::Device& device) {
  const Emulation& e = *std::ranges::find(emulations, p.precision, &Emulation::precision);
  auto op = prepare(in_fp32(p), {.training = options.training}, device);
  std::vector<ConvertedOperand> inputs, outputs;
  for (const Operand& o : op->inputs())
    inputs.push_back(inputs.size() < 2 ? converted(o, e.conversion) : ConvertedOperand{o});
  for (const Operand& o : op->outputs())
    outputs.push_back(e.rounds_results ? converted(o, e.conversion) : ConvertedOperand{o});
  const runtime::Cost cost = op->cost();
  std::string name = "emulated, " + op->implementation();
  return std::make_unique<ConvertedOp>(std::move(op), std::move(inputs), std::move(outputs), cost, std::move(name));
}

}  // namespace gradmeter::kernels
