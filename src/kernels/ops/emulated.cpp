// Products and convolutions in formats that this processor has no instructions for: operands in fp32 are rounded to the
// format, and fp32 computes. For accuracy alone: times are those of fp32 and of rounding.
#include <algorithm>
#include <array>
#include <cmath>

#include "core/small_float.hpp"
#include "kernels/ops/host_op.hpp"
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

/// The operand's largest number is the format's largest (current scaling). Infinities stay, so that they are seen.
template <const core::SmallFormat& format>
void round_to_fp8(std::span<float> x) {
  const float scale = core::to_float(format, format.largest()) / largest_of(x);
  round_each(x, [scale](float v) {
    if (!std::isfinite(v)) return v;
    return core::to_float(format, core::from_float(format, v * scale, core::Overflow::saturate)) / scale;
  });
}

/// Whole numbers from -7 to 7 times a quantum of the operand.
void round_to_int4(std::span<float> x) {
  const float quantum = largest_of(x) / 7;
  round_each(x, [quantum](float v) { return std::isfinite(v) ? std::nearbyint(v / quantum) * quantum : v; });
}

struct Emulation {
  Precision precision;
  void (*round)(std::span<float>);
  bool rounds_results;  ///< a result is stored in the format too, else in fp32
};
constexpr std::array emulations{
    Emulation{Precision::fp16, round_to_fp16, true},
    Emulation{Precision::fp8_e4m3, round_to_fp8<core::e4m3_format>, false},
    Emulation{Precision::fp8_e5m2, round_to_fp8<core::e5m2_format>, false},
    Emulation{Precision::int4, round_to_int4, false},
};
const Emulation& emulation_of(Precision p) { return *std::ranges::find(emulations, p, &Emulation::precision); }

Problem in_fp32(Problem p) {
  p.precision = Precision::fp32;
  return p;
}

/// Operands as the operation in fp32 has them, layouts too. The first two are factors and rounded; a bias is not.
class EmulatedOp final : public HostOp {
 public:
  EmulatedOp(const Problem& p, std::unique_ptr<Op> inner, runtime::Device& device)
      : HostOp({inner->inputs().begin(), inner->inputs().end()}, {inner->outputs().begin(), inner->outputs().end()},
               inner->cost()),
        emulation_(emulation_of(p.precision)),
        inner_(std::move(inner)) {
    for (std::size_t i = 0; i < factors; ++i)
      rounded_.push_back(device.allocate(core::Element::i8, inputs()[i].stored_bytes));
  }
  std::size_t scratch_bytes() const override {
    return inner_->scratch_bytes() + inputs()[0].stored_bytes + inputs()[1].stored_bytes;
  }
  std::string implementation() const override { return "emulated, " + inner_->implementation(); }
  std::unique_ptr<Op> packing(std::size_t input) const override { return inner_->packing(input); }
  std::unique_ptr<Op> unpacking(std::size_t output) const override { return inner_->unpacking(output); }
  std::unique_ptr<Op> packing_floats(std::size_t input) const override { return inner_->packing_floats(input); }
  std::unique_ptr<Op> unpacking_floats(std::size_t output) const override { return inner_->unpacking_floats(output); }

 protected:
  void compute(Reads in, Writes out) override {
    std::vector<runtime::ConstBuffer> inner_inputs;
    for (std::size_t i = 0; i < in.size(); ++i) {
      const std::span bytes(in[i], inputs()[i].stored_bytes);
      if (i >= factors) {
        inner_inputs.emplace_back(floats(bytes));
        continue;
      }
      const std::span<float> copy = floats(std::span(rounded_[i].buffer.host(), bytes.size()));
      std::ranges::copy(floats(bytes), copy.begin());
      emulation_.round(copy);
      inner_inputs.emplace_back(std::span<const float>(copy));
    }
    const std::span<float> result = floats(std::span(out[0], outputs()[0].stored_bytes));
    const std::array inner_outputs{runtime::Buffer(result)};
    inner_->execute(inner_inputs, inner_outputs);
    if (emulation_.rounds_results) emulation_.round(result);
  }

 private:
  static constexpr std::size_t factors = 2;
  static std::span<const float> floats(std::span<const std::byte> b) {
    return {reinterpret_cast<const float*>(b.data()), b.size() / sizeof(float)};
  }
  static std::span<float> floats(std::span<std::byte> b) {
    return {reinterpret_cast<float*>(b.data()), b.size() / sizeof(float)};
  }

  const Emulation& emulation_;
  std::unique_ptr<Op> inner_;
  std::vector<runtime::OwnedBuffer> rounded_;
};

}  // namespace

std::string emulated_op_refusal(const Problem& p) { return op_refusal(in_fp32(p)); }

std::unique_ptr<Op> make_emulated_op(const Problem& p, const OpOptions& options, runtime::Device& device) {
  return std::make_unique<EmulatedOp>(p, prepare(in_fp32(p), {.training = options.training}, device), device);
}

}  // namespace gradmeter::kernels
