#include "model/stage.hpp"

#include <algorithm>
#include <functional>

#include "kernels/aligned.hpp"
#include "kernels/loops.hpp"
#include "kernels/threads.hpp"

namespace gradmeter::model {
namespace {

/// Zeroes what lies behind a tensor's gradient, up to the next one's.
void zero_gap(Queue& queue, const Buffer& gradients, std::size_t offset, std::size_t count) {
  const std::size_t padded = kernels::whole_lines(count);
  if (padded == count) return;
  const Buffer gap = gradients.part(offset + count, padded - count);
  queue.submit("backward.gap", {.flops = 0, .bytes = static_cast<double>(gap.bytes())},
               [gap] { kernels::loops().clear(gap); });
}

}  // namespace

Stage::Stage(const NetworkPart& part, Peers* peers)
    : part_(part), peers_(peers), in_(elements(part.layers().front()->input())) {
  for (std::size_t l = 0; l < part_.layers().size(); ++l) {
    const Layer& layer = *part_.layers()[l];
    layers_.push_back({.out = elements(layer.output()), .sums = layer.sums()});
    layers_.back().sums.input_gradient &= part_.has_input_gradient(l);
    first_.push_back(places_.size());
    for (std::size_t t = 0; t < layer.tensors().size(); ++t) {
      const std::size_t tensor = part_.tensor_of(l, t);
      const Tensor place = tensor == of_another_stage ? Tensor{} : part_.tensors()[tensor];
      places_.push_back({tensor, place.offset, place.count, layer.tensors()[t].is_lent});
    }
  }
  first_.push_back(places_.size());
}

const Stage::PreparedLayers& Stage::prepared(const Pass& pass) {
  const int threads = kernels::compute_threads();
  runtime::Device& device = pass.queue.device();
  const auto is_this = [&](const Prepared& p) {
    return p.samples == pass.samples && p.slot == pass.slot && p.threads == threads && p.device == &device;
  };
  if (const auto found = std::ranges::find_if(prepared_, is_this); found != prepared_.end()) return found->layers;
  PreparedLayers layers;
  for (std::size_t l = 0; l < layers_.size(); ++l)
    layers.push_back(part_.layers()[l]->prepare(pass.samples, part_.has_input_gradient(l), device));
  return prepared_.emplace_back(Prepared{pass.samples, pass.slot, threads, &device, std::move(layers)}).layers;
}

template <class AnyBuffer>
void Stage::list_tensors(const AnyBuffer& flat, const AnyBuffer& lent, std::vector<AnyBuffer>& to) const {
  to.clear();
  for (const TensorPlace& p : places_) to.push_back(p.tensor == of_another_stage ? lent : flat.part(p.offset, p.count));
}

Buffer Stage::of_samples(const Buffer& memory, const Pass& pass, std::size_t layer) const {
  return memory.part(0, pass.samples * layers_[layer].out);
}

void Stage::forward(const Pass& pass, const StageSlot& slot) {
  const PreparedLayers& prepared_layers = prepared(pass);
  list_tensors(pass.parameters, pass.lent_weight, parameters_);
  ConstBuffer input = pass.input;
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    const Buffer output = of_samples(slot.outputs[l], pass, l);
    pass.queue.enter_layer(static_cast<int>(l));
    prepared_layers[l]->forward({.queue = pass.queue,
                                 .parameters = of_layer(parameters_, l),
                                 .input = input,
                                 .output = output,
                                 .peers = peers_,
                                 .shared = slot.shared[l]});
    input = output;
  }
  pass.queue.enter_layer(Queue::no_layer);
}

void Stage::backward(const Pass& pass, const StageSlot& slot, std::span<const Buffer> deltas, const Buffer& gradients,
                     const Model::Ready& ready) {
  const PreparedLayers& prepared_layers = prepared(pass);
  list_tensors(pass.parameters, pass.lent_weight, parameters_);
  list_tensors(gradients, pass.lent_gradient, gradients_);
  std::size_t l = layers_.size();
  const auto announce = [&](std::size_t t) {
    const TensorPlace& p = places_[first_[l] + t];
    if (p.is_lent) return;
    zero_gap(pass.queue, gradients, p.offset, p.count);
    ready(p.tensor);
  };
  while (l-- > 0) {
    const Buffer& delta = l + 1 == layers_.size() ? slot.top_delta : deltas[l];
    const Buffer below = l > 0 ? of_samples(deltas[l - 1], pass, l - 1)
                               : slot.input_gradient.part(0, part_.has_input_gradient(0) ? pass.samples * in() : 0);
    pass.queue.enter_layer(static_cast<int>(l));
    prepared_layers[l]->backward({.queue = pass.queue,
                                  .parameters = of_layer(parameters_, l),
                                  .input = l == 0 ? pass.input : of_samples(slot.outputs[l - 1], pass, l - 1),
                                  .output = of_samples(slot.outputs[l], pass, l),
                                  .output_gradient = of_samples(delta, pass, l),
                                  .input_gradient = below,
                                  .gradients = of_layer(gradients_, l),
                                  .ready = std::ref(announce),
                                  .peers = peers_,
                                  .shared = slot.shared[l]});
  }
  pass.queue.enter_layer(Queue::no_layer);
}

}  // namespace gradmeter::model
