// SPDX-License-Identifier: Apache-2.0
#include "model/registry.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "core/format.hpp"
#include "model/layers/layers.hpp"
#include "model/network/network.hpp"
#include "model/table/table_layers.hpp"
#include "model/table/table_network.hpp"

namespace gradmeter::model {
namespace {

constexpr std::size_t max_width = 65536, max_widths = 64;

}  // namespace

std::string mlp_name(std::span<const std::size_t> widths) {
  std::string name = fmt::format("mlp:{}", fmt::join(widths, "-"));
  if (widths.size() < 2 || widths.size() > max_widths)
    throw core::UsageError(
        fmt::format("model '{}' has {} widths; an mlp takes 2 to {}", name, widths.size(), max_widths));
  for (const std::size_t width : widths)
    if (width < 1 || width > max_width)
      throw core::UsageError(
          fmt::format("model '{}' has a layer of width {}; widths go from 1 to {}", name, width, max_width));
  return name;
}

std::vector<std::unique_ptr<Layer>> mlp_layers(std::span<const std::size_t> widths, kernels::Precision precision) {
  std::vector<std::unique_ptr<Layer>> layers;
  for (std::size_t i = 1; i < widths.size(); ++i) {
    const auto activation = i + 1 == widths.size() ? kernels::Activation::none : kernels::Activation::relu;
    layers.push_back(make_dense_layer(FeatureShape{widths[i - 1]}, widths[i], activation, precision));
  }
  return layers;
}

namespace {

using Layers = std::vector<std::unique_ptr<Layer>>;

TokenShape tokens_of(const TransformerOptions& sizes, std::size_t features) {
  return {.steps = sizes.steps, .features = features};
}

std::unique_ptr<Layer> project(const TransformerOptions& sizes, std::size_t in, std::size_t out,
                               Weight weight = Weight::own, std::size_t parts = 1) {
  return make_step_dense_layer(tokens_of(sizes, in), out,
                               {.precision = sizes.precision, .weight = weight, .variance = 1.0 / 3, .parts = parts});
}

std::unique_ptr<Layer> attention_part(const TransformerOptions& sizes) {
  Layers part;
  part.push_back(make_layer_norm_layer(tokens_of(sizes, sizes.hidden)));
  part.push_back(project(sizes, sizes.hidden, 3 * sizes.hidden, Weight::own, 3));
  part.push_back(
      make_attention_layer(sizes.steps, {.width = sizes.hidden, .heads = sizes.heads, .precision = sizes.precision}));
  part.push_back(project(sizes, sizes.hidden, sizes.hidden));
  return make_residual_layer(std::move(part));
}

std::unique_ptr<Layer> feed_forward_part(const TransformerOptions& sizes) {
  Layers part;
  part.push_back(make_layer_norm_layer(tokens_of(sizes, sizes.hidden)));
  part.push_back(project(sizes, sizes.hidden, sizes.ff));
  part.push_back(make_gelu_layer(tokens_of(sizes, sizes.ff)));
  part.push_back(project(sizes, sizes.ff, sizes.hidden));
  return make_residual_layer(std::move(part));
}

}  // namespace

Layers make_transformer_layers(const TransformerOptions& sizes) {
  Layers layers;
  layers.push_back(make_embedding_layer(sizes.steps, sizes.words, sizes.hidden, sizes.softmax));
  layers.push_back(make_positions_layer(tokens_of(sizes, sizes.hidden)));
  for (std::size_t block = 0; block < sizes.layers; ++block) {
    layers.push_back(attention_part(sizes));
    layers.push_back(feed_forward_part(sizes));
  }
  layers.push_back(make_layer_norm_layer(tokens_of(sizes, sizes.hidden)));
  layers.push_back(project(sizes, sizes.hidden, sizes.words, sizes.softmax));
  return layers;
}

namespace {

// Parses "784-100-10": only digits and dashes are checked here, the model checks the ranges.
std::vector<std::size_t> parse_widths(std::string_view text) {
  std::vector<std::size_t> widths;
  for (std::string_view rest = text;;) {
    const std::string_view word = rest.substr(0, rest.find('-'));
    std::size_t width = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), width);
    if (error != std::errc{} || end != word.data() + word.size())
      throw core::UsageError(
          fmt::format("model 'mlp:{}': '{}' is not a width; write them as 784-1024-1024-10", text, word));
    widths.push_back(width);
    if (word.size() == rest.size()) return widths;
    rest.remove_prefix(word.size() + 1);
  }
}

