// SPDX-License-Identifier: Apache-2.0
#include "model/network/inference.hpp"

#include <algorithm>
#include <map>
#include <string_view>

#include "core/format.hpp"
#include "kernels/op.hpp"
#include "kernels/problems/problem.hpp"
#include "model/layers/operations.hpp"

namespace gradmeter::model {

std::string inference_refusal(const Network& network, kernels::Precision precision) {
  if (kernels::info(precision).is_gpu_mode)
    return fmt::format("{} is a mode of products on a GPU, which `kernels` measures alone", kernels::name(precision));
  for (const auto& l : network.layers())
    if (auto why = l->inference_refusal(precision); !why.empty()) return why;
  return {};
}

void calibrate(Network& network, Queue& queue, Buffers buffers, const Batch& batch,
               std::vector<ActivationRange>& ranges) {
  const std::vector<ConstBuffer> outputs = network.layer_outputs(queue, buffers, batch);
  ranges.resize(outputs.size());
  queue.run_and_wait([&] {
    for (std::size_t l = 0; l < outputs.size(); ++l)
      ranges[l].add((l == 0 ? batch.inputs : outputs[l - 1]).values<float>());
  });
}

Inference::Inference(const Network& network, const ConstBuffer& parameters, std::size_t samples,
                     kernels::Precision precision, const std::vector<ActivationRange>& ranges, Queue& queue) {
  double most_flops = -1;
  for (std::size_t l = 0; l < network.layers().size(); ++l) {
    const Layer& layer = *network.layers()[l];
    InferenceRequest request{
        .samples = samples, .precision = precision, .parameters = network.layer_parameters(parameters, l)};
    if (!ranges.empty()) request.input = ranges.at(l);
    layers_.push_back(layer.prepare_inference(request, queue));
    outputs_.push_back(queue.device().allocate(core::Element::f32, samples * elements(layer.output())));
    double flops = 0;
    for (const kernels::Problem& p : layer.problems(samples, false).forward) flops += kernels::run_flops(p);
    const std::string implementation = layers_.back()->implementation();
    if (implementation.starts_with(kernels::left_to_host) && left_to_host_.empty()) left_to_host_ = implementation;
    if (flops > most_flops) implementation_ = implementation, most_flops = flops;
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

std::vector<RepeatedProblem> inference_problems(std::vector<RepeatedProblem> problems, kernels::Precision precision,
                                                const runtime::Device& device) {
  for (RepeatedProblem& r : problems) {
    r.problem.precision = precision;
    r.problem = with_packed_weights(r.problem, device);
  }
  return problems;
}

ForwardOperations::ForwardOperations(std::span<const RepeatedProblem> problems, Queue& queue, std::uint64_t seed) {
  double most_flops = -1;
  for (const RepeatedProblem& repeated : problems) {
    Operation& operation =
        operations_.emplace_back(Operation{.op = kernels::prepare(repeated.problem, {}, queue.device())});
    operation.inputs.resize(repeated.times);
    for (auto& inputs : operation.inputs) {
      inputs.emplace_back(runtime::empty_buffer);
      for (std::size_t i = 1; i < operation.op->inputs().size(); ++i) {
        memory_.push_back(weights(*operation.op, i, queue, seed + memory_.size()));
        inputs.emplace_back(memory_.back().buffer);
      }
    }
    const double flops = kernels::run_flops(repeated.problem) * static_cast<double>(repeated.times);
    const std::string implementation = operation.op->implementation();
    if (implementation.starts_with(kernels::left_to_host) && left_to_host_.empty()) left_to_host_ = implementation;
    if (flops > most_flops) implementation_ = implementation, most_flops = flops;
  }
  share_activations(queue, seed);
}

runtime::OwnedBuffer ForwardOperations::weights(const kernels::Op& op, std::size_t input, Queue& queue,
                                                std::uint64_t seed) {
  const kernels::Operand& operand = op.inputs()[input];
  const auto bytes = [&](std::size_t n) { return queue.device().allocate(core::Element::i8, n); };
  runtime::OwnedBuffer plain = bytes(operand.plain_bytes());
  queue.run_and_wait(
      [&] { fill_random(plain.buffer, *operand.format, seed, kernels::scale_for_random(*operand.format)); });
  if (!operand.packed) return plain;
  runtime::OwnedBuffer stored = bytes(operand.stored_bytes);
  const std::unique_ptr<kernels::Op> packing = op.packing(input);
  packing->run(queue, "inference.pack", {plain.buffer}, {stored.buffer});
  queue.synchronise();
  return stored;
}

/// All operations share one output buffer, and one input buffer for each format: random numbers in one layout are
/// random in any other.
void ForwardOperations::share_activations(Queue& queue, std::uint64_t seed) {
  std::map<std::string_view, std::size_t> largest;  // by format
  std::size_t output_bytes = 0;
  for (const Operation& o : operations_) {
    std::size_t& most = largest[o.op->inputs()[0].format->name];
    most = std::max(most, o.op->inputs()[0].stored_bytes);
    for (const auto& out : o.op->outputs()) output_bytes = std::max(output_bytes, out.stored_bytes);
  }
  const runtime::OwnedBuffer& out = memory_.emplace_back(queue.device().allocate(core::Element::i8, output_bytes));
  const Buffer outputs = out.buffer;
  std::map<std::string_view, Buffer> input_by_format;
  for (Operation& o : operations_) {
    const kernels::Operand& input = o.op->inputs()[0];
    auto found = input_by_format.find(input.format->name);
    if (found == input_by_format.end()) {
      memory_.push_back(queue.device().allocate(core::Element::i8, largest.at(input.format->name)));
      found = input_by_format.emplace(input.format->name, memory_.back().buffer).first;
      queue.run_and_wait([&] { fill_random(found->second, *input.format, seed); });
    }
    for (auto& inputs : o.inputs) inputs[0] = found->second.part(0, input.stored_bytes);
    for (const auto& operand : o.op->outputs()) o.outputs.push_back(outputs.part(0, operand.stored_bytes));
  }
}

void ForwardOperations::run(Queue& queue) {
  for (Operation& o : operations_)
    for (const auto& inputs : o.inputs) o.op->run(queue, "inference.operation", inputs, o.outputs);
}

std::size_t forward_operations_bytes(std::span<const RepeatedProblem> problems, std::size_t parameters) {
  double largest = 0;
  for (const RepeatedProblem& r : problems) largest = std::max(largest, kernels::held_bytes(r.problem));
  return static_cast<std::size_t>(largest) + parameters * sizeof(float);
}

}  // namespace gradmeter::model
