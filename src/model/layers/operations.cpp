// SPDX-License-Identifier: Apache-2.0
#include "model/layers/operations.hpp"

#include <cstring>

#include "kernels/loops.hpp"
#include "kernels/number_format.hpp"

namespace gradmeter::model {
namespace {

bool is_plain_floats(const kernels::Operand& o) {
  return !o.format || (!o.packed && *o.format == kernels::number_format(core::Element::f32));
}

}  // namespace

PlainOp::PlainOp(const kernels::Problem& p, runtime::Device& device, const kernels::OpOptions& options)
    : op_(kernels::prepare(p, options, device)), cost_(op_->cost()) {
  const auto memory = [&](const kernels::Operand& o) { return device.allocate(core::Element::i8, o.stored_bytes); };
  for (std::size_t i = 0; i < op_->inputs().size(); ++i) {
    const kernels::Operand& o = op_->inputs()[i];
    if (!is_plain_floats(o)) packing().inputs[i] = {op_->packing_from_fp32(i), memory(o)};
  }
  for (std::size_t i = 0; i < op_->outputs().size(); ++i) {
    const kernels::Operand& o = op_->outputs()[i];
    if (!is_plain_floats(o)) packing().outputs[i] = {op_->unpacking_to_fp32(i), memory(o)};
    if (o.is_added_to) packing();
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
    if (op_->outputs()[i].is_added_to) submit_clear(queue, pack_label, written.at(i));
  }
  op_->run(queue, label, cost_, read, written);
  for (std::size_t i = 0; i < packed_outputs.size(); ++i) {
    const Packed& p = packed_outputs[i];
    if (p.op) p.op->run(queue, pack_label, {p.stored.buffer}, {outputs[i]});
  }
}

namespace {

/// The problem as the operation runs it. Products of whole numbers leave bias and activation to a later pass over the
/// outputs.
kernels::Problem without_bias_if_exact(const kernels::Problem& problem, const runtime::Device& device) {
  kernels::Problem p = with_packed_weights(problem, device);
  auto* const gemm = std::get_if<kernels::GemmShape>(&p.shape);
  if (!gemm || !kernels::info(p.precision).integer) return p;
  gemm->bias = false;
  gemm->activation = kernels::Activation::none;
  return p;
}

class PreparedInferenceProduct final : public InferenceLayer {
 public:
  PreparedInferenceProduct(const InferenceProduct& p, const InferenceRequest& r, runtime::Queue& queue)
      : op_(without_bias_if_exact(p.problem, queue.device()), queue.device(),
            quantized(r.precision, r.input, std::span(r.parameters).first(1), p.weights_per_output,
                      r.parameters.at(1).count(), queue)),
        is_relu_(p.is_relu) {
    op_.keep(queue, "inference.pack", 1, r.parameters.at(0));
    if (op_.op().inputs().size() > 2) {
      op_.keep(queue, "inference.pack", 2, r.parameters.at(1));
    } else {
      find_offsets(r.parameters.at(1), p.places_per_output, queue);
    }
  }

  void forward(runtime::Queue& queue, const runtime::ConstBuffer& input, const runtime::Buffer& output) override {
    // Only the first operand is read from the list: the others have been kept.
    op_.run(queue, "inference.product", "inference.pack",
            std::vector<runtime::ConstBuffer>(op_.op().inputs().size(), input), {output});
    if (offsets_.buffer.count() == 0) return;
    const double elements = static_cast<double>(output.count());
    queue.submit("inference.bias", {.flops = elements, .bytes = 8 * elements},
                 [output, offsets = offsets_.buffer, is_relu = is_relu_] {
                   kernels::loops().add_row(output, offsets, is_relu, output);
                 });
  }
  std::string implementation() const override { return op_.op().implementation(); }

