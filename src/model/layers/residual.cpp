// SPDX-License-Identifier: Apache-2.0
#include "model/layers/layers.hpp"

#include <algorithm>
#include <optional>
#include <stdexcept>

#include "core/format.hpp"
#include "model/layers/operations.hpp"

namespace gradmeter::model {
namespace {

using runtime::Buffer;
using runtime::ConstBuffer;
using runtime::OwnedBuffer;

/// The buffer of an inner layer's output, or of the gradient with respect to that output. If tensor ranks sum it, it is
/// one of the shared buffers that each pass is given (LayerForward::shared); otherwise it is allocated here.
class InnerBuffer {
 public:
  /// shared: index among the shared buffers; empty: the tensor ranks do not sum this buffer.
  InnerBuffer(const std::optional<std::size_t>& shared, std::size_t count, runtime::Device& device)
      : shared_index_(shared), count_(count) {
    if (!shared_index_) own_ = device.allocate(core::Element::f32, count);
  }
  Buffer of(kernels::BufferList<Buffer> shared) const {
    return shared_index_ ? shared[*shared_index_].part(0, count_) : own_.buffer;
  }

 private:
  std::optional<std::size_t> shared_index_;
  std::size_t count_;
  OwnedBuffer own_;
};

struct InnerLayer {
  std::unique_ptr<PreparedLayer> layer;
  std::size_t first_tensor, tensors;  ///< tensors among those of the residual layer
  InnerBuffer output, gradient;       ///< the layer's output, and the gradient with respect to it
};

class PreparedResidual final : public PreparedLayer {
 public:
  explicit PreparedResidual(std::vector<InnerLayer> layers) : layers_(std::move(layers)) {}

  void forward(const LayerForward& f) override {
    ConstBuffer input = f.input;
    for (InnerLayer& l : layers_) {
      const Buffer output = l.output.of(f.shared);
      l.layer->forward({.queue = f.queue,
                        .parameters = f.parameters.subspan(l.first_tensor, l.tensors),
                        .input = input,
                        .output = output,
                        .peers = f.peers});
      input = output;
    }
    submit_sum(f.queue, "forward.residual", f.input, input, f.output);
  }

  void backward(const LayerBackward& b) override {
    // The last layer may overwrite the gradient that it is given, which the residual connection needs as well.
    b.queue.copy("backward.copy", b.output_gradient, layers_.back().gradient.of(b.shared));
    for (std::size_t i = layers_.size(); i-- > 0;) {
      InnerLayer& l = layers_[i];
      l.layer->backward({.queue = b.queue,
                         .parameters = b.parameters.subspan(l.first_tensor, l.tensors),
                         .input = i == 0 ? b.input : ConstBuffer(layers_[i - 1].output.of(b.shared)),
                         .output = l.output.of(b.shared),
                         .output_gradient = l.gradient.of(b.shared),
                         .input_gradient = i == 0 ? b.input_gradient : layers_[i - 1].gradient.of(b.shared),
                         .gradients = b.gradients.subspan(l.first_tensor, l.tensors),
                         .ready = [&](std::size_t t) { b.ready(l.first_tensor + t); },
                         .pass = b.pass,
                         .peers = b.peers});
    }
    if (b.input_gradient.count() > 0)
      submit_sum(b.queue, "backward.residual", b.input_gradient, b.output_gradient, b.input_gradient);
  }

 private:
  std::vector<InnerLayer> layers_;
};

class ResidualLayer final : public Layer {
 public:
  /// Shared pointers, since a tensor rank's part and the whole layer have the layers in common that are not cut.
  using Layers = std::vector<std::shared_ptr<const Layer>>;
  explicit ResidualLayer(Layers layers)
      : layers_(std::move(layers)),
        first_tensor_(layers_.size()),
        shared_output_(layers_.size()),
        shared_gradient_(layers_.size()) {
    for (std::size_t i = layers_.size(); i-- > 0;) {
      const std::size_t before = elements(layers_[(i + layers_.size() - 1) % layers_.size()]->output());
      if (before != elements(layers_[i]->input()))
        throw std::logic_error(fmt::format("residual: {} does not fit its neighbours", layers_[i]->name()));
      first_tensor_[i] = tensors_.size();
      for (LayerTensor t : layers_[i]->tensors()) {
        t.name = fmt::format("{}.{}", i + 1, t.name);
        tensors_.push_back(std::move(t));
      }
    }
    place_sums();
  }