std::vector<std::size_t> widths_of(const core::ParsedName& name, const ModelRequest& request) {
  if (!name.parameters.empty())
    throw core::UsageError(fmt::format("model 'mlp' has no parameter '{}'; it takes widths, as in mlp:784-100-10",
                                       name.parameters.begin()->first));
  if (name.bare.empty()) return {request.features, 1024, 1024, request.classes};
  return parse_widths(name.bare);
}

/// Checks the whole network on every rank, so that all ranks refuse.
void require_backends(const std::string& name, const std::vector<std::unique_ptr<Layer>>& layers,
                      const ModelRequest& request) {
  std::string why;
  if (kernels::info(request.precision).integer) why = "gradients are no whole numbers; it is for inference";
  if (kernels::info(request.precision).is_gpu_mode)
    why = "it is a mode of products on a GPU, which `kernels` measures alone";
  for (const auto& layer : layers) {
    const LayerProblems problems = layer->problems(1, layer != layers.front());
    for (const auto* pass : {&problems.forward, &problems.backward})
      for (const kernels::Problem& p : *pass)
        if (why.empty()) why = kernels::op_refusal(p, request.device);
  }
  if (why.empty()) return;
  throw core::UsageError(
      fmt::format("model '{}' does not train in {}: {}", name, kernels::name(request.precision), why));
}

std::unique_ptr<Network> make_network(std::string name, std::vector<std::unique_ptr<Layer>> layers,
                                      const ModelRequest& request) {
  require_backends(name, layers, request);
  return std::make_unique<Network>(std::move(name), std::move(layers), request.part,
                                   NetworkOptions{.loss = request.loss_precision});
}

std::unique_ptr<Network> make_mlp(const core::ParsedName& name, const ModelRequest& request) {
  const std::vector<std::size_t> widths = widths_of(name, request);
  return make_network(mlp_name(widths), mlp_layers(widths, request.precision), request);
}

std::size_t parameter(const core::ParsedName& full_name, std::string_view key, std::uint64_t most) {
  return core::count_parameter(full_name, key, {.least = 1, .most = most});
}

/// The side of a sample, which must be a square image of one channel.
std::size_t side_of(std::string_view name, const ModelRequest& request) {
  const auto side = static_cast<std::size_t>(std::lround(std::sqrt(static_cast<double>(request.features))));
  if (side > 0 && side * side == request.features) return side;
  throw core::UsageError(
      fmt::format("model '{}' takes square images, but the data has {} features; take mlp", name, request.features));
}

std::unique_ptr<Network> make_cnn(const core::ParsedName& name, const ModelRequest& request) {
  const auto full_name = core::with_defaults("model", "cnn", "convolutions=2,filters=16,hidden=128", name);
  const std::size_t side = side_of(name.base, request), count = parameter(full_name, "convolutions", 8);
  std::vector<std::unique_ptr<Layer>> layers;
  ImageShape image{.channels = 1, .height = side, .width = side};
  for (std::size_t i = 0, filters = parameter(full_name, "filters", 4096); i < count; ++i, filters *= 2) {
    const bool is_first = i == 0;
    layers.push_back(make_convolution_layer(
        image, {.filters = filters, .side = is_first ? 5U : 3U, .stride = 2, .pad = is_first ? 2U : 1U},
        request.precision));
    image = std::get<ImageShape>(layers.back()->output());
  }
  layers.push_back(
      make_dense_layer(image, parameter(full_name, "hidden", 65536), kernels::Activation::relu, request.precision));
  layers.push_back(
      make_dense_layer(layers.back()->output(), request.classes, kernels::Activation::none, request.precision));
  return make_network(full_name.canonical(), std::move(layers), request);
}

template <kernels::Cell cell>
std::unique_ptr<Network> make_recurrent(const core::ParsedName& name, const ModelRequest& request) {
  const auto full_name = core::with_defaults("model", name.base, "hidden=128,layers=1", name);
  const std::size_t side = side_of(name.base, request), count = parameter(full_name, "layers", 16),
                    hidden = parameter(full_name, "hidden", 65536);
  std::vector<std::unique_ptr<Layer>> layers;
  TokenShape tokens{.steps = side, .features = side};
  for (std::size_t i = 0; i < count; ++i) {
    const auto output = i + 1 == count ? RecurrentOutput::last_step : RecurrentOutput::every_step;
    layers.push_back(make_recurrent_layer(cell, tokens, hidden, output, request.precision));
    tokens.features = hidden;
  }
  layers.push_back(
      make_dense_layer(layers.back()->output(), request.classes, kernels::Activation::none, request.precision));
  return make_network(full_name.canonical(), std::move(layers), request);
}

