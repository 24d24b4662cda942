// SPDX-License-Identifier: Apache-2.0
// Operations in formats for which this processor has no kernels: bf16 (backend `converted`), and formats to which
// software rounds (backend `emulated`). Each operation converts its operands to fp32, runs an fp32 operation and
// converts the results.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/element.hpp"
#include "core/format.hpp"
#include "kernels/backends.hpp"
#include "kernels/host/library.hpp"
#include "kernels/host/memory.hpp"
#include "kernels/host/threads.hpp"
#include "kernels/number_format.hpp"
#include "kernels/pointwise/pointwise.hpp"

namespace gradmeter::kernels {

/// Converts between the format in memory and fp32, element by element.
struct Conversion {
  core::Element element;  ///< the type in memory
  void (*to_floats)(std::span<const std::byte>, std::span<float>);
  void (*from_floats)(std::span<const float>, std::span<std::byte>);
};

/// An operand of a converting operation.
struct ConvertedOperand {
  Operand operand;
  const Conversion* conversion = nullptr;  ///< null: the fp32 operation takes the operand as it is
};
ConvertedOperand converted(Operand in_fp32, const Conversion&);

Problem fp32_problem(Problem);

/// Runs an fp32 operation on converted copies of its operands. The copies lie in a workspace of the calling thread,
/// which all its operations of this class use in turn. The workspace grows in `bind` or a first call, to what the
/// largest of these operations needs.
class ConvertedOp : public HostOp {
 public:
  ConvertedOp(std::unique_ptr<Op> in_fp32, std::vector<ConvertedOperand> inputs, std::vector<ConvertedOperand> outputs,
              runtime::Cost, std::string implementation);

  std::size_t scratch_bytes() const override { return inner_->scratch_bytes() + workspace_floats_ * sizeof(float); }
  std::string implementation() const override { return implementation_; }
  std::unique_ptr<Op> packing(std::size_t input) const override { return inner_->packing(input); }
  std::unique_ptr<Op> unpacking(std::size_t output) const override { return inner_->unpacking(output); }
  std::unique_ptr<Op> packing_from_fp32(std::size_t input) const override { return inner_->packing_from_fp32(input); }
  std::unique_ptr<Op> unpacking_to_fp32(std::size_t output) const override { return inner_->unpacking_to_fp32(output); }
  std::optional<std::size_t> stored_offset(const Operand&, std::size_t element) const override;

 protected:
  /// The conversion of an input or output; null: it is not converted.
  const Conversion* conversion_of_input(std::size_t i) const { return input_copies_[i].conversion; }
  const Conversion* conversion_of_output(std::size_t i) const { return output_copies_[i].conversion; }
  const Op& inner() const { return *inner_; }

 private:
  struct Copy {
    const Conversion* conversion;
    std::size_t first, count;  // the copy's place in the workspace [floats]
  };
  std::vector<Copy> copies_of(std::span<const ConvertedOperand>, std::span<const Operand> in_fp32);
  void compute(Reads, Writes) final;
  void bind_addresses(Reads, Writes) final;
  void list_operands(std::span<float> workspace, Reads, Writes);

  std::unique_ptr<Op> inner_;
  std::string implementation_;
  std::size_t workspace_floats_ = 0;
  std::vector<Copy> input_copies_, output_copies_;
  std::vector<runtime::ConstBuffer> inner_inputs_;  // operands of the fp32 operation in the call that runs
  std::vector<runtime::Buffer> inner_outputs_;
};

namespace {

std::vector<Operand> outer_operands(const std::vector<ConvertedOperand>& all) {
  std::vector<Operand> operands;
  for (const ConvertedOperand& c : all) operands.push_back(c.operand);
  return operands;
}

std::span<float> thread_workspace(std::size_t floats) {
  thread_local AlignedVector<float> memory;
  if (memory.size() < floats) {
    memory = {};
    memory.resize(floats);
  }
  return memory;
}

}  // namespace

ConvertedOperand converted(Operand o, const Conversion& c) {
  o.format = &number_format(c.element);
  o.stored_bytes = o.stored_bytes / sizeof(float) * core::size_of(c.element);
  return {o, &c};
}

Problem fp32_problem(Problem p) {
  p.precision = Precision::fp32;
  return p;
}

ConvertedOp::ConvertedOp(std::unique_ptr<Op> in_fp32, std::vector<ConvertedOperand> inputs,
                         std::vector<ConvertedOperand> outputs, runtime::Cost cost, std::string implementation)
    : HostOp(outer_operands(inputs), outer_operands(outputs), cost),
      inner_(std::move(in_fp32)),
      implementation_(std::move(implementation)),
      input_copies_(copies_of(inputs, inner_->inputs())),
      output_copies_(copies_of(outputs, inner_->outputs())),
      inner_inputs_(inputs.size(), runtime::empty_buffer),
      inner_outputs_(outputs.size(), runtime::empty_buffer) {}

std::vector<ConvertedOp::Copy> ConvertedOp::copies_of(std::span<const ConvertedOperand> operands,
                                                      std::span<const Operand> in_fp32) {
  std::vector<Copy> copies;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const Copy& c =
        copies.emplace_back(Copy{operands[i].conversion, workspace_floats_, in_fp32[i].stored_bytes / sizeof(float)});
    if (c.conversion) workspace_floats_ += floats_in_whole_lines(c.count);
  }
  return copies;
}

