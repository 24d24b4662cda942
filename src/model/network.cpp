#include "model/network.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "core/format.hpp"
#include "core/random.hpp"
#include "kernels/aligned.hpp"
#include "kernels/problems/shape.hpp"
#include "kernels/threads.hpp"
#include "model/passes.hpp"

namespace gradmeter::model {
Network::Network(std::string name, std::vector<std::unique_ptr<Layer>> layers)
    : name_(std::move(name)), layers_(std::move(layers)), first_tensor_(layers_.size()) {
  if (layers_.empty()) throw core::UsageError(fmt::format("model '{}' has no layers", name_));
  for (std::size_t l = 1; l < layers_.size(); ++l) {
    const std::size_t given = elements(layers_[l - 1]->output()), taken = elements(layers_[l]->input());
    if (given != taken)
      throw core::UsageError(fmt::format("model '{}': layer {} ({}) takes {} numbers a sample, but {} gives {}", name_,
                                         l + 1, layers_[l]->name(), taken, layers_[l - 1]->name(), given));
  }
  if (std::holds_alternative<ImageShape>(layers_.back()->output()))
    throw core::UsageError(fmt::format("model '{}' does not end in a layer with one number for each class", name_));
  for (std::size_t l = layers_.size(); l-- > 0;) add_tensors(l);
}

std::size_t Network::labels() const {
  const SampleShape shape = layers_.back()->output();
  const auto* const tokens = std::get_if<TokenShape>(&shape);
  return tokens ? tokens->steps : 1;
}

void Network::add_tensors(std::size_t layer) {
  first_tensor_[layer] = tensors_.size();
  for (const LayerTensor& t : layers_[layer]->tensors()) {
    tensors_.push_back({.name = fmt::format("layer{}.{}", layer + 1, t.name),
                        .shape = t.shape,
                        .offset = element_count_,
                        .count = elements(t)});
    element_count_ += kernels::whole_lines(elements(t));
  }
}

std::vector<RepeatedProblem> Network::problems(std::size_t samples, bool backward) const {
  std::vector<RepeatedProblem> all;
  for (const auto& l : layers_) {
    const LayerProblems p = l->problems(samples, l != layers_.front());
    for (const kernels::Problem& f : p.forward) all.push_back({f});
    if (!backward) continue;
    for (const kernels::Problem& b : p.backward) all.push_back({b});
  }
  return all;
}

double Network::step_flops(std::size_t samples) const {
  double flops = 0;
  for (const RepeatedProblem& p : problems(samples, true)) flops += kernels::run_flops(p.problem);
  return flops;
}

std::size_t Network::workspace_bytes(std::size_t samples) const {
  std::size_t floats = 0;
  for (const auto& l : layers_) floats += 2 * samples * elements(l->output());
  return floats * sizeof(float);
}

void Network::initialise(Queue& queue, Buffers buffers, std::uint64_t seed) const {
  kernels::require_elements("network: parameters", buffers.parameters.count(), element_count_);
  kernels::require_elements("network: gradients", buffers.gradients.count(), element_count_);
  queue.at_once([&] {
    std::ranges::fill(buffers.parameters.values<float>(), 0.0F);
    std::ranges::fill(buffers.gradients.values<float>(), 0.0F);
    for (std::size_t l = 0; l < layers_.size(); ++l) {
      const auto parameters = parts(buffers.parameters, l);
      for (std::size_t t = 0; t < parameters.size(); ++t) {
        const core::Random random(seed, l + (std::uint64_t{t} << 32U));
        const double bound = layers_[l]->tensors()[t].bound;
        const std::span<float> values = parameters[t].values<float>();
        for (std::size_t i = 0; i < values.size(); ++i)
          values[i] = static_cast<float>(bound * (2 * random.uniform(i) - 1));
      }
    }
  });
}

Network::Workspace& Network::workspace_for(Queue& queue, std::size_t samples) {
  const int threads = kernels::compute_threads();
  for (Workspace& w : workspaces_)
    if (w.samples == samples && w.threads == threads && w.device == &queue.device()) return w;
  Workspace w{.samples = samples, .threads = threads, .device = &queue.device()};
  for (const auto& l : layers_) {
    w.layers.push_back(l->prepare(samples, l != layers_.front(), *w.device));
    const std::size_t count = samples * elements(l->output());
    w.outputs.push_back({.values = w.device->allocate(core::Element::f32, count),
                         .gradient = w.device->allocate(core::Element::f32, count)});
  }
  return workspaces_.emplace_back(std::move(w));
}

template <class AnyBuffer>
std::vector<AnyBuffer> Network::parts(const AnyBuffer& flat, std::size_t layer) const {
  std::vector<AnyBuffer> all;
  for (std::size_t t = 0; t < layers_[layer]->tensors().size(); ++t) {
    const Tensor& place = tensors_[first_tensor_[layer] + t];
    all.push_back(flat.part(place.offset, place.count));
  }
  return all;
}

void Network::check(Buffers buffers, const Batch& batch) const {
  kernels::require_elements("network: parameters", buffers.parameters.count(), element_count_);
  if (batch.samples() == 0) throw std::invalid_argument("network: the batch is empty");
  kernels::require_elements("network: inputs", batch.inputs.count(), batch.samples() * input_features());
  kernels::require_elements("network: labels of a sample", batch.labels_each, labels());
}

void Network::run_forward(Queue& queue, Buffers buffers, const Batch& batch, const OutcomePlace& outcome) {
  check(buffers, batch);
  Workspace& w = workspace_for(queue, batch.samples());
  forward_layers(queue, w, buffers, batch);
  submit_loss(queue, w.outputs.back().values.buffer, batch.labels, runtime::no_floats, outcome);
}

void Network::run_pass(Queue& queue, Buffers buffers, const Batch& batch, const Ready& ready,
                       const OutcomePlace& outcome) {
  check(buffers, batch);
  kernels::require_elements("network: gradients", buffers.gradients.count(), element_count_);
  Workspace& w = workspace_for(queue, batch.samples());
  forward_layers(queue, w, buffers, batch);
  const Activation& top = w.outputs.back();
  submit_loss(queue, top.values.buffer, batch.labels, top.gradient.buffer, outcome);
  zero_gaps(queue, buffers.gradients);
  backward_layers(queue, w, buffers, batch, ready);
}

void Network::forward_layers(Queue& queue, Workspace& w, Buffers buffers, const Batch& batch) const {
  ConstBuffer input = batch.inputs;
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    const Buffer output = w.outputs[l].values.buffer;
    w.layers[l]->forward(
        {.queue = queue, .parameters = parts(ConstBuffer(buffers.parameters), l), .input = input, .output = output});
    input = output;
  }
}

