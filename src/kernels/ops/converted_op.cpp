#include "kernels/ops/converted_op.hpp"

#include "kernels/aligned.hpp"

namespace gradmeter::kernels {
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

Problem in_fp32(Problem p) {
  p.precision = Precision::fp32;
  return p;
}

ConvertedOp::ConvertedOp(std::unique_ptr<Op> in_fp32, std::vector<ConvertedOperand> inputs,
                         std::vector<ConvertedOperand> outputs, runtime::Cost cost, std::string implementation)
    : HostOp(outer_operands(inputs), outer_operands(outputs), cost),
      inner_(std::move(in_fp32)),
      implementation_(std::move(implementation)),
      read_(copies_of(inputs, inner_->inputs())),
      written_(copies_of(outputs, inner_->outputs())),
      inner_inputs_(inputs.size(), runtime::no_floats),
      inner_outputs_(outputs.size(), runtime::no_floats) {}

std::vector<ConvertedOp::Copy> ConvertedOp::copies_of(std::span<const ConvertedOperand> operands,
                                                      std::span<const Operand> in_fp32) {
  std::vector<Copy> copies;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const Copy& c = copies.emplace_back(Copy{operands[i].conversion, floats_, in_fp32[i].stored_bytes / sizeof(float)});
    if (c.conversion) floats_ += whole_lines(c.count);
  }
  return copies;
}

/// As the operation in fp32 has it, in as many bytes an element as lie in memory.
std::optional<std::size_t> ConvertedOp::stored_at(const Operand& o, std::size_t element) const {
  if (!o.packed) return HostOp::stored_at(o, element);
  const bool is_input = &o >= inputs().data() && &o < inputs().data() + inputs().size();
  const auto i = static_cast<std::size_t>(&o - (is_input ? inputs() : outputs()).data());
  const Conversion* const conversion = is_input ? read_[i].conversion : written_[i].conversion;
  const auto at = inner_->stored_at((is_input ? inner_->inputs() : inner_->outputs())[i], element);
  if (!at || !conversion) return at;
  return *at / sizeof(float) * core::size_of(conversion->element);
}

void ConvertedOp::list_operands(std::span<float> workspace, Reads in, Writes out) {
  for (std::size_t i = 0; i < in.size(); ++i) {
    const Copy& c = read_[i];
    inner_inputs_[i] = c.conversion
                           ? runtime::ConstBuffer(workspace.subspan(c.first, c.count))
                           : runtime::ConstBuffer(core::Element::i8, std::span(in[i], inputs()[i].stored_bytes));
  }
  for (std::size_t i = 0; i < out.size(); ++i) {
    const Copy& c = written_[i];
    inner_outputs_[i] = c.conversion ? runtime::Buffer(workspace.subspan(c.first, c.count))
                                     : runtime::Buffer(core::Element::i8, std::span(out[i], outputs()[i].stored_bytes));
  }
}

void ConvertedOp::bind_addresses(Reads in, Writes out) {
  list_operands(thread_workspace(floats_), in, out);
  inner_->bind(inner_inputs_, inner_outputs_);
}

void ConvertedOp::compute(Reads in, Writes out) {
  const std::span<float> workspace = thread_workspace(floats_);
  list_operands(workspace, in, out);
  const auto copy = [&](const Copy& c) { return workspace.subspan(c.first, c.count); };
  for (std::size_t i = 0; i < in.size(); ++i)
    if (read_[i].conversion) read_[i].conversion->to_floats({in[i], inputs()[i].stored_bytes}, copy(read_[i]));
  for (std::size_t i = 0; i < out.size(); ++i)
    if (written_[i].conversion && outputs()[i].added_to)
      written_[i].conversion->to_floats({out[i], outputs()[i].stored_bytes}, copy(written_[i]));
  inner_->execute(inner_inputs_, inner_outputs_);
  for (std::size_t i = 0; i < out.size(); ++i)
    if (written_[i].conversion)
      written_[i].conversion->from_floats(copy(written_[i]), {out[i], outputs()[i].stored_bytes});
}

}  // namespace gradmeter::kernels
