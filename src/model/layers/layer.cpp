// SPDX-License-Identifier: Apache-2.0
#include "model/layers/layer.hpp"

#include <algorithm>
#include <iterator>

#include "core/error.hpp"
#include "core/format.hpp"
#include "kernels/op.hpp"

namespace gradmeter::model {
namespace {

class InferenceByTrainingLayer final : public InferenceLayer {
 public:
  InferenceByTrainingLayer(std::unique_ptr<PreparedLayer> layer, std::vector<runtime::ConstBuffer> parameters)
      : layer_(std::move(layer)), parameters_(std::move(parameters)) {}
  void forward(runtime::Queue& queue, const runtime::ConstBuffer& input, const runtime::Buffer& output) override {
    layer_->forward({.queue = queue, .parameters = parameters_, .input = input, .output = output});
  }

 private:
  std::unique_ptr<PreparedLayer> layer_;
  std::vector<runtime::ConstBuffer> parameters_;
};

}  // namespace

std::vector<std::unique_ptr<PreparedLayer>> Layer::prepare_run(std::span<const std::unique_ptr<Layer>>,
                                                               std::size_t samples, bool input_gradient,
                                                               runtime::Device& device) const {
  std::vector<std::unique_ptr<PreparedLayer>> prepared;
  prepared.push_back(prepare(samples, input_gradient, device));
  return prepared;
}

std::string Layer::inference_refusal(kernels::Precision p) const {
  if (p == kernels::Precision::fp32 || problems(1, false).forward.empty()) return {};
  return fmt::format("layer {} is inferred in fp32 alone", name());
}

std::unique_ptr<InferenceLayer> Layer::prepare_inference(const InferenceRequest& r, runtime::Queue& queue) const {
  return std::make_unique<InferenceByTrainingLayer>(prepare(r.samples, false, queue.device()), r.parameters);
}

std::string backend_refusal(kernels::Precision precision, std::vector<kernels::Problem> problems) {
  for (kernels::Problem& p : problems) {
    p.precision = precision;
    if (auto why = kernels::op_refusal(p); !why.empty()) return why;
  }
  return {};
}

void ActivationRange::add(std::span<const float> values) {
  for (const float x : values) least = std::min(least, x), greatest = std::max(greatest, x);
}

std::size_t elements(const SampleShape& shape) {
  if (const auto* i = std::get_if<ImageShape>(&shape)) return i->channels * i->height * i->width;
  if (const auto* t = std::get_if<TokenShape>(&shape)) return t->steps * t->features;
  return std::get<FeatureShape>(shape).count;
}

std::size_t elements(const LayerTensor& t) {
  std::size_t n = 1;
  for (const std::size_t side : t.shape) n *= side;
  return n;
}

namespace {

using Parts = std::vector<std::unique_ptr<Layer>>;

/// The features of a sample, or of one step if the sample has steps.
std::size_t features_of(const SampleShape& shape) {
  const auto* const tokens = std::get_if<TokenShape>(&shape);
  return tokens ? tokens->features : elements(shape);
}

/// One rank's parts of the pair whose first layer is `layers.front()`, and of the layers between the two; empty: no
/// pair begins there.
Parts pair_of(std::span<const Layer* const> layers, std::size_t rank, std::size_t ranks) {
  Parts parts;
  parts.push_back(layers.front()->part(Cut::outputs, rank, ranks));
  while (parts.back() && parts.size() < layers.size()) {
    const Layer& next = *layers[parts.size()];
    if (auto second = next.part(Cut::inputs, rank, ranks)) {
      parts.push_back(std::move(second));
      return parts;
    }
    parts.push_back(next.part(Cut::between, rank, ranks));
  }
  return {};
}

}  // namespace

Parts cut_pairs(std::span<const Layer* const> layers, std::size_t rank, std::size_t ranks) {
  Parts cut_layers(layers.size());
  for (std::size_t l = 0; l < layers.size();) {
    Parts pair = pair_of(layers.subspan(l), rank, ranks);
    const std::size_t width = features_of(layers[l]->output());
    if (!pair.empty() && width % ranks != 0)
      throw core::UsageError(fmt::format(
          "'{}' is a layer of width {}, which {} tensor ranks cannot share evenly; make it a multiple of {}",
          layers[l]->name(), width, ranks, ranks));
    std::ranges::move(pair, cut_layers.begin() + static_cast<std::ptrdiff_t>(l));
    l += std::max<std::size_t>(1, pair.size());
  }
  return cut_layers;
}

}  // namespace gradmeter::model
