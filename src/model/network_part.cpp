#include "model/network_part.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "core/format.hpp"
#include "core/random.hpp"
#include "kernels/aligned.hpp"
#include "kernels/problems/shape.hpp"
#include "model/layers/cut.hpp"

namespace gradmeter::model {
namespace {

double forward_flops(const Layer& layer) {
  double flops = 0;
  for (const kernels::Problem& p : layer.problems(1, false).forward) flops += kernels::run_flops(p);
  return flops;
}

/// Where the tensors of each layer begin in the flat buffers.
std::vector<std::vector<std::size_t>> offsets_of(std::span<const std::unique_ptr<Layer>> layers) {
  std::vector<std::vector<std::size_t>> offsets(layers.size());
  std::size_t at = 0;
  for (std::size_t l = layers.size(); l-- > 0;) {
    for (const LayerTensor& t : layers[l]->tensors()) {
      if (t.is_lent) continue;
      offsets[l].push_back(at);
      at += kernels::whole_lines(elements(t));
    }
  }
  return offsets;
}

bool has_lent(const Layer& layer) { return std::ranges::any_of(layer.tensors(), &LayerTensor::is_lent); }

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

NetworkPart::NetworkPart(std::string name, std::vector<std::unique_ptr<Layer>> layers, const Part& part)
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

void NetworkPart::check(const Layers& whole) const {
  if (whole.empty()) throw core::UsageError(fmt::format("model '{}' has no layers", name_));
  for (std::size_t l = 1; l < whole.size(); ++l) {
    const std::size_t given = elements(whole[l - 1]->output()), taken = elements(whole[l]->input());
    if (given != taken)
      throw core::UsageError(fmt::format("model '{}': layer {} ({}) takes {} numbers a sample, but {} gives {}", name_,
                                         l + 1, whole[l]->name(), taken, whole[l - 1]->name(), given));
  }
  const auto lender = whole.front()->tensors();
  for (const auto& l : whole)
    for (const LayerTensor& t : l->tensors())
      if (t.is_lent && (l == whole.front() || lender.empty() || lender[0].shape != t.shape))
        throw core::UsageError(
            fmt::format("model '{}': the first layer, {}, has no weight of the shape that {} shares with it", name_,
                        whole.front()->name(), l->name()));
  if (std::holds_alternative<ImageShape>(whole.back()->output()))
    throw core::UsageError(fmt::format("model '{}' does not end in a layer with one number for each class", name_));
}

void NetworkPart::choose(Layers& whole, const Part& part) {
  if (part.stages > whole.size())
    throw core::UsageError(fmt::format("model '{}' has {} layers, too few for {} pipeline stages; take at most {}",
                                       name_, whole.size(), part.stages, whole.size()));
  std::vector<double> flops;
  for (const auto& l : whole) flops.push_back(forward_flops(*l));
  if (part.stages > 1 && std::any_of(whole.begin(), whole.end() - 1, [](const auto& l) { return has_lent(*l); }))
    throw core::UsageError(
        fmt::format("model '{}' shares its first layer's weight with one before its last, which stages cannot; leave "
                    "pipeline out of the mesh",
                    name_));
  if (part.stages > 1 && has_lent(*whole.back()) && (part.stage == 0 || part.stage + 1 == part.stages))
    lent_between_stages_ = elements(whole.front()->tensors()[0]);
  const std::vector<std::size_t> ends = balanced_runs(flops, part.stages);
  if (part.tensor_ranks > 1) cut_layers(whole, name_, part);
  begin_ = part.stage == 0 ? 0 : ends[part.stage - 1];
  for (std::size_t l = begin_; l < ends[part.stage]; ++l) layers_.push_back(std::move(whole[l]));
}

void NetworkPart::add_tensors(const std::vector<std::vector<std::size_t>>& whole_offsets) {
  first_tensor_.resize(layers_.size());
  for (std::size_t l = layers_.size(); l-- > 0;) {
    first_tensor_[l] = tensors_.size();
    for (const LayerTensor& t : layers_[l]->tensors()) {
      if (t.is_lent) continue;
      const std::size_t n = elements(t);
      const bool is_part = t.whole.columns > 0;
      WholePlace whole = is_part ? t.whole : WholePlace{.columns = n, .stride = n};
      whole.first += whole_offsets[begin_ + l][tensors_.size() - first_tensor_[l]];
      tensors_.push_back({.name = fmt::format("layer{}.{}", begin_ + l + 1, t.name),
                          .shape = t.shape,
                          .offset = element_count_,
                          .count = n,
                          .is_part = is_part,
                          .whole = whole});
      element_count_ += kernels::whole_lines(n);
    }
  }
}

std::size_t NetworkPart::tensor_of(std::size_t layer, std::size_t tensor) const {
  const auto all = layers_[layer]->tensors();
  if (all[tensor].is_lent) return begin_ > 0 ? of_another_stage : first_tensor_.front();
  return first_tensor_[layer] + tensor -
         static_cast<std::size_t>(std::ranges::count(all.first(tensor), true, &LayerTensor::is_lent));
}

std::vector<RepeatedProblem> NetworkPart::problems(std::size_t samples, bool backward) const {
  std::vector<RepeatedProblem> all;
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    const LayerProblems p = layers_[l]->problems(samples, has_input_gradient(l));
    for (const kernels::Problem& f : p.forward) all.push_back({f});
    if (!backward) continue;
    for (const kernels::Problem& b : p.backward) all.push_back({b});
  }
  return all;
}

void NetworkPart::initialise(Queue& queue, Buffers buffers, std::uint64_t seed) const {
  kernels::require_elements("network: parameters", buffers.parameters.count(), element_count_);
  kernels::require_elements("network: gradients", buffers.gradients.count(), element_count_);
  queue.at_once([&] {
    std::ranges::fill(buffers.parameters.values<float>(), 0.0F);
    std::ranges::fill(buffers.gradients.values<float>(), 0.0F);
    for (std::size_t l = 0; l < layers_.size(); ++l) {
      const auto parameters = parts_of(buffers.parameters, l);
      for (std::size_t t = 0; t < parameters.size(); ++t) {
        const core::Random random(seed, begin_ + l + (std::uint64_t{t} << 32U));
        const LayerTensor& tensor = layers_[l]->tensors()[t];
        if (tensor.is_lent || (tensor.bound == 0 && tensor.centre == 0)) continue;
        const std::span<float> values = parameters[t].values<float>();
        for (std::size_t i = 0; i < values.size(); ++i) {
          const std::size_t place = tensor.whole.columns > 0 ? tensor.whole.of(i) : i;
          values[i] = static_cast<float>(tensor.centre + tensor.bound * (2 * random.uniform(place) - 1));
        }
      }
    }
  });
}

}  // namespace gradmeter::model
