// SPDX-License-Identifier: Apache-2.0
#include "model/network/stage.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <iterator>

#include "core/error.hpp"
#include "core/format.hpp"
#include "core/random.hpp"
#include "kernels/host/memory.hpp"
#include "kernels/host/threads.hpp"
#include "model/layers/operations.hpp"

namespace gradmeter::model {
namespace {

double forward_flops(const Layer& layer) {
  double flops = 0;
  for (const kernels::Problem& p : layer.problems(1, false).forward) flops += kernels::run_flops(p);
  return flops;
}

/// The offsets of each layer's own tensors in the flat buffers [elements].
std::vector<std::vector<std::size_t>> offsets_of(std::span<const std::unique_ptr<Layer>> layers) {
  std::vector<std::vector<std::size_t>> offsets(layers.size());
  std::size_t offset = 0;
  for (std::size_t l = layers.size(); l-- > 0;) {
    for (const LayerTensor& t : layers[l]->tensors()) {
      if (t.is_tied) continue;
      offsets[l].push_back(offset);
      offset += kernels::floats_in_whole_lines(elements(t));
    }
  }
  return offsets;
}

/// Replaces the layers that tensor ranks can share by the rank's parts.
void cut_layers(std::vector<std::unique_ptr<Layer>>& layers, const std::string& name, const Part& part) {
  std::vector<const Layer*> whole;
  for (const auto& l : layers) whole.push_back(l.get());
  auto parts = cut_pairs(whole, part.tensor_rank, part.tensor_ranks);
  bool is_cut = false;
  for (std::size_t l = 0; l < layers.size(); ++l) {
    if (!parts[l]) parts[l] = whole[l]->part(Cut::within, part.tensor_rank, part.tensor_ranks);
    if (!parts[l]) continue;
    layers[l] = std::move(parts[l]);
    is_cut = true;
  }
  if (!is_cut)
    throw core::UsageError(fmt::format(
        "model '{}' has no pair of dense layers, in fp32, that tensor ranks could share; leave tensor out of "
        "the mesh",
        name));
}

}  // namespace

HeldLayers::HeldLayers(std::string name, std::vector<std::unique_ptr<Layer>> layers, const Part& part)
    : name_(std::move(name)) {
  check(layers);
  const SampleShape output = layers.back()->output();
  const auto* const tokens = std::get_if<TokenShape>(&output);
  labels_ = tokens ? tokens->steps : 1;
  classes_ = elements(output) / labels_;
  input_features_ = elements(layers.front()->input());
  const auto offsets = offsets_of(layers);
  choose(layers, part);
  add_tensors(offsets);
}

void HeldLayers::check(const Layers& whole) const {
  if (whole.empty()) throw core::UsageError(fmt::format("model '{}' has no layers", name_));
  for (std::size_t l = 1; l < whole.size(); ++l) {
    const std::size_t before = elements(whole[l - 1]->output()), taken = elements(whole[l]->input());
    if (before != taken)
      throw core::UsageError(fmt::format("model '{}': layer {} ({}) takes {} numbers a sample, but {} gives {}", name_,
                                         l + 1, whole[l]->name(), taken, whole[l - 1]->name(), before));
  }
  for (std::size_t l = 0; l < whole.size(); ++l)
    for (const LayerTensor& t : whole[l]->tensors()) {
      if (!t.is_tied) continue;
      const auto owned = whole.at(t.owner)->tensors();
      if (t.owner >= l || owned.empty() || owned[0].shape != t.shape)
        throw core::UsageError(
            fmt::format("model '{}': layer {}, {}, has no weight of the shape that {} shares with it", name_,
                        t.owner + 1, whole[t.owner]->name(), whole[l]->name()));
    }
  if (std::holds_alternative<ImageShape>(whole.back()->output()))
    throw core::UsageError(fmt::format("model '{}' does not end in a layer with one number for each class", name_));
}

void HeldLayers::choose(Layers& whole, const Part& part) {
  if (part.stages > whole.size())
    throw core::UsageError(fmt::format("model '{}' has {} layers, too few for {} pipeline stages; take at most {}",
                                       name_, whole.size(), part.stages, whole.size()));
  std::vector<double> flops;
  for (const auto& l : whole) flops.push_back(forward_flops(*l));
  const std::vector<std::size_t> ends = balanced_runs(flops, part.stages);
  const auto stage_of = [&](std::size_t layer) { return std::ranges::upper_bound(ends, layer) - ends.begin(); };
  for (std::size_t l = 0; l < whole.size(); ++l)
    for (const LayerTensor& t : whole[l]->tensors()) {
      if (!t.is_tied || stage_of(l) == stage_of(t.owner)) continue;
      if (l + 1 < whole.size() || t.owner > 0)
        throw core::UsageError(
            fmt::format("model '{}': {} shares a weight with {} on another stage, which only the last layer and the "
                        "first can; leave pipeline out of the mesh",
                        name_, whole[l]->name(), whole[t.owner]->name()));
      if (part.stage == 0 || part.stage + 1 == part.stages) tied_between_stages_ = elements(t);
    }
  if (part.tensor_ranks > 1) cut_layers(whole, name_, part);
  begin_ = part.stage == 0 ? 0 : ends[part.stage - 1];
  for (std::size_t l = begin_; l < ends[part.stage]; ++l) {
    const bool is_within = whole[l]->keeps_activations() && l + 1 < ends[part.stage];
    widths_.push_back(is_within ? 0 : elements(whole[l]->output()));
    sums_.push_back(whole[l]->sums());
    sums_.back().input_gradient &= l > 0;
    layers_.push_back(std::move(whole[l]));
  }
  input_width_ = elements(layers_.front()->input());
}

void HeldLayers::add_tensors(const std::vector<std::vector<std::size_t>>& whole_offsets) {
  first_tensor_.resize(layers_.size());
  for (std::size_t l = layers_.size(); l-- > 0;) {
    first_tensor_[l] = tensors_.size();
    for (const LayerTensor& t : layers_[l]->tensors()) {
      if (t.is_tied) continue;
      const std::size_t n = elements(t);
      const bool is_part = t.whole.columns > 0;
      WholePlace whole = is_part ? t.whole : WholePlace{.columns = n, .stride = n};
      whole.first += whole_offsets[begin_ + l][tensors_.size() - first_tensor_[l]];
      tensors_.push_back({.name = t.has_unique_name ? t.name : fmt::format("layer{}.{}", begin_ + l + 1, t.name),
                          .shape = t.shape,
                          .offset = element_count_,
                          .count = n,
                          .is_part = is_part,
                          .whole = whole});
      element_count_ += kernels::floats_in_whole_lines(n);
    }
  }
}

std::size_t HeldLayers::tensor_of(std::size_t layer, std::size_t tensor) const {
  const auto tensors = layers_[layer]->tensors();
  if (const LayerTensor& t = tensors[tensor]; t.is_tied)
    return t.owner < begin_ ? of_other_stage : first_tensor_[t.owner - begin_];
  return first_tensor_[layer] + tensor -
         static_cast<std::size_t>(std::ranges::count(tensors.first(tensor), true, &LayerTensor::is_tied));
}

std::vector<RepeatedProblem> HeldLayers::problems(std::size_t samples, bool backward) const {
  std::vector<RepeatedProblem> merged;
  const auto add = [&](const std::vector<kernels::Problem>& layer_problems) {
    for (const kernels::Problem& p : layer_problems) {
      const auto same = std::ranges::find_if(merged, [&](const auto& r) { return same_work(r.problem, p); });
      if (same == merged.end()) {
        merged.push_back({p, 1});
      } else {
        ++same->times;
      }
    }
  };
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    const LayerProblems p = layers_[l]->problems(samples, has_input_gradient(l));
    add(p.forward);
    if (backward) add(p.backward);
  }
  return merged;
}

