#include "model/layers/plain_op.hpp"

#include <cstring>

namespace gradmeter::model {
namespace {

void zero(runtime::Queue& queue, std::string_view label, const runtime::Buffer& b) {
  queue.submit(label, {.flops = 0, .bytes = static_cast<double>(b.bytes())},
               [b] { std::memset(b.host(), 0, b.bytes()); });
}

bool is_plain_floats(const kernels::Operand& o) {
  return !o.format || (!o.packed && *o.format == kernels::number_format(core::Element::f32));
}

}  // namespace

PlainOp::PlainOp(const kernels::Problem& p, runtime::Device& device, const kernels::OpOptions& options)
    : op_(kernels::prepare(p, options, device)) {
  const auto memory = [&](const kernels::Operand& o) { return device.allocate(core::Element::i8, o.stored_bytes); };
  for (std::size_t i = 0; i < op_->inputs().size(); ++i) {
    const kernels::Operand& o = op_->inputs()[i];
    inputs_.push_back(is_plain_floats(o) ? Packed{} : Packed{op_->packing_floats(i), memory(o)});
  }
  for (std::size_t i = 0; i < op_->outputs().size(); ++i) {
    const kernels::Operand& o = op_->outputs()[i];
    outputs_.push_back(is_plain_floats(o) ? Packed{} : Packed{op_->unpacking_floats(i), memory(o)});
  }
}

void PlainOp::keep(runtime::Queue& queue, std::string_view packing, std::size_t input,
                   const runtime::ConstBuffer& plain) {
  Packed& p = inputs_.at(input);
  if (p.op) p.op->run(queue, packing, {plain}, {p.stored.buffer});
  p.kept = p.op ? runtime::ConstBuffer(p.stored.buffer) : plain;
}

void PlainOp::run(runtime::Queue& queue, std::string_view label, std::string_view packing,
                  kernels::BufferList<runtime::ConstBuffer> inputs, kernels::BufferList<runtime::Buffer> outputs) {
  read_.assign(inputs.begin(), inputs.end());
  written_.assign(outputs.begin(), outputs.end());
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    if (inputs_[i].kept) {
      read_.at(i) = *inputs_[i].kept;
      continue;
    }
    if (!inputs_[i].op) continue;
    inputs_[i].op->run(queue, packing, {read_.at(i)}, {inputs_[i].stored.buffer});
    read_[i] = inputs_[i].stored.buffer;
  }
  for (std::size_t i = 0; i < outputs_.size(); ++i) {
    if (outputs_[i].op) written_.at(i) = outputs_[i].stored.buffer;
    if (op_->outputs()[i].added_to) zero(queue, packing, written_.at(i));
  }
  op_->run(queue, label, read_, written_);
  for (std::size_t i = 0; i < outputs_.size(); ++i)
    if (outputs_[i].op) outputs_[i].op->run(queue, packing, {outputs_[i].stored.buffer}, {outputs[i]});
}

}  // namespace gradmeter::model