  std::string name() const override {
    std::string name = "residual";
    for (const auto& l : layers_) name += fmt::format("+{}", l->name());
    return name;
  }
  SampleShape input() const override { return layers_.front()->input(); }
  SampleShape output() const override { return layers_.back()->output(); }
  std::span<const LayerTensor> tensors() const override { return tensors_; }
  LayerProblems problems(std::size_t samples, bool input_gradient) const override {
    LayerProblems problems;
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      const LayerProblems p = layers_[i]->problems(samples, input_gradient || i > 0);
      problems.forward.insert(problems.forward.end(), p.forward.begin(), p.forward.end());
      problems.backward.insert(problems.backward.end(), p.backward.begin(), p.backward.end());
    }
    return problems;
  }
  std::size_t activation_elements() const override {
    std::size_t n = 0;
    for (const auto& l : layers_) n += 2 * elements(l->output()) + l->activation_elements();
    for (const auto& shared : {sums_.forward, sums_.backward})
      for (const std::size_t floats : shared) n -= floats;
    return n;
  }
  bool draws_by_pass() const override {
    return std::ranges::any_of(layers_, [](const auto& l) { return l->draws_by_pass(); });
  }
  std::unique_ptr<PreparedLayer> prepare(std::size_t samples, bool input_gradient,
                                         runtime::Device& device) const override {
    std::vector<InnerLayer> prepared;
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      const std::size_t count = samples * elements(layers_[i]->output());
      prepared.push_back({.layer = layers_[i]->prepare(samples, input_gradient || i > 0, device),
                          .first_tensor = first_tensor_[i],
                          .tensors = layers_[i]->tensors().size(),
                          .output = {shared_output_[i], count, device},
                          .gradient = {shared_gradient_[i], count, device}});
    }
    return std::make_unique<PreparedResidual>(std::move(prepared));
  }
  std::unique_ptr<Layer> part(Cut cut, std::size_t rank, std::size_t ranks) const override {
    if (cut != Cut::within) return nullptr;
    std::vector<const Layer*> whole;
    for (const auto& l : layers_) whole.push_back(l.get());
    auto cut_layers = cut_pairs(whole, rank, ranks);
    if (std::ranges::none_of(cut_layers, [](const auto& l) { return l != nullptr; })) return nullptr;
    Layers layers = layers_;
    for (std::size_t i = 0; i < layers.size(); ++i)
      if (cut_layers[i]) layers[i] = std::move(cut_layers[i]);
    return std::make_unique<ResidualLayer>(std::move(layers));
  }
  LayerSums sums() const override { return sums_; }

 private:
  void place_sums() {
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      if (!layers_[i]->sums().output) continue;
      shared_output_[i] = sums_.forward.size();
      sums_.forward.push_back(elements(layers_[i]->output()));
    }
    for (std::size_t i = layers_.size(); i-- > 1;) {
      if (!layers_[i]->sums().input_gradient) continue;
      shared_gradient_[i - 1] = sums_.forward.size() + sums_.backward.size();
      sums_.backward.push_back(elements(layers_[i]->input()));
    }
    sums_.input_gradient = layers_.front()->sums().input_gradient;
  }

  Layers layers_;
  std::vector<std::size_t> first_tensor_;  ///< by layer, as the next two members
  /// The indices, among the shared buffers, of a layer's output and of the gradient with respect to it; empty: not
  /// summed over ranks.
  std::vector<std::optional<std::size_t>> shared_output_, shared_gradient_;
  LayerSums sums_ = {};
  std::vector<LayerTensor> tensors_;
};

}  // namespace

std::unique_ptr<Layer> make_residual_layer(std::vector<std::unique_ptr<Layer>> layers) {
  ResidualLayer::Layers shared_layers;
  for (auto& l : layers) shared_layers.push_back(std::move(l));
  return std::make_unique<ResidualLayer>(std::move(shared_layers));
}

}  // namespace gradmeter::model
