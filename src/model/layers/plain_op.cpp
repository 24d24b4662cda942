#include "model/layers/plain_op.hpp"

#include <cstring>

#include "kernels/loops.hpp"

namespace gradmeter::model {
namespace {

void zero(runtime::Queue& queue, std::string_view label, const runtime::Buffer& b) {
  queue.submit(label, {.flops = 0, .bytes = static_cast<double>(b.bytes())}, [b] { kernels::loops().clear(b); });
}

bool is_plain_floats(const kernels::Operand& o) {
  return !o.format || (!o.packed && *o.format == kernels::number_format(core::Element::f32));
}

}  // namespace

PlainOp::PlainOp(const kernels::Problem& p, runtime::Device& device, const kernels::OpOptions& options)
    : op_(kernels::prepare(p, options, device)), cost_(op_->cost()) {
  const auto memory = [&](const kernels::Operand& o) { return device.allocate(core::Element::i8, o.stored_bytes); };
  for (std::size_t i = 0; i < op_->inputs().size(); ++i) {
    const kernels::Operand& o = op_->inputs()[i];
    if (!is_plain_floats(o)) packing().inputs[i] = {op_->packing_floats(i), memory(o)};
  }
  for (std::size_t i = 0; i < op_->outputs().size(); ++i) {
    const kernels::Operand& o = op_->outputs()[i];
    if (!is_plain_floats(o)) packing().outputs[i] = {op_->unpacking_floats(i), memory(o)};
    if (o.added_to) packing();
  }
}

PlainOp::Packing& PlainOp::packing() {
  if (!packing_) {
    packing_ = std::make_unique<Packing>();
    packing_->inputs.resize(op_->inputs().size());
    packing_->outputs.resize(op_->outputs().size());
  }
  return *packing_;
}

void PlainOp::keep(runtime::Queue& queue, std::string_view label, std::size_t input,
                   const runtime::ConstBuffer& plain) {
  Packed& p = packing().inputs.at(input);
  if (p.op) p.op->run(queue, label, {plain}, {p.stored.buffer});
  p.kept = p.op ? runtime::ConstBuffer(p.stored.buffer) : plain;
}

void PlainOp::run(runtime::Queue& queue, std::string_view label, std::string_view pack_label,
                  kernels::BufferList<runtime::ConstBuffer> inputs, kernels::BufferList<runtime::Buffer> outputs) {
  if (packing_) return run_packed(queue, label, pack_label, inputs, outputs);
  op_->run(queue, label, cost_, inputs, outputs);
}

void PlainOp::run_packed(runtime::Queue& queue, std::string_view label, std::string_view pack_label,
                         kernels::BufferList<runtime::ConstBuffer> inputs,
                         kernels::BufferList<runtime::Buffer> outputs) {
  auto& [packed_inputs, packed_outputs, read, written] = *packing_;
  read.assign(inputs.begin(), inputs.end());
  written.assign(outputs.begin(), outputs.end());
  for (std::size_t i = 0; i < packed_inputs.size(); ++i) {
    const Packed& p = packed_inputs[i];
    if (p.kept) {
      read.at(i) = *p.kept;
    } else if (p.op) {
      p.op->run(queue, pack_label, {read.at(i)}, {p.stored.buffer});
      read[i] = p.stored.buffer;
    }
  }
  for (std::size_t i = 0; i < packed_outputs.size(); ++i) {
    if (packed_outputs[i].op) written.at(i) = packed_outputs[i].stored.buffer;
    if (op_->outputs()[i].added_to) zero(queue, pack_label, written.at(i));
  }
  op_->run(queue, label, cost_, read, written);
  for (std::size_t i = 0; i < packed_outputs.size(); ++i) {
    const Packed& p = packed_outputs[i];
    if (p.op) p.op->run(queue, pack_label, {p.stored.buffer}, {outputs[i]});
  }
}

}  // namespace gradmeter::model
