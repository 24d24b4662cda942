#include "model/layers/layer.hpp"

#include <algorithm>

#include "core/format.hpp"
#include "kernels/op.hpp"

namespace gradmeter::model {
namespace {

class InferredAsTrained final : public InferenceLayer {
 public:
  InferredAsTrained(std::unique_ptr<PreparedLayer> layer, std::vector<runtime::ConstBuffer> parameters)
      : layer_(std::move(layer)), parameters_(std::move(parameters)) {}
  void forward(runtime::Queue& queue, const runtime::ConstBuffer& input, const runtime::Buffer& output) override {
    layer_->forward({.queue = queue, .parameters = parameters_, .input = input, .output = output});
  }

 private:
  std::unique_ptr<PreparedLayer> layer_;
  std::vector<runtime::ConstBuffer> parameters_;
};

}  // namespace

std::string Layer::inference_refusal(kernels::Precision p) const {
  if (p == kernels::Precision::fp32 || problems(1, false).forward.empty()) return {};
  return fmt::format("layer {} is inferred in fp32 alone", name());
}

std::unique_ptr<InferenceLayer> Layer::prepare_inference(const InferenceRequest& r, runtime::Queue& queue) const {
  return std::make_unique<InferredAsTrained>(prepare(r.samples, false, queue.device()), r.parameters);
}

std::string refusal_in(kernels::Precision precision, std::vector<kernels::Problem> problems) {
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

}  // namespace gradmeter::model
