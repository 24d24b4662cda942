#include "model/inference.hpp"

#include "kernels/op.hpp"
#include "kernels/problems/problem.hpp"

namespace gradmeter::model {

std::string inference_refusal(const Network& n, kernels::Precision p) {
  for (const auto& l : n.layers())
    if (auto why = l->inference_refusal(p); !why.empty()) return why;
  return {};
}

void calibrate(Network& n, Queue& queue, Buffers buffers, const Batch& batch, std::vector<ActivationRange>& ranges) {
  const std::vector<ConstBuffer> outputs = n.layer_outputs(queue, buffers, batch);
  ranges.resize(outputs.size());
  queue.at_once([&] {
    for (std::size_t l = 0; l < outputs.size(); ++l)
      ranges[l].add((l == 0 ? batch.inputs : outputs[l - 1]).values<float>());
  });
}

Inference::Inference(const Network& n, const ConstBuffer& parameters, const InferenceOptions& o, Queue& queue) {
  double most = -1;
  for (std::size_t l = 0; l < n.layers().size(); ++l) {
    const Layer& layer = *n.layers()[l];
    InferenceRequest r{.samples = o.samples, .precision = o.precision, .parameters = n.layer_parameters(parameters, l)};
    if (!o.ranges.empty()) r.input = o.ranges.at(l);
    layers_.push_back(layer.prepare_inference(r, queue));
    outputs_.push_back(queue.device().allocate(core::Element::f32, o.samples * elements(layer.output())));
    double flops = 0;
    for (const kernels::Problem& p : layer.problems(o.samples, false).forward) flops += kernels::run_flops(p);
    const std::string implementation = layers_.back()->implementation();
    if (implementation.starts_with(kernels::left_to_host) && left_to_host_.empty()) left_to_host_ = implementation;
    if (flops > most) implementation_ = implementation, most = flops;
  }
}

ConstBuffer Inference::run(Queue& queue, const ConstBuffer& inputs) {
  ConstBuffer input = inputs;
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    layers_[l]->forward(queue, input, outputs_[l].buffer);
    input = outputs_[l].buffer;
  }
  return input;
}

}  // namespace gradmeter::model