void require_text_sizes(const core::ParsedName& full_name, const ModelRequest& request) {
  const auto steps = parameter(full_name, "steps", 4096),
             words = parameter(full_name, "words", std::uint64_t{1} << 24U);
  if (steps != request.features || words != request.classes)
    throw core::UsageError(
        fmt::format("model '{}': the data's sentences have {} tokens of {} words; leave steps and words out, they come "
                    "from the data",
                    full_name.canonical(), request.features, request.classes));
}

Weight softmax_of(const core::ParsedName& full_name) {
  return core::count_parameter(full_name, "tied", {.least = 0, .most = 1}) == 1 ? Weight::tied : Weight::own;
}

/// The network's name gets the sizes that come from the data, so that rows of results state them.
template <kernels::Cell cell>
std::unique_ptr<Network> make_language_model(const core::ParsedName& name, const ModelRequest& request) {
  const auto full_name = core::with_defaults(
      "model", name.base,
      fmt::format("hidden=128,layers=1,tied=0,steps={},words={}", request.features, request.classes), name);
  require_text_sizes(full_name, request);
  const std::size_t hidden = parameter(full_name, "hidden", 65536), count = parameter(full_name, "layers", 16);
  std::vector<std::unique_ptr<Layer>> layers;
  layers.push_back(make_embedding_layer(request.features, request.classes, hidden, softmax_of(full_name)));
  const TokenShape tokens{.steps = request.features, .features = hidden};
  for (std::size_t i = 0; i < count; ++i)
    layers.push_back(make_recurrent_layer(cell, tokens, hidden, RecurrentOutput::every_step, request.precision));
  layers.push_back(make_step_dense_layer(tokens, request.classes,
                                         {.precision = request.precision, .weight = softmax_of(full_name)}));
  return make_network(full_name.canonical(), std::move(layers), request);
}

std::unique_ptr<Network> make_transformer_lm(const core::ParsedName& name, const ModelRequest& request) {
  const auto full_name = core::with_defaults(
      "model", name.base,
      fmt::format("hidden=64,layers=2,heads=4,ff=256,tied=0,steps={},words={}", request.features, request.classes),
      name);
  require_text_sizes(full_name, request);
  return make_network(full_name.canonical(),
                      make_transformer_layers({.steps = request.features,
                                               .words = request.classes,
                                               .hidden = parameter(full_name, "hidden", 65536),
                                               .layers = parameter(full_name, "layers", 64),
                                               .heads = parameter(full_name, "heads", 1024),
                                               .ff = parameter(full_name, "ff", 262144),
                                               .softmax = softmax_of(full_name),
                                               .precision = request.precision}),
                      request);
}

constexpr std::array table{
    ModelEntry{"mlp", "fully connected layers with ReLU, softmax cross-entropy; parameter: widths",
               "Rumelhart et al., Nature 1986; initialisation He et al., ICCV 2015", "mlp:784-1024-1024-10", &make_mlp},
    ModelEntry{"cnn", "convolutions of stride 2, each with twice the filters, and two dense layers",
               "LeCun et al., Proc. IEEE 1998; initialisation He et al., ICCV 2015",
               "cnn:convolutions=2,filters=16,hidden=128", &make_cnn},
    ModelEntry{"lstm", "an image's rows as steps of an LSTM, its last state classified",
               "Hochreiter & Schmidhuber 1997", "lstm:hidden=128,layers=1", &make_recurrent<kernels::Cell::lstm>},
    ModelEntry{"gru", "the same with a GRU, whose reset gate comes before the product (cuDNN: after)",
               "Cho et al. 2014", "gru:hidden=128,layers=1", &make_recurrent<kernels::Cell::gru>},
    ModelEntry{"rnn", "the same with a plain recurrent layer, h' = relu(Wx + Uh + b)", "Le, Jaitly, Hinton 2015",
               "rnn:hidden=128,layers=1", &make_recurrent<kernels::Cell::vanilla>},
    ModelEntry{"lstm-lm", "a language model: embedding, LSTM layers of its width, softmax over all words at each step",
               "Zaremba, Sutskever, Vinyals 2014, without dropout",
               "lstm-lm:hidden=128,layers=1,steps=20,tied=0,words=16", &make_language_model<kernels::Cell::lstm>, true},
    ModelEntry{"gru-lm", "the same with GRU layers, reset before the product", "Cho et al. 2014",
               "gru-lm:hidden=128,layers=1,steps=20,tied=0,words=16", &make_language_model<kernels::Cell::gru>, true},
    ModelEntry{"rnn-lm", "the same with plain recurrent layers", "Mikolov et al. 2010; Le, Jaitly, Hinton 2015",
               "rnn-lm:hidden=128,layers=1,steps=20,tied=0,words=16", &make_language_model<kernels::Cell::vanilla>,
               true},
    ModelEntry{"transformer-lm",
               "the same with causal attention: learned positions, blocks with layer norm first, GELU between",
               "Vaswani et al. 2017; Radford et al. 2019 (GPT-2), without dropout",
               "transformer-lm:ff=256,heads=4,hidden=64,layers=2,steps=20,tied=0,words=16", &make_transformer_lm, true},
};