/// Scales the offset that the fp32 operation gives to the size of an element in memory.
std::optional<std::size_t> ConvertedOp::stored_offset(const Operand& o, std::size_t element) const {
  if (!o.packed) return HostOp::stored_offset(o, element);
  const bool is_input = &o >= inputs().data() && &o < inputs().data() + inputs().size();
  const auto i = static_cast<std::size_t>(&o - (is_input ? inputs() : outputs()).data());
  const Conversion* const conversion = is_input ? input_copies_[i].conversion : output_copies_[i].conversion;
  const auto at = inner_->stored_offset((is_input ? inner_->inputs() : inner_->outputs())[i], element);
  if (!at || !conversion) return at;
  return *at / sizeof(float) * core::size_of(conversion->element);
}

void ConvertedOp::list_operands(std::span<float> workspace, Reads in, Writes out) {
  for (std::size_t i = 0; i < in.size(); ++i) {
    const Copy& c = input_copies_[i];
    inner_inputs_[i] = c.conversion
                           ? runtime::ConstBuffer(workspace.subspan(c.first, c.count))
                           : runtime::ConstBuffer(core::Element::i8, std::span(in[i], inputs()[i].stored_bytes));
  }
  for (std::size_t i = 0; i < out.size(); ++i) {
    const Copy& c = output_copies_[i];
    inner_outputs_[i] = c.conversion ? runtime::Buffer(workspace.subspan(c.first, c.count))
                                     : runtime::Buffer(core::Element::i8, std::span(out[i], outputs()[i].stored_bytes));
  }
}

void ConvertedOp::bind_addresses(Reads in, Writes out) {
  list_operands(thread_workspace(workspace_floats_), in, out);
  inner_->bind(inner_inputs_, inner_outputs_);
}

void ConvertedOp::compute(Reads in, Writes out) {
  const std::span<float> workspace = thread_workspace(workspace_floats_);
  list_operands(workspace, in, out);
  const auto copy = [&](const Copy& c) { return workspace.subspan(c.first, c.count); };
  for (std::size_t i = 0; i < in.size(); ++i)
    if (input_copies_[i].conversion)
      input_copies_[i].conversion->to_floats({in[i], inputs()[i].stored_bytes}, copy(input_copies_[i]));
  for (std::size_t i = 0; i < out.size(); ++i)
    if (output_copies_[i].conversion && outputs()[i].is_added_to)
      output_copies_[i].conversion->to_floats({out[i], outputs()[i].stored_bytes}, copy(output_copies_[i]));
  inner_->execute(inner_inputs_, inner_outputs_);
  for (std::size_t i = 0; i < out.size(); ++i)
    if (output_copies_[i].conversion)
      output_copies_[i].conversion->from_floats(copy(output_copies_[i]), {out[i], outputs()[i].stored_bytes});
}

// The backend `converted`: bf16 without kernels of a library. Operands are stored as bf16 and converted to fp32 in each
// call, and results are rounded to nearest even. The states between the steps of a recurrent layer are not rounded.
// Packed weights are rounded to bf16 when they are packed, and stored as fp32.