 private:
  /// Computes the offsets that are added to a product: the bias, less the result of the product for an input of zeros,
  /// which is not 0 where the input has a zero point.
  void find_offsets(const runtime::ConstBuffer& bias, std::size_t places, runtime::Queue& queue) {
    const auto floats = [&](std::size_t n) { return queue.device().allocate(core::Element::f32, n); };
    const auto zeros = floats(op_.op().inputs()[0].elements), outputs = floats(op_.op().outputs()[0].elements);
    forward(queue, zeros.buffer, outputs.buffer);
    offsets_ = floats(bias.count() * places);
    queue.run_and_wait([&] {
      const auto of_zeros = outputs.buffer.values<float>();
      const auto to = offsets_.buffer.values<float>();
      for (std::size_t i = 0; i < to.size(); ++i) to[i] = bias.values<float>()[i / places] - of_zeros[i];
    });
  }

  PlainOp op_;
  bool is_relu_;
  runtime::OwnedBuffer offsets_;  ///< the offsets of one sample; empty: the operation itself adds the bias
};

}  // namespace

kernels::Problem with_packed_weights(kernels::Problem p, const runtime::Device& device) {
  auto* const gemm = std::get_if<kernels::GemmShape>(&p.shape);
  if (!gemm) return p;
  gemm->packed = true;
  if (!kernels::op_refusal(p, device).empty()) gemm->packed = false;
  return p;
}

kernels::OpOptions quantized(kernels::Precision precision, const ActivationRange& input,
                             std::span<const ConstBuffer> weights, std::size_t weights_per_output, std::size_t outputs,
                             Queue& queue) {
  if (!kernels::info(precision).integer) return {};
  kernels::Quantization q = kernels::quantize_range(input.least, input.greatest);
  q.weight_quanta.resize(outputs);
  queue.run_and_wait([&] {
    for (const ConstBuffer& w : weights)
      kernels::raise_to_largest(w.values<float>(), weights_per_output, q.weight_quanta);
    kernels::to_weight_quanta(q.weight_quanta);
  });
  return {.quantization = std::move(q)};
}

std::unique_ptr<InferenceLayer> make_inference_product(const InferenceProduct& p, const InferenceRequest& r,
                                                       runtime::Queue& queue) {
  return std::make_unique<PreparedInferenceProduct>(p, r, queue);
}

void submit_loss(Queue& queue, const ConstBuffer& logits, const Batch& batch, const Buffer& delta,
                 const OutcomePlace& outcome, kernels::Precision precision) {
  const double elements = static_cast<double>(logits.count());
  queue.submit("forward.softmax", {.flops = 6 * elements, .bytes = 8 * elements}, [=] {
    const auto add_outcome = [outcome, labels = batch.labels.count()](const kernels::CrossEntropy& loss) {
      if (!outcome) return;
      outcome->loss_sum += loss.loss_sum;
      outcome->correct += loss.correct;
      outcome->labels += labels;
    };
    const kernels::Loops& loops = kernels::loops();
    const kernels::PrecisionInfo& p = kernels::info(precision);
    if (!p.logarithmic_sums) return loops.cross_entropy(logits, batch.labels, batch.loss_scale, delta, add_outcome);
    loops.lns_cross_entropy(p.logarithm_bits, logits, batch.labels, batch.loss_scale, delta, add_outcome);
  });
}

void submit_relu_backward(Queue& queue, const ConstBuffer& output, const Buffer& delta) {
  queue.submit("backward.relu", {.flops = 0, .bytes = 12.0 * static_cast<double>(delta.count())},
               [=] { kernels::loops().relu_backward(output, delta); });
}

void fill_random(const Buffer& to, const kernels::NumberFormat& format, std::uint64_t seed, double scale) {
  kernels::fill_repeating({to.host(), to.bytes()}, format, seed, scale);
}

void submit_clear(Queue& queue, std::string_view label, const Buffer& b) {
  queue.submit(label, {.flops = 0, .bytes = static_cast<double>(b.bytes())}, [b] { kernels::loops().clear(b); });
}

void submit_sum(Queue& queue, std::string_view label, const ConstBuffer& a, const ConstBuffer& b, const Buffer& to) {
  const double elements = static_cast<double>(to.count());
  queue.submit(label, {.flops = elements, .bytes = 12 * elements}, [=] { kernels::loops().add(a, b, to); });
}

}  // namespace gradmeter::model
