#include "model/mlp_shard.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/error.hpp"
#include "core/format.hpp"
#include "core/random.hpp"
#include "kernels/aligned.hpp"
#include "kernels/problems/shape.hpp"

namespace gradmeter::model {
namespace {

using kernels::whole_lines;

constexpr std::size_t max_width = 65536, max_widths = 64;

void check_widths(std::span<const std::size_t> widths, const std::string& name) {
  if (widths.size() < 2 || widths.size() > max_widths)
    throw core::UsageError(
        fmt::format("model '{}' has {} widths; an mlp takes 2 to {}", name, widths.size(), max_widths));
  for (const std::size_t width : widths)
    if (width < 1 || width > max_width)
      throw core::UsageError(
          fmt::format("model '{}' has a layer of width {}; widths go from 1 to {}", name, width, max_width));
}

Cut cut_of(std::size_t layer, std::size_t layers, std::size_t tensor_ranks) {
  if (tensor_ranks == 1 || (layers % 2 == 1 && layer + 1 == layers)) return Cut::none;
  return layer % 2 == 0 ? Cut::outputs : Cut::inputs;
}

void check_part(std::span<const std::size_t> widths, const std::string& name, const Part& part) {
  const std::size_t layers = widths.size() - 1;
  if (part.stages > layers)
    throw core::UsageError(fmt::format("model '{}' has {} layers, too few for {} pipeline stages; take at most {}",
                                       name, layers, part.stages, layers));
  if (part.tensor_ranks > 1 && layers == 1)
    throw core::UsageError(fmt::format(
        "model '{}' has one layer, and tensor ranks share pairs of them; take tensor=1 or add a layer", name));
  for (std::size_t l = 0; l < layers; ++l)
    if (cut_of(l, layers, part.tensor_ranks) == Cut::outputs && widths[l + 1] % part.tensor_ranks != 0)
      throw core::UsageError(
          fmt::format("model '{}' has a layer of width {}, which {} tensor ranks cannot share evenly; make it a "
                      "multiple of {}",
                      name, widths[l + 1], part.tensor_ranks, part.tensor_ranks));
}

}  // namespace

LayerProducts products_of(const MlpLayer& l, std::size_t samples) {
  using kernels::Activation;
  using kernels::Transpose;
  const bool is_summed = l.cut == Cut::inputs;  // over tensor ranks first, then comes the bias
  return {.forward = {.m = samples,
                      .n = l.out,
                      .k = l.in,
                      .transpose_b = Transpose::yes,
                      .bias = !is_summed,
                      .activation = l.last || is_summed ? Activation::none : Activation::relu},
          .weight_gradient = {.m = l.out, .n = l.in, .k = samples, .transpose_a = Transpose::yes},
          .input_gradient = {.m = samples, .n = l.in, .k = l.out}};
}

std::vector<std::size_t> balanced_runs(std::span<const std::size_t> weights, std::size_t stages) {
  const std::size_t n = weights.size();
  constexpr double never = std::numeric_limits<double>::infinity();
  // heaviest[k][i]: of the best way to have the first i layers in k runs; from[k][i]: where its last run begins.
  std::vector heaviest(stages + 1, std::vector<double>(n + 1, never));
  std::vector from(stages + 1, std::vector<std::size_t>(n + 1, 0));
  heaviest[0][0] = 0;
  for (std::size_t k = 1; k <= stages; ++k) {
    for (std::size_t i = k; i <= n; ++i) {
      double run = 0;
      for (std::size_t begin = i; begin-- > k - 1;) {
        run += static_cast<double>(weights[begin]);
        const double most = std::max(heaviest[k - 1][begin], run);
        if (most < heaviest[k][i]) heaviest[k][i] = most, from[k][i] = begin;
      }
    }
  }
  std::vector<std::size_t> ends(stages);
  for (std::size_t k = stages, end = n; k-- > 0;) {
    ends[k] = end;
    end = from[k + 1][end];
  }
  return ends;
}

MlpShard::MlpShard(std::vector<std::size_t> widths, const Part& part)
    : widths_(std::move(widths)), name_(fmt::format("mlp:{}", fmt::join(widths_, "-"))) {
  check_widths(widths_, name_);
  check_part(widths_, name_, part);
  std::vector<std::size_t> weights;
  for (std::size_t l = 0; l + 1 < widths_.size(); ++l) weights.push_back(widths_[l] * widths_[l + 1]);
  const std::vector<std::size_t> ends = balanced_runs(weights, part.stages);
  const std::size_t first = part.stage == 0 ? 0 : ends[part.stage - 1];
  for (std::size_t l = ends[part.stage]; l-- > first;) add_layer(l, part);
  std::ranges::reverse(layers_);
}

void MlpShard::add_layer(std::size_t number, const Part& part) {
  const std::size_t count = widths_.size() - 1, in = widths_[number], out = widths_[number + 1];
  MlpLayer l{.number = number,
             .cut = cut_of(number, count, part.tensor_ranks),
             .first = number == 0,
             .last = number + 1 == count,
             .in = in,
             .out = out,
             .whole_in = in};
  if (l.cut == Cut::outputs) {
    l.out = out / part.tensor_ranks;
    l.first_out = part.tensor_rank * l.out;
  } else if (l.cut == Cut::inputs) {
    l.in = in / part.tensor_ranks;
    l.first_in = part.tensor_rank * l.in;
  }
  const std::size_t weight = whole_offset(number), bias = weight + whole_lines(in * out);
  l.weight = add_tensor(fmt::format("layer{}.weight", number + 1), {l.out, l.in}, l.cut != Cut::none,
                        {.first = weight + l.first_out * in + l.first_in, .columns = l.in, .stride = in});
  l.bias = add_tensor(fmt::format("layer{}.bias", number + 1), {l.out}, l.cut == Cut::outputs,
                      {.first = bias + l.first_out, .columns = l.out, .stride = l.out});
  layers_.push_back(l);
}

/// Where a layer's tensors begin in the flat buffers of the whole network.
std::size_t MlpShard::whole_offset(std::size_t layer) const {
  std::size_t offset = 0;
  for (std::size_t l = widths_.size() - 1; l-- > layer + 1;) {
    offset += whole_lines(widths_[l] * widths_[l + 1]) + whole_lines(widths_[l + 1]);
  }
  return offset;
}

std::size_t MlpShard::add_tensor(std::string name, std::vector<std::size_t> shape, bool is_part, WholePlace whole) {
  std::size_t count = 1;
  for (const std::size_t side : shape) count *= side;
  tensors_.push_back({.name = std::move(name),
                      .shape = std::move(shape),
                      .offset = element_count_,
                      .count = count,
                      .is_part = is_part,
                      .whole = whole});
  element_count_ += whole_lines(count);
  return tensors_.size() - 1;
}

double MlpShard::step_flops(std::size_t samples) const {
  double products = 0;
  for (const MlpLayer& l : layers_) products += (l.first ? 2.0 : 3.0) * static_cast<double>(weight(l).count);
  return 2.0 * static_cast<double>(samples) * products;
}

std::vector<RepeatedProblem> MlpShard::forward_problems(std::size_t samples) const {
  std::vector<RepeatedProblem> all;
  for (const MlpLayer& l : layers_) all.push_back({{.shape = products_of(l, samples).forward}});
  return all;
}

std::vector<RepeatedProblem> MlpShard::pass_problems(std::size_t samples) const {
  std::vector<RepeatedProblem> all = forward_problems(samples);
  for (const MlpLayer& l : layers_) {
    const LayerProducts p = products_of(l, samples);
    all.push_back({{.shape = p.weight_gradient}});
    if (!l.first) all.push_back({{.shape = p.input_gradient}});
  }
  return all;
}

void MlpShard::initialise(Queue& queue, Buffers buffers, std::uint64_t seed) const {
  kernels::require_elements("mlp: parameters", buffers.parameters.count(), element_count_);
  kernels::require_elements("mlp: gradients", buffers.gradients.count(), element_count_);
  queue.at_once([&] {
    std::ranges::fill(buffers.parameters.values<float>(), 0.0F);
    std::ranges::fill(buffers.gradients.values<float>(), 0.0F);
    for (const MlpLayer& l : layers_) draw(l, seed, part_of(buffers.parameters, weight(l)).values<float>());
  });
}

void MlpShard::draw(const MlpLayer& l, std::uint64_t seed, std::span<float> weight) {
  const core::Random random(seed, l.number);
  const double bound = std::sqrt(6.0 / static_cast<double>(l.whole_in));
  for (std::size_t o = 0; o < l.out; ++o) {
    const std::size_t begin = (l.first_out + o) * l.whole_in + l.first_in;
    for (std::size_t i = 0; i < l.in; ++i)
      weight[o * l.in + i] = static_cast<float>(bound * (2 * random.uniform(begin + i) - 1));
  }
}

Buffer MlpShard::with_padding(const Buffer& b, const Tensor& t) { return b.part(t.offset, whole_lines(t.count)); }

}  // namespace gradmeter::model