namespace {

template <class T>
std::span<const T> as_numbers_of(std::span<const std::byte> b) {
  return {reinterpret_cast<const T*>(b.data()), b.size() / sizeof(T)};
}
template <class T>
std::span<T> as_numbers_of(std::span<std::byte> b) {
  return {reinterpret_cast<T*>(b.data()), b.size() / sizeof(T)};
}

constexpr Conversion bf16_conversion{
    .element = core::Element::bf16,
    .to_floats = [](std::span<const std::byte> from, std::span<float> to) { to_floats(as_numbers_of<Bf16>(from), to); },
    .from_floats = [](std::span<const float> from,
                      std::span<std::byte> to) { to_bf16(from, as_numbers_of<Bf16>(to)); }};
/// Keeps numbers as fp32 in memory, but rounded to bf16.
constexpr Conversion bf16_rounding{
    .element = core::Element::f32,
    .to_floats = [](std::span<const std::byte> from,
                    std::span<float> to) { round_to_bf16(as_numbers_of<float>(from), to); },
    .from_floats = [](std::span<const float> from,
                      std::span<std::byte> to) { round_to_bf16(from, as_numbers_of<float>(to)); }};

/// False for operands that oneDNN keeps in fp32: biases, an lstm's memory and all gradients of recurrent layers.
bool is_kept_in_bf16(const Operand& o, KernelKind operation) {
  if (!o.format || o.name == "bias") return false;
  return operation != KernelKind::rnn || (o.name != "memory" && !o.name.ends_with("gradient"));
}
/// True for packed weights, which a call must not convert, since some of oneDNN's layouts hold more than the numbers.
bool is_packed_weights(const Operand& o) {
  constexpr std::array<std::string_view, 4> weights{"b", "filters", "weights", "recurrent"};
  return o.packed && std::ranges::find(weights, o.name) != weights.end();
}

std::vector<ConvertedOperand> in_bf16(std::span<const Operand> in_fp32, KernelKind operation) {
  std::vector<ConvertedOperand> operands;
  for (const Operand& o : in_fp32) {
    ConvertedOperand& c = operands.emplace_back(ConvertedOperand{o});
    if (!is_kept_in_bf16(o, operation)) continue;
    c = converted(o, bf16_conversion);
    if (is_packed_weights(o)) c.operand.stored_bytes = o.stored_bytes, c.conversion = nullptr;
  }
  return operands;
}

std::string converted_implementation(const Op& in_fp32) { return in_fp32.implementation() + ", bf16 by conversion"; }

/// Turns a packing or unpacking operation of fp32 into one that converts its input by `from` and its output by `to`;
/// null: no conversion.
std::unique_ptr<Op> with_conversions(std::unique_ptr<Op> in_fp32, const Conversion* from, const Conversion* to) {
  const auto single_operand = [](const Operand& o, const Conversion* c) {
    return std::vector{c ? converted(o, *c) : ConvertedOperand{o}};
  };
  const auto in = single_operand(in_fp32->inputs()[0], from), out = single_operand(in_fp32->outputs()[0], to);
  const auto bytes = static_cast<double>(in[0].operand.stored_bytes + out[0].operand.stored_bytes);
  std::string name = converted_implementation(*in_fp32);
  return std::make_unique<ConvertedOp>(std::move(in_fp32), in, out, runtime::Cost{.flops = 0, .bytes = bytes},
                                       std::move(name));
}

/// Converts an operand that is not packed from fp32 (cast_to_bf16) or to fp32 (cast_to_floats).
std::unique_ptr<Op> cast_to_bf16(const Operand& o) {
  return make_host_conversion(in_plain_floats(o), o, "highway", [n = o.elements](const std::byte* from, std::byte* to) {
    to_bf16({reinterpret_cast<const float*>(from), n}, {reinterpret_cast<Bf16*>(to), n});
  });
}
std::unique_ptr<Op> cast_to_floats(const Operand& o) {
  return make_host_conversion(o, in_plain_floats(o), "highway", [n = o.elements](const std::byte* from, std::byte* to) {
    to_floats(std::span(reinterpret_cast<const Bf16*>(from), n), {reinterpret_cast<float*>(to), n});
  });
}

class Bf16Op final : public ConvertedOp {
 public:
  using ConvertedOp::ConvertedOp;