bool is_table_file(const core::ParsedName& name) { return name.base.ends_with(".csv"); }

/// Makes the network of a layer table that is part of the program, or of a table in a file; null if the name is
/// neither.
std::unique_ptr<Network> make_table(const core::ParsedName& name, const ModelRequest& request) {
  const auto shipped = shipped_layer_tables();
  if (!is_table_file(name) && std::ranges::find(shipped, name.base) == shipped.end()) return nullptr;
  const core::ParsedName full_name = core::with_defaults("model", name.base, "shrink=1", name);
  const auto shrink = core::count_parameter(full_name, "shrink", {.least = 1, .most = 1024});
  const LayerTable t = is_table_file(name) ? read_layer_table(name.base) : shipped_layer_table(name.base);
  return make_table_network(shrink > 1 ? shrunk(t, shrink) : t, {.name = shrink > 1 ? full_name.canonical() : name.base,
                                                                 .features = request.features,
                                                                 .classes = request.classes,
                                                                 .precision = request.precision,
                                                                 .worker = request.worker,
                                                                 .device = request.device,
                                                                 .part = request.part});
}

void require_fit(const Model& model, std::size_t features, std::size_t classes) {
  if (model.input_features() != features)
    throw core::UsageError(
        fmt::format("model '{}' takes {} inputs, but the data has {} features; make its first width {}", model.name(),
                    model.input_features(), features, features));
  if (model.classes() != classes)
    throw core::UsageError(fmt::format("model '{}' ends in {} classes, but the data has {}; make its last width {}",
                                       model.name(), model.classes(), classes, classes));
}

/// Checks the kind of the data before the model is made, since the model takes its sizes from the data.
void require_kind(const ModelEntry& entry, const ModelRequest& request) {
  if (entry.reads_text && request.labels != request.features)
    throw core::UsageError(fmt::format(
        "model '{}' reads sentences, but the data is images; add --data language, or a text's file", entry.name));
  if (!entry.reads_text && request.labels != 1)
    throw core::UsageError(
        fmt::format("model '{}' reads images, but the data is sentences; take lstm-lm, gru-lm, rnn-lm or "
                    "transformer-lm",
                    entry.name));
}

[[noreturn]] void refuse_name(std::string_view name) {
  std::vector<std::string> names;
  for (const ModelEntry& entry : table) names.emplace_back(entry.name);
  for (const std::string_view table_name : shipped_layer_tables()) names.emplace_back(table_name);
  core::refuse_unknown("model", name, names);
}

}  // namespace

std::span<const ModelEntry> model_table() { return table; }

std::unique_ptr<Network> make_model(std::string_view name, const ModelRequest& request) {
  if (request.part.micro_batches == 0)
    throw core::UsageError(
        "a batch is to be cut into 0 micro-batches, which leaves nothing to train on; give 1 or more");
  const core::ParsedName parsed = core::parse_name(name);
  const auto* const entry = std::ranges::find(table, parsed.base, &ModelEntry::name);
  if (entry != table.end()) require_kind(*entry, request);
  auto network = entry != table.end() ? entry->make(parsed, request) : make_table(parsed, request);
  if (!network) refuse_name(parsed.base);
  require_fit(*network, request.features, request.classes);
  return network;
}

bool is_rounded_by_software(std::string_view name, const ModelRequest& request) {
  if (!kernels::info(request.precision).emulated) return false;
  return std::ranges::any_of(make_model(name, request)->pass_problems(1), [&](const RepeatedProblem& p) {
    return kernels::is_rounded_by_software(p.problem, request.device);
  });
}

}  // namespace gradmeter::model
