// bf16 where the library has no kernels of it: operands lie in memory as bf16 and are converted to fp32 in each call,
// results are rounded to nearest even. Between the steps of a recurrent layer its states are not rounded. Weights in
// the library's own layout stay as it has them, numbers of bf16 in fp32: they are converted when they are packed.
#include <algorithm>
#include <array>

#include "core/format.hpp"
#include "kernels/library.hpp"
#include "kernels/ops/converted_op.hpp"
#include "kernels/ops/makers.hpp"
#include "kernels/pointwise.hpp"

namespace gradmeter::kernels {
namespace {

template <class T>
std::span<const T> numbers(std::span<const std::byte> b) {
  return {reinterpret_cast<const T*>(b.data()), b.size() / sizeof(T)};
}
template <class T>
std::span<T> numbers(std::span<std::byte> b) {
  return {reinterpret_cast<T*>(b.data()), b.size() / sizeof(T)};
}

constexpr Conversion bf16_conversion{
    .element = core::Element::bf16,
    .to_floats = [](std::span<const std::byte> from, std::span<float> to) { to_floats(numbers<Bf16>(from), to); },
    .from_floats = [](std::span<const float> from, std::span<std::byte> to) { to_bf16(from, numbers<Bf16>(to)); }};
/// Of fp32 in memory.
constexpr Conversion bf16_rounding{
    .element = core::Element::f32,
    .to_floats = [](std::span<const std::byte> from, std::span<float> to) { round_to_bf16(numbers<float>(from), to); },
    .from_floats = [](std::span<const float> from,
                      std::span<std::byte> to) { round_to_bf16(from, numbers<float>(to)); }};

/// As the library has it: biases, an lstm's memory and all gradients of recurrent layers are fp32.
bool is_kept_in_bf16(const Operand& o, KernelKind operation) {
  if (!o.format || o.name == "bias") return false;
  return operation != KernelKind::rnn || (o.name != "memory" && !o.name.ends_with("gradient"));
}
/// Some layouts of weights hold more than numbers.
bool is_packed_weights(const Operand& o) {
  constexpr std::array<std::string_view, 4> weights{"b", "filters", "weights", "recurrent"};
  return o.packed && std::ranges::find(weights, o.name) != weights.end();
}

std::vector<ConvertedOperand> in_bf16(std::span<const Operand> in_fp32, KernelKind operation) {
  std::vector<ConvertedOperand> all;
  for (const Operand& o : in_fp32) {
    ConvertedOperand& c = all.emplace_back(ConvertedOperand{o});
    if (!is_kept_in_bf16(o, operation)) continue;
    c = converted(o, bf16_conversion);
    if (is_packed_weights(o)) c.operand.stored_bytes = o.stored_bytes, c.conversion = nullptr;
  }
  return all;
}

std::string by_conversion(const Op& in_fp32) { return in_fp32.implementation() + ", bf16 by conversion"; }

/// Packs or unpacks.
std::unique_ptr<Op> reorder(std::unique_ptr<Op> in_fp32, const Conversion* from, const Conversion* to) {
  const auto one = [](const Operand& o, const Conversion* c) {
    return std::vector{c ? converted(o, *c) : ConvertedOperand{o}};
  };
  const auto in = one(in_fp32->inputs()[0], from), out = one(in_fp32->outputs()[0], to);
  const auto bytes = static_cast<double>(in[0].operand.stored_bytes + out[0].operand.stored_bytes);
  std::string name = by_conversion(*in_fp32);
  return std::make_unique<ConvertedOp>(std::move(in_fp32), in, out, runtime::Cost{.flops = 0, .bytes = bytes},
                                       std::move(name));
}

/// Of an operand that is not packed, from fp32 or to it.
class Bf16Cast final : public HostOp {
 public:
  enum class To : std::uint8_t { bf16, floats };
  Bf16Cast(const Operand& o, To to)
      : HostOp({to == To::bf16 ? floats(o) : o}, {to == To::bf16 ? o : floats(o)},
               {.flops = 0, .bytes = 6 * static_cast<double>(o.elements)}),
        to_(to) {}
  std::string implementation() const override { return "highway"; }

 protected:
  void compute(Reads in, Writes out) override {
    const std::span from(in[0], inputs()[0].stored_bytes);
    const std::span to(out[0], outputs()[0].stored_bytes);
    to_ == To::bf16 ? bf16_conversion.from_floats(numbers<float>(from), to)
                    : bf16_conversion.to_floats(from, numbers<float>(to));
  }

 private:
  static Operand floats(Operand o) {
    o.format = &number_format(core::Element::f32);
    o.stored_bytes = o.plain_bytes();
    return o;
  }
  To to_;
};

class Bf16Op final : public ConvertedOp {
 public:
  using ConvertedOp::ConvertedOp;

  std::unique_ptr<Op> packing(std::size_t i) const override {
    auto op = in_fp32().packing(i);
    return is_bf16(inputs()[i]) ? reorder(std::move(op), &bf16_conversion, conversion_of_input(i)) : std::move(op);
  }
  std::unique_ptr<Op> unpacking(std::size_t i) const override {
    auto op = in_fp32().unpacking(i);
    return is_bf16(outputs()[i]) ? reorder(std::move(op), conversion_of_output(i), &bf16_conversion) : std::move(op);
  }
  std::unique_ptr<Op> packing_floats(std::size_t i) const override {
    const Operand& o = inputs()[i];
    if (!is_bf16(o)) return in_fp32().packing_floats(i);
    if (!o.packed) return std::make_unique<Bf16Cast>(o, Bf16Cast::To::bf16);
    const Conversion* const stored = conversion_of_input(i);
    return reorder(in_fp32().packing_floats(i), stored ? nullptr : &bf16_rounding, stored);
  }
  std::unique_ptr<Op> unpacking_floats(std::size_t i) const override {
    const Operand& o = outputs()[i];
    if (!is_bf16(o)) return in_fp32().unpacking_floats(i);
    if (!o.packed) return std::make_unique<Bf16Cast>(o, Bf16Cast::To::floats);
    return reorder(in_fp32().unpacking_floats(i), conversion_of_output(i), nullptr);
  }

 private:
  static bool is_bf16(const Operand& o) { return o.format && *o.format == number_format(core::Element::bf16); }
};

}  // namespace

std::string converted_op_refusal(const Problem& p) {
  const std::string none = onednn_refusal();
  return none.empty() ? op_refusal(in_fp32(p)) : none;
}

std::unique_ptr<Op> make_converted_op(const Problem& p, const OpOptions& options, runtime::Device& device) {
  auto inner = prepare(in_fp32(p), {.training = options.training}, device);
  const runtime::Cost cost{.flops = inner->cost().flops, .bytes = bytes(p)};
  auto inputs = in_bf16(inner->inputs(), p.operation()), outputs = in_bf16(inner->outputs(), p.operation());
  std::string name = by_conversion(*inner);
  return std::make_unique<Bf16Op>(std::move(inner), std::move(inputs), std::move(outputs), cost, std::move(name));
}

}  // namespace gradmeter::kernels