  std::unique_ptr<Op> packing(std::size_t i) const override {
    auto op = inner().packing(i);
    return is_bf16(inputs()[i]) ? with_conversions(std::move(op), &bf16_conversion, conversion_of_input(i))
                                : std::move(op);
  }
  std::unique_ptr<Op> unpacking(std::size_t i) const override {
    auto op = inner().unpacking(i);
    return is_bf16(outputs()[i]) ? with_conversions(std::move(op), conversion_of_output(i), &bf16_conversion)
                                 : std::move(op);
  }
  std::unique_ptr<Op> packing_from_fp32(std::size_t i) const override {
    const Operand& o = inputs()[i];
    if (!is_bf16(o)) return inner().packing_from_fp32(i);
    if (!o.packed) return cast_to_bf16(o);
    const Conversion* const stored = conversion_of_input(i);
    return with_conversions(inner().packing_from_fp32(i), stored ? nullptr : &bf16_rounding, stored);
  }
  std::unique_ptr<Op> unpacking_to_fp32(std::size_t i) const override {
    const Operand& o = outputs()[i];
    if (!is_bf16(o)) return inner().unpacking_to_fp32(i);
    if (!o.packed) return cast_to_floats(o);
    return with_conversions(inner().unpacking_to_fp32(i), conversion_of_output(i), nullptr);
  }

 private:
  static bool is_bf16(const Operand& o) { return o.format && *o.format == number_format(core::Element::bf16); }
};

}  // namespace

bool is_converted(const Op& op) { return dynamic_cast<const ConvertedOp*>(&op) != nullptr; }

const NumberFormat& stored_format(const Op& op, const Operand& o) {
  return is_packed_weights(o) && is_converted(op) ? number_format(core::Element::f32) : *o.format;
}

std::string converted_op_refusal(const Problem& p) {
  const std::string refusal = onednn_refusal();
  return refusal.empty() ? op_refusal(fp32_problem(p)) : refusal;
}

std::unique_ptr<Op> make_converted_op(const Problem& p, const OpOptions& options, runtime::Device& device) {
  auto inner = prepare(fp32_problem(p), {.training = options.training}, device);
  const runtime::Cost cost{.flops = inner->cost().flops, .bytes = bytes(p)};
  auto inputs = in_bf16(inner->inputs(), p.operation()), outputs = in_bf16(inner->outputs(), p.operation());
  std::string name = converted_implementation(*inner);
  return std::make_unique<Bf16Op>(std::move(inner), std::move(inputs), std::move(outputs), cost, std::move(name));
}

// The backend `emulated`: products and convolutions in formats for which this processor has no instructions. Operands
// are fp32 numbers that are rounded to the format, and the operation runs in fp32. It shows the format's accuracy; its
// times are those of fp32 and of rounding.

namespace {

constexpr std::size_t rounding_grain = 1 << 12;  // the fewest elements for each thread

/// The largest magnitude of a finite number; 1 if all are zero, so that it can be a divisor.
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

/// Rounds without a scale: numbers that are too large become infinite, too small ones zero.
void round_to_fp16(std::span<float> x) {
  round_each(x, [](float v) { return core::to_float(core::fp16_format, core::from_float(core::fp16_format, v)); });
}

template <core::Element element>
void round_to_fp8_format(std::span<float> x) {
  round_to_fp8(x, element);
}

/// Rounds to multiples, from -7 to 7, of a quantum that all numbers of the operand share.
void round_to_int4(std::span<float> x) {
  const float quantum = largest_of(x) / 7;
  round_each(x, [quantum](float v) { return std::isfinite(v) ? std::nearbyint(v / quantum) * quantum : v; });
}

/// Copies fp32 to fp32 and rounds all numbers of the operand by one call of `round`, which may need their largest.
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
  bool rounds_results;  ///< true: results are rounded to the format; false: they are fp32
};
constexpr std::array emulations{
    Emulation{Precision::fp16, rounding<round_to_fp16>, true},
    Emulation{Precision::fp8_e4m3, rounding<round_to_fp8_format<core::Element::e4m3>>, false},
    Emulation{Precision::fp8_e5m2, rounding<round_to_fp8_format<core::Element::e5m2>>, false},
    Emulation{Precision::int4, rounding<round_to_int4>, false},
};

}  // namespace

std::string emulated_op_refusal(const Problem& p) { return op_refusal(fp32_problem(p)); }

/// Rounds the first two inputs, which are the factors, but not a bias.
std::unique_ptr<Op> make_emulated_op(const Problem& p, const OpOptions& options, runtime::Device& device) {
  const Emulation& e = *std::ranges::find(emulations, p.precision, &Emulation::precision);
  auto op = prepare(fp32_problem(p), {.training = options.training}, device);
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