void Network::zero_gaps(Queue& queue, const Buffer& gradients) const {
  const double bytes = static_cast<double>(tensors_.size()) * kernels::cache_line_bytes;
  queue.submit("backward.gaps", {.flops = 0, .bytes = bytes}, [this, gradients] {
    const std::span<float> g = gradients.values<float>();
    for (const Tensor& t : tensors_)
      std::ranges::fill(g.subspan(t.offset + t.count, kernels::whole_lines(t.count) - t.count), 0.0F);
  });
}

void Network::backward_layers(Queue& queue, Workspace& w, Buffers buffers, const Batch& batch,
                              const Ready& ready) const {
  for (std::size_t l = layers_.size(); l-- > 0;) {
    const ConstBuffer input = l == 0 ? batch.inputs : ConstBuffer(w.outputs[l - 1].values.buffer);
    w.layers[l]->backward({.queue = queue,
                           .parameters = parts(ConstBuffer(buffers.parameters), l),
                           .input = input,
                           .output = w.outputs[l].values.buffer,
                           .output_gradient = w.outputs[l].gradient.buffer,
                           .input_gradient = l == 0 ? runtime::no_floats : w.outputs[l - 1].gradient.buffer,
                           .gradients = parts(buffers.gradients, l),
                           .ready = [&](std::size_t t) { ready(first_tensor_[l] + t); }});
  }
}

}  // namespace gradmeter::model