namespace {

/// Draws the initial values of adjacent elements of a tensor. place: index, in the whole tensor, of the first of these.
void draw_uniform(const LayerTensor& t, const core::Random& random, std::size_t place, std::span<float> values) {
  std::array<std::uint64_t, 512> bits;
  for (std::size_t first = 0; first < values.size(); first += bits.size()) {
    const auto drawn = std::span(bits).first(std::min(bits.size(), values.size() - first));
    random.bits(place + first, drawn);
    for (std::size_t i = 0; i < drawn.size(); ++i)
      values[first + i] = static_cast<float>(t.centre + t.bound * (2 * core::Random::uniform_of(drawn[i]) - 1));
  }
}

}  // namespace

void HeldLayers::initialise(Queue& queue, Buffers buffers, std::uint64_t seed) const {
  kernels::require_elements("network: parameters", buffers.parameters.count(), element_count_);
  kernels::require_elements("network: gradients", buffers.gradients.count(), element_count_);
  queue.run_and_wait([&] {
    std::ranges::fill(buffers.parameters.values<float>(), 0.0F);
    std::ranges::fill(buffers.gradients.values<float>(), 0.0F);
    for (std::size_t l = 0; l < layers_.size(); ++l) {
      const auto parameters = parts_of(buffers.parameters, l);
      for (std::size_t t = 0; t < parameters.size(); ++t) {
        const core::Random random(seed, begin_ + l + (std::uint64_t{t} << 32U));
        const LayerTensor& tensor = layers_[l]->tensors()[t];
        if (tensor.is_tied || (tensor.bound == 0 && tensor.centre == 0)) continue;
        const std::span<float> values = parameters[t].values<float>();
        const std::size_t columns = tensor.whole.columns > 0 ? tensor.whole.columns : values.size();
        for (std::size_t first = 0; first < values.size(); first += columns) {
          const std::size_t place = tensor.whole.columns > 0 ? tensor.whole.of(first) : 0;
          draw_uniform(tensor, random, place, values.subspan(first, columns));
        }
      }
    }
  });
}

