#include "model/mlp.hpp"

#include <stdexcept>

#include "kernels/pointwise.hpp"
#include "kernels/problems/shape.hpp"
#include "kernels/threads.hpp"

namespace gradmeter::model {

namespace {

using kernels::require_elements;

}  // namespace

Mlp::Mlp(std::vector<std::size_t> widths, std::string gemm_backend)
    : shard_(std::move(widths)), gemm_backend_(std::move(gemm_backend)) {}

std::size_t Mlp::workspace_bytes(std::size_t samples) const {
  std::size_t floats = 0;
  for (std::size_t layer = 0; layer < layers(); ++layer) floats += 2 * samples * width(layer + 1);
  return floats * sizeof(float);
}

Mlp::Workspace& Mlp::workspace_for(std::size_t samples) {
  const int threads = kernels::compute_threads();
  for (Workspace& workspace : workspaces_)
    if (workspace.samples == samples && workspace.threads == threads) return workspace;
  Workspace workspace{samples, threads, std::vector<Layer>(layers())};
  prepare_forward(workspace);
  return workspaces_.emplace_back(std::move(workspace));
}

void Mlp::prepare_forward(Workspace& workspace) const {
  for (std::size_t l = 0; l < layers(); ++l) {
    Layer& layer = workspace.layers[l];
    layer.output.resize(workspace.samples * width(l + 1));
    if (l + 1 == layers()) layer.delta.resize(layer.output.size());
    layer.products = products_of(shard_.layers()[l], workspace.samples);
    layer.forward = kernels::make_gemm(layer.products.forward, gemm_backend_);
  }
}

void Mlp::prepare_backward(Workspace& workspace) const {
  for (std::size_t l = 0; l < layers(); ++l) {
    Layer& layer = workspace.layers[l];
    layer.delta.resize(layer.output.size());
    layer.weight = kernels::make_gemm(layer.products.weight_gradient, gemm_backend_);
    if (l > 0) layer.input = kernels::make_gemm(layer.products.input_gradient, gemm_backend_);
  }
}

void Mlp::check(Buffers buffers, const Batch& batch) const {
  require_elements("mlp: parameters", buffers.parameters.count(), element_count());
  if (batch.samples() == 0) throw std::invalid_argument("mlp: the batch is empty");
  require_elements("mlp: inputs", batch.inputs.count(), batch.samples() * input_features());
}

Outcome Mlp::forward(Queue& queue, Buffers buffers, const Batch& batch) {
  check(buffers, batch);
  current_ = nullptr;
  Workspace& workspace = workspace_for(batch.samples());

  const std::span<float> parameters = buffers.parameters.values<float>();
  std::span<const float> input = batch.inputs.values<float>();
  for (std::size_t l = 0; l < layers(); ++l) {
    Layer& layer = workspace.layers[l];
    queue.submit("forward.gemm", cost(layer.products.forward), [&] {
      layer.forward->run(input, span_of(parameters, weight(l)), span_of(parameters, bias(l)), layer.output);
    });
    input = layer.output;
  }

  // The loss's gradient costs little more than its exponentials, so it is computed here and not again in backward.
  Layer& top = workspace.layers.back();
  const double logits = double(top.output.size());
  kernels::CrossEntropy loss{};
  queue.submit("forward.softmax", {.flops = 6 * logits, .bytes = 8 * logits}, [&] {
    loss = kernels::softmax_cross_entropy(top.output, batch.labels.values<std::int32_t>(), classes(),
                                          1.0F / float(batch.samples()), top.delta);
  });
  current_ = &workspace;
  return {.loss_sum = loss.loss_sum, .correct = loss.correct, .samples = batch.samples()};
}

void Mlp::backward(Queue& queue, Buffers buffers, const Batch& batch, const Ready& ready) {
  check(buffers, batch);
  require_elements("mlp: gradients", buffers.gradients.count(), element_count());
  if (current_ == nullptr || current_->samples != batch.samples() || current_->threads != kernels::compute_threads())
    throw std::logic_error("mlp: backward without a forward of the same batch size and threads right before it");
  Workspace& workspace = *current_;
  if (workspace.layers.front().weight == nullptr) prepare_backward(workspace);
  const std::span<float> parameters = buffers.parameters.values<float>(), gradients = buffers.gradients.values<float>();
  const std::span<const float> inputs = batch.inputs.values<float>();

  for (std::size_t l = layers(); l-- > 0;) {
    Layer& layer = workspace.layers[l];
    weight_gradients(queue, gradients, layer, l, l == 0 ? inputs : workspace.layers[l - 1].output, ready);
    if (l == 0) break;
    Layer& below = workspace.layers[l - 1];
    queue.submit("backward.gemm", cost(layer.products.input_gradient),
                 [&] { layer.input->run(layer.delta, span_of(parameters, weight(l)), {}, below.delta); });
    queue.submit("backward.relu", {.flops = 0, .bytes = 12.0 * double(below.delta.size())},
                 [&] { kernels::relu_backward(below.output, below.delta); });
  }
}

// Before the gradient by the layer's input, so that the exchange of this one starts meanwhile.
void Mlp::weight_gradients(Queue& queue, std::span<float> gradients, Layer& layer, std::size_t l,
                           std::span<const float> input, const Ready& ready) const {
  const std::size_t tensor = 2 * (layers() - 1 - l);
  queue.submit("backward.gemm", cost(layer.products.weight_gradient),
               [&] { layer.weight->run(layer.delta, input, {}, span_of(gradients, weight(l))); });
  shard_.zero_padding(gradients, tensor);
  ready(tensor);
  const double elements = double(layer.delta.size());
  queue.submit("backward.bias", {.flops = elements, .bytes = 4 * elements},
               [&] { kernels::column_sums(layer.delta, width(l + 1), span_of(gradients, bias(l))); });
  shard_.zero_padding(gradients, tensor + 1);
  ready(tensor + 1);
}

}  // namespace gradmeter::model
