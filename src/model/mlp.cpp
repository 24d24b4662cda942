#include "model/mlp.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "core/error.hpp"
#include "core/format.hpp"
#include "core/random.hpp"
#include "kernels/pointwise.hpp"
#include "kernels/shape.hpp"
#include "kernels/threads.hpp"

namespace gradmeter::model {

namespace {

using kernels::Activation;
using kernels::GemmProblem;
using kernels::require_elements;
using kernels::Transpose;

constexpr std::size_t tensor_alignment = kernels::cache_line_bytes / sizeof(float);
constexpr std::size_t max_width = 65536, max_widths = 64;

std::size_t padded(std::size_t count) { return (count + tensor_alignment - 1) / tensor_alignment * tensor_alignment; }

template <class Float>
std::span<Float> part(std::span<Float> buffer, const Tensor& tensor) {
  return buffer.subspan(tensor.offset, tensor.count);
}

Cost cost(const GemmProblem& p) { return {.flops = p.flops(), .bytes = p.bytes()}; }

}  // namespace

Mlp::Mlp(std::vector<std::size_t> widths, std::string gemm_backend)
    : widths_(std::move(widths)),
      gemm_backend_(std::move(gemm_backend)),
      name_(fmt::format("mlp:{}", fmt::join(widths_, "-"))) {
  if (widths_.size() < 2 || widths_.size() > max_widths)
    throw core::UsageError(
        fmt::format("model '{}' has {} widths; an mlp takes 2 to {}", name_, widths_.size(), max_widths));
  for (const std::size_t width : widths_)
    if (width < 1 || width > max_width)
      throw core::UsageError(
          fmt::format("model '{}' has a layer of width {}; widths go from 1 to {}", name_, width, max_width));
  for (std::size_t layer = layers(); layer-- > 0;) {
    const std::size_t in = widths_[layer], out = widths_[layer + 1];
    for (const std::vector<std::size_t>& shape : {std::vector{out, in}, std::vector{out}}) {
      const std::size_t count = shape.size() == 2 ? out * in : out;
      tensors_.push_back(
          {fmt::format("layer{}.{}", layer + 1, shape.size() == 2 ? "weight" : "bias"), shape, element_count_, count});
      element_count_ += padded(count);
    }
  }
}

double Mlp::step_flops(std::size_t samples) const {
  double weights = 0;
  for (std::size_t layer = 0; layer < layers(); ++layer) weights += double(weight(layer).count);
  return 2.0 * double(samples) * (3.0 * weights - double(weight(0).count));
}

std::size_t Mlp::workspace_bytes(std::size_t samples) const {
  std::size_t floats = 0;
  for (std::size_t layer = 0; layer < layers(); ++layer) floats += 2 * samples * widths_[layer + 1];
  return floats * sizeof(float);
}

void Mlp::initialise(Buffers buffers, std::uint64_t seed) const {
  require_elements("mlp: parameters", buffers.parameters.count(), element_count_);
  require_elements("mlp: gradients", buffers.gradients.count(), element_count_);
  const std::span<float> parameters = buffers.parameters.values<float>();
  std::ranges::fill(parameters, 0.0F);
  std::ranges::fill(buffers.gradients.values<float>(), 0.0F);
  for (std::size_t layer = 0; layer < layers(); ++layer) {
    const core::Random random(seed, layer);
    const double bound = std::sqrt(6.0 / double(widths_[layer]));
    const std::span<float> w = part(parameters, weight(layer));
    for (std::size_t i = 0; i < w.size(); ++i) w[i] = static_cast<float>(bound * (2 * random.uniform(i) - 1));
  }
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
    const bool last = l + 1 == layers();
    layer.output.resize(workspace.samples * widths_[l + 1]);
    if (last) layer.delta.resize(layer.output.size());
    layer.forward_problem = {.m = workspace.samples,
                             .n = widths_[l + 1],
                             .k = widths_[l],
                             .transpose_b = Transpose::yes,
                             .bias = true,
                             .activation = last ? Activation::none : Activation::relu};
    layer.forward = kernels::make_gemm(layer.forward_problem, gemm_backend_);
  }
}

void Mlp::prepare_backward(Workspace& workspace) const {
  for (std::size_t l = 0; l < layers(); ++l) {
    Layer& layer = workspace.layers[l];
    const std::size_t in = widths_[l], out = widths_[l + 1];
    layer.delta.resize(layer.output.size());
    layer.weight_problem = {.m = out, .n = in, .k = workspace.samples, .transpose_a = Transpose::yes};
    layer.weight = kernels::make_gemm(layer.weight_problem, gemm_backend_);
    if (l == 0) continue;
    layer.input_problem = {.m = workspace.samples, .n = in, .k = out};
    layer.input = kernels::make_gemm(layer.input_problem, gemm_backend_);
  }
}