namespace {

/// Zeroes the gap between a tensor's gradient and the next one's.
void clear_padding(Queue& queue, const Buffer& gradients, std::size_t offset, std::size_t count) {
  const std::size_t padded = kernels::floats_in_whole_lines(count);
  if (padded == count) return;
  submit_clear(queue, "backward.gap", gradients.part(offset + count, padded - count));
}

}  // namespace

Stage::Stage(const HeldLayers& held, Peers* peers) : held_(held), peers_(peers) {
  for (std::size_t l = 0; l < held_.layers().size(); ++l) {
    const Layer& layer = *held_.layers()[l];
    first_.push_back(places_.size());
    for (std::size_t t = 0; t < layer.tensors().size(); ++t) {
      const std::size_t tensor = held_.tensor_of(l, t);
      const Tensor place = tensor == of_other_stage ? Tensor{} : held_.tensors()[tensor];
      places_.push_back({tensor, place.offset, place.count, layer.tensors()[t].is_tied});
    }
  }
  first_.push_back(places_.size());
}

const Stage::PreparedLayers& Stage::prepared(const Pass& pass) {
  const int threads = kernels::compute_threads();
  runtime::Device& device = pass.queue.device();
  const auto is_wanted = [&](const Prepared& p) {
    return p.samples == pass.samples && p.slot == pass.slot && p.threads == threads && p.device == &device;
  };
  if (const auto found = std::ranges::find_if(prepared_, is_wanted); found != prepared_.end()) return found->layers;
  PreparedLayers layers;
  const auto stage_layers = held_.layers();
  while (layers.size() < stage_layers.size()) {
    const std::size_t l = layers.size();
    std::ranges::move(
        stage_layers[l]->prepare_run(stage_layers.subspan(l), pass.samples, held_.has_input_gradient(l), device),
        std::back_inserter(layers));
  }
  return prepared_.emplace_back(Prepared{pass.samples, pass.slot, threads, &device, std::move(layers)}).layers;
}

template <class AnyBuffer>
void Stage::list_tensors(const AnyBuffer& flat, const AnyBuffer& tied, std::vector<AnyBuffer>& to) const {
  to.clear();
  for (const TensorPlace& p : places_) to.push_back(p.tensor == of_other_stage ? tied : flat.part(p.offset, p.count));
}

Buffer Stage::of_samples(const Buffer& memory, const Pass& pass, std::size_t layer) const {
  return memory.part(0, pass.samples * held_.widths()[layer]);
}

void Stage::forward(const Pass& pass, const StageSlot& slot) {
  const PreparedLayers& prepared_layers = prepared(pass);
  list_tensors(pass.parameters, pass.tied_weight, parameters_);
  ConstBuffer input = pass.input;
  for (std::size_t l = 0; l < prepared_layers.size(); ++l) {
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

void Stage::backward(const Pass& pass, const StageSlot& slot, const Buffer& gradients, const Model::Ready& ready) {
  const PreparedLayers& prepared_layers = prepared(pass);
  list_tensors(pass.parameters, pass.tied_weight, parameters_);
  list_tensors(gradients, pass.tied_gradient, gradients_);
  std::size_t l = prepared_layers.size();
  const auto announce = [&](std::size_t t) {
    const TensorPlace& p = places_[first_[l] + t];
    if (p.is_tied) return;
    clear_padding(pass.queue, gradients, p.offset, p.count);
    ready(p.tensor);
  };
  while (l-- > 0) {
    const Buffer& delta = l + 1 == prepared_layers.size() ? slot.top_delta : slot.deltas[l];
    const Buffer input_gradient =
        l > 0 ? of_samples(slot.deltas[l - 1], pass, l - 1)
              : slot.input_gradient.part(0, held_.has_input_gradient(0) ? pass.samples * held_.input_width() : 0);
    pass.queue.enter_layer(static_cast<int>(l));
    prepared_layers[l]->backward({.queue = pass.queue,
                                  .parameters = of_layer(parameters_, l),
                                  .input = l == 0 ? pass.input : of_samples(slot.outputs[l - 1], pass, l - 1),
                                  .output = of_samples(slot.outputs[l], pass, l),
                                  .output_gradient = of_samples(delta, pass, l),
                                  .input_gradient = input_gradient,
                                  .gradients = of_layer(gradients_, l),
                                  .ready = std::ref(announce),
                                  .pass = passes_,
                                  .peers = peers_,
                                  .shared = slot.shared[l]});
  }
  pass.queue.enter_layer(Queue::no_layer);
  ++passes_;
}

}  // namespace gradmeter::model
