#include "kernels/cuda/operands.hpp"

#include "kernels/reference/conv.hpp"
#include "kernels/reference/rnn.hpp"

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

/// `memory` is the third of `all`, which an lstm alone has.
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

Operand plain_operand(std::string_view name, core::Element element, std::size_t elements, bool added_to) {
  return {.name = name,
          .format = &number_format(element),
          .elements = elements,
          .stored_bytes = elements * core::size_of(element),
          .added_to = added_to};
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
  const Operand kept{.name = "kept", .format = nullptr, .stored_bytes = kept_bytes};  // its own backend alone reads it
  OperandLists all{layer_operands(s.cell, n, e), {output}};
  if (pass == Pass::forward) {
    if (training) all.outputs.push_back(kept);
    return all;
  }
  for (const Operand& o : {output, kept, plain_operand("output gradient", e.gradient, n.output)})
    all.inputs.push_back(o);
  all.outputs = gradient_operands(s.cell, n, e);
  return all;
}

}  // namespace gradmeter::kernels::cuda