void Mlp::check(Buffers buffers, const Batch& batch) const {
  require_elements("mlp: parameters", buffers.parameters.count(), element_count_);
  if (batch.samples() == 0) throw std::invalid_argument("mlp: the batch is empty");
  require_elements("mlp: inputs", batch.inputs.count(), batch.samples() * input_features());
}

Outcome Mlp::forward(Computer& computer, Buffers buffers, const Batch& batch) {
  check(buffers, batch);
  current_ = nullptr;
  Workspace& workspace = workspace_for(batch.samples());

  const std::span<float> parameters = buffers.parameters.values<float>();
  std::span<const float> input = batch.inputs.values<float>();
  for (std::size_t l = 0; l < layers(); ++l) {
    Layer& layer = workspace.layers[l];
    computer.compute("forward.gemm", cost(layer.forward_problem), [&] {
      layer.forward->run(input, part(parameters, weight(l)), part(parameters, bias(l)), layer.output);
    });
    input = layer.output;
  }

  // The loss's gradient costs nothing beside its exponentials, so it is taken here once and not again in backward.
  Layer& top = workspace.layers.back();
  const double logits = double(top.output.size());
  kernels::CrossEntropy loss{};
  computer.compute("forward.softmax", {.flops = 6 * logits, .bytes = 8 * logits}, [&] {
    loss = kernels::softmax_cross_entropy(top.output, batch.labels.values<std::int32_t>(), classes(),
                                          1.0F / float(batch.samples()), top.delta);
  });
  current_ = &workspace;
  return {.loss_sum = loss.loss_sum, .correct = loss.correct, .samples = batch.samples()};
}

void Mlp::backward(Computer& computer, Buffers buffers, const Batch& batch, const Ready& ready) {
  check(buffers, batch);
  require_elements("mlp: gradients", buffers.gradients.count(), element_count_);
  if (current_ == nullptr || current_->samples != batch.samples() || current_->threads != kernels::compute_threads())
    throw std::logic_error("mlp: backward without a forward of the same batch size and threads right before it");
  Workspace& workspace = *current_;
  if (workspace.layers.front().weight == nullptr) prepare_backward(workspace);
  const std::span<float> parameters = buffers.parameters.values<float>(), gradients = buffers.gradients.values<float>();
  const std::span<const float> inputs = batch.inputs.values<float>();

  for (std::size_t l = layers(); l-- > 0;) {
    Layer& layer = workspace.layers[l];
    weight_gradients(computer, gradients, layer, l, l == 0 ? inputs : workspace.layers[l - 1].output, ready);
    if (l == 0) break;
    Layer& below = workspace.layers[l - 1];
    computer.compute("backward.gemm", cost(layer.input_problem),
                     [&] { layer.input->run(layer.delta, part(parameters, weight(l)), {}, below.delta); });
    computer.compute("backward.relu", {.flops = 0, .bytes = 12.0 * double(below.delta.size())},
                     [&] { kernels::relu_backward(below.output, below.delta); });
  }
}

// Before the gradient by the layer's input: so its exchange starts while that is computed.
void Mlp::weight_gradients(Computer& computer, std::span<float> gradients, Layer& layer, std::size_t l,
                           std::span<const float> input, const Ready& ready) const {
  const std::size_t tensor = 2 * (layers() - 1 - l);
  computer.compute("backward.gemm", cost(layer.weight_problem),
                   [&] { layer.weight->run(layer.delta, input, {}, part(gradients, weight(l))); });
  zero_padding(gradients, tensor);
  ready(tensor);
  const double elements = double(layer.delta.size());
  computer.compute("backward.bias", {.flops = elements, .bytes = 4 * elements},
                   [&] { kernels::column_sums(layer.delta, widths_[l + 1], part(gradients, bias(l))); });
  zero_padding(gradients, tensor + 1);
  ready(tensor + 1);
}

void Mlp::zero_padding(std::span<float> gradients, std::size_t tensor) const {
  const std::size_t end = tensors_[tensor].offset + tensors_[tensor].count;
  std::ranges::fill(gradients.subspan(end, padded(end) - end), 0.0F);
}

}  // namespace gradmeter::model
