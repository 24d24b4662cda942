// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/device_op.hpp"

#include <stdexcept>
#include <utility>

#include "core/format.hpp"
#include "kernels/conv/reference.hpp"
#include "kernels/pointwise/gpu_kernels.hpp"
#include "kernels/rnn/reference.hpp"
#include "runtime/cuda/stream.hpp"

namespace gradmeter::kernels::cuda {
namespace {

struct RnnSizes {
  std::size_t input, output, state, weights, recurrent, bias;
  explicit RnnSizes(const RnnShape& s)
      : input(s.steps * s.batch * s.input_width()),
        output(s.steps * s.batch * s.hidden),
        state(s.batch * s.hidden),
        weights(s.input_width() * gates_of(s.cell) * s.hidden),
        recurrent(s.hidden * gates_of(s.cell) * s.hidden),
        bias(gates_of(s.cell) * s.hidden) {}
};

/// Leaves out `memory`, the third of `all`, unless the cell is an lstm.
std::vector<Operand> of_cell(Cell cell, std::vector<Operand> all) {
  if (cell != Cell::lstm) all.erase(all.begin() + 2);
  return all;
}
std::vector<Operand> layer_operands(Cell cell, const RnnSizes& n, const RnnElements& e) {
  return of_cell(cell, {plain_operand("input", e.layer, n.input), plain_operand("state", e.layer, n.state),
                        plain_operand("memory", e.memory, n.state), plain_operand("weights", e.layer, n.weights),
                        plain_operand("recurrent", e.layer, n.recurrent), plain_operand("bias", e.memory, n.bias)});
}
std::vector<Operand> gradient_operands(Cell cell, const RnnSizes& n, const RnnElements& e) {
  constexpr core::Element f32 = core::Element::f32;
  return of_cell(
      cell,
      {plain_operand("input gradient", e.gradient, n.input), plain_operand("state gradient", e.gradient, n.state),
       plain_operand("memory gradient", e.gradient, n.state), plain_operand("weights gradient", f32, n.weights, true),
       plain_operand("recurrent gradient", f32, n.recurrent, true), plain_operand("bias gradient", f32, n.bias, true)});
}

}  // namespace

Operand plain_operand(std::string_view name, core::Element element, std::size_t elements, bool is_added_to) {
  return {.name = name,
          .format = &number_format(element),
          .elements = elements,
          .stored_bytes = elements * core::size_of(element),
          .is_added_to = is_added_to};
}

OperandLists conv_operands(const ConvShape& s, Pass pass, core::Element e) {
  const std::size_t input = input_elements(s), filters = filter_elements(s), output = output_elements(s);
  if (pass == Pass::forward)
    return {{plain_operand("input", e, input), plain_operand("filters", e, filters)},
            {plain_operand("output", e, output)}};
  if (pass == Pass::backward_data)
    return {{plain_operand("output gradient", e, output), plain_operand("filters", e, filters)},
            {plain_operand("input gradient", e, input)}};
  return {{plain_operand("input", e, input), plain_operand("output gradient", e, output)},
          {plain_operand("filters gradient", e, filters)}};
}

OperandLists rnn_operands(const RnnShape& s, Pass pass, bool training, const RnnElements& e, std::size_t kept_bytes) {
  const RnnSizes n(s);
  const Operand output = plain_operand("output", e.layer, n.output);
  const Operand kept{.name = "kept", .format = nullptr, .stored_bytes = kept_bytes};  // only its own backend reads it
  OperandLists operands{layer_operands(s.cell, n, e), {output}};
  if (pass == Pass::forward) {
    if (training) operands.outputs.push_back(kept);
    return operands;
  }
  for (const Operand& o : {output, kept, plain_operand("output gradient", e.gradient, n.output)})
    operands.inputs.push_back(o);
  operands.outputs = gradient_operands(s.cell, n, e);
  return operands;
}

namespace {

[[noreturn]] void refuse(const Operand& o) { throw std::logic_error(fmt::format("{} is not packed", o.name)); }

bool holds(const Operand& o, core::Element e) { return o.format && *o.format == number_format(e); }

class ConversionOp final : public DeviceOp {
 public:
  ConversionOp(const Operand& from, const Operand& to, Conversion convert)
      : DeviceOp({{from}, {to}}, {.flops = 0, .bytes = static_cast<double>(from.stored_bytes + to.stored_bytes)}),
        convert_(std::move(convert)) {}
  std::string implementation() const override { return "own conversion"; }

 protected:
  void launch(Inputs in, Outputs out, cudaStream_t stream) override { convert_(in[0], out[0], stream); }

 private:
  Conversion convert_;
};

}  // namespace

DeviceOp::DeviceOp(OperandLists operands, runtime::Cost cost) : operands_(std::move(operands)), cost_(cost) {}

std::unique_ptr<Op> DeviceOp::packing(std::size_t input) const { refuse(inputs()[input]); }
std::unique_ptr<Op> DeviceOp::unpacking(std::size_t output) const { refuse(outputs()[output]); }

std::unique_ptr<Op> DeviceOp::packing_from_fp32(std::size_t input) const {
  const Operand& o = inputs()[input];
  if (holds(o, core::Element::bf16))
    return make_conversion(as_plain_floats(o), o, [](const auto& from, const auto& to, cudaStream_t stream) {
      to_bf16(device_values<float>(from), device_values<Bf16>(to), stream);
    });
  if (holds(o, core::Element::f16))
    return make_conversion(as_plain_floats(o), o, [](const auto& from, const auto& to, cudaStream_t stream) {
      to_fp16(device_values<float>(from), device_values<Fp16>(to), stream);
    });
  refuse(o);
}

std::unique_ptr<Op> DeviceOp::unpacking_to_fp32(std::size_t output) const {
  const Operand& o = outputs()[output];
  if (holds(o, core::Element::bf16))
    return make_conversion(o, as_plain_floats(o), [](const auto& from, const auto& to, cudaStream_t stream) {
      to_floats(device_values<Bf16>(from), device_values<float>(to), stream);
    });
  if (holds(o, core::Element::f16))
    return make_conversion(o, as_plain_floats(o), [](const auto& from, const auto& to, cudaStream_t stream) {
      to_floats(device_values<Fp16>(from), device_values<float>(to), stream);
    });
  refuse(o);
}

void DeviceOp::execute(Inputs in, Outputs out) {
  require_lengths(inputs(), in);
  require_lengths(outputs(), out);
  launch(in, out, gpu::stream());
}

void DeviceOp::bind(Inputs in, Outputs out) {
  require_lengths(inputs(), in);
  require_lengths(outputs(), out);
  bind_buffers(in, out);
}

std::unique_ptr<Op> make_conversion(const Operand& from, const Operand& to, Conversion convert) {
  return std::make_unique<ConversionOp>(from, to, std::move(convert));
}

Operand as_plain_floats(const Operand& o) { return plain_operand(o.name, core::Element::f32, o.elements); }

}  // namespace gradmeter::kernels::cuda
