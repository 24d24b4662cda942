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

TokenShape tokens_of(const TransformerOptions& o, std::size_t features) {
  return {.steps = o.steps, .features = features};
}

std::unique_ptr<Layer> project(const TransformerOptions& o, std::size_t in, std::size_t out,
                               Weight weight = Weight::own, std::size_t parts = 1) {
  return make_step_dense_layer(tokens_of(o, in), out,
                               {.precision = o.precision, .weight = weight, .variance = 1.0 / 3, .parts = parts});
}

std::unique_ptr<Layer> attention_part(const TransformerOptions& o) {
  Layers part;
  part.push_back(make_layer_norm_layer(tokens_of(o, o.hidden)));
  part.push_back(project(o, o.hidden, 3 * o.hidden, Weight::own, 3));
  part.push_back(make_attention_layer(o.steps, {.width = o.hidden, .heads = o.heads, .precision = o.precision}));
  part.push_back(project(o, o.hidden, o.hidden));
  return make_residual_layer(std::move(part));
}

std::unique_ptr<Layer> feed_forward_part(const TransformerOptions& o) {
  Layers part;
  part.push_back(make_layer_norm_layer(tokens_of(o, o.hidden)));
  part.push_back(project(o, o.hidden, o.ff));
  part.push_back(make_gelu_layer(tokens_of(o, o.ff)));
  part.push_back(project(o, o.ff, o.hidden));
  return make_residual_layer(std::move(part));
}

}  // namespace

Layers make_transformer_layers(const TransformerOptions& o) {
  Layers layers;
  layers.push_back(make_embedding_layer(o.steps, o.words, o.hidden, o.softmax));
  layers.push_back(make_positions_layer(tokens_of(o, o.hidden)));
  for (std::size_t block = 0; block < o.layers; ++block) {
    layers.push_back(attention_part(o));
    layers.push_back(feed_forward_part(o));
  }
  layers.push_back(make_layer_norm_layer(tokens_of(o, o.hidden)));
  layers.push_back(project(o, o.hidden, o.words, o.softmax));
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

std::vector<std::size_t> widths_of(const core::ParsedName& name, const ModelRequest& r) {
  if (!name.parameters.empty())
    throw core::UsageError(fmt::format("model 'mlp' has no parameter '{}'; it takes widths, as in mlp:784-100-10",
                                       name.parameters.begin()->first));
  if (name.bare.empty()) return {r.features, 1024, 1024, r.classes};
  return parse_widths(name.bare);
}

/// Checks the whole network on every rank, so that all ranks refuse.
void require_backends(const std::string& name, const std::vector<std::unique_ptr<Layer>>& layers,
                      const ModelRequest& r) {
  std::string why;
  if (kernels::info(r.precision).exact) why = "gradients are no whole numbers; it is for inference";
  if (kernels::info(r.precision).is_gpu_mode) why = "it is a mode of products on a GPU, which `kernels` measures alone";
  for (const auto& l : layers) {
    const LayerProblems problems = l->problems(1, l != layers.front());
    for (const auto* pass : {&problems.forward, &problems.backward})
      for (const kernels::Problem& p : *pass)
        if (why.empty()) why = kernels::op_refusal(p, r.device);
  }
  if (why.empty()) return;
  throw core::UsageError(fmt::format("model '{}' does not train in {}: {}", name, kernels::name(r.precision), why));
}

std::unique_ptr<Network> made_of(std::string name, std::vector<std::unique_ptr<Layer>> layers, const ModelRequest& r) {
  require_backends(name, layers, r);
  return std::make_unique<Network>(std::move(name), std::move(layers), r.part,
                                   NetworkOptions{.loss = r.loss_precision});
}

std::unique_ptr<Network> make_mlp(const core::ParsedName& name, const ModelRequest& r) {
  const std::vector<std::size_t> widths = widths_of(name, r);
  return made_of(mlp_name(widths), mlp_layers(widths, r.precision), r);
}

std::size_t parameter(const core::ParsedName& n, std::string_view key, std::uint64_t most) {
  return core::count_parameter(n, key, {.least = 1, .most = most});
}

/// Samples are square images of one channel.
std::size_t side_of(std::string_view name, const ModelRequest& r) {
  const auto side = static_cast<std::size_t>(std::lround(std::sqrt(static_cast<double>(r.features))));
  if (side > 0 && side * side == r.features) return side;
  throw core::UsageError(
      fmt::format("model '{}' takes square images, but the data has {} features; take mlp", name, r.features));
}

std::unique_ptr<Network> make_cnn(const core::ParsedName& name, const ModelRequest& r) {
  const auto n = core::with_defaults("model", "cnn", "convolutions=2,filters=16,hidden=128", name);
  const std::size_t side = side_of(name.base, r), count = parameter(n, "convolutions", 8);
  std::vector<std::unique_ptr<Layer>> layers;
  ImageShape image{.channels = 1, .height = side, .width = side};
  for (std::size_t i = 0, filters = parameter(n, "filters", 4096); i < count; ++i, filters *= 2) {
    const bool is_first = i == 0;
    layers.push_back(make_convolution_layer(
        image, {.filters = filters, .side = is_first ? 5U : 3U, .stride = 2, .pad = is_first ? 2U : 1U}, r.precision));
    image = std::get<ImageShape>(layers.back()->output());
  }
  layers.push_back(make_dense_layer(image, parameter(n, "hidden", 65536), kernels::Activation::relu, r.precision));
  layers.push_back(make_dense_layer(layers.back()->output(), r.classes, kernels::Activation::none, r.precision));
  return made_of(n.canonical(), std::move(layers), r);
}

template <kernels::Cell cell>
std::unique_ptr<Network> make_recurrent(const core::ParsedName& name, const ModelRequest& r) {
  const auto n = core::with_defaults("model", name.base, "hidden=128,layers=1", name);
  const std::size_t side = side_of(name.base, r), count = parameter(n, "layers", 16),
                    hidden = parameter(n, "hidden", 65536);
  std::vector<std::unique_ptr<Layer>> layers;
  TokenShape tokens{.steps = side, .features = side};
  for (std::size_t i = 0; i < count; ++i) {
    const auto output = i + 1 == count ? RecurrentOutput::last_step : RecurrentOutput::every_step;
    layers.push_back(make_recurrent_layer(cell, tokens, hidden, output, r.precision));
    tokens.features = hidden;
  }
  layers.push_back(make_dense_layer(layers.back()->output(), r.classes, kernels::Activation::none, r.precision));
  return made_of(n.canonical(), std::move(layers), r);
}

void require_text_sizes(const core::ParsedName& n, const ModelRequest& r) {
  const auto steps = parameter(n, "steps", 4096), words = parameter(n, "words", std::uint64_t{1} << 24U);
  if (steps != r.features || words != r.classes)
    throw core::UsageError(
        fmt::format("model '{}': the data's sentences have {} tokens of {} words; leave steps and words out, they come "
                    "from the data",
                    n.canonical(), r.features, r.classes));
}

Weight softmax_of(const core::ParsedName& n) {
  return core::count_parameter(n, "tied", {.least = 0, .most = 1}) == 1 ? Weight::tied : Weight::own;
}

/// Puts the sizes that come from the data into the name, so that a row states them.
template <kernels::Cell cell>
std::unique_ptr<Network> make_language_model(const core::ParsedName& name, const ModelRequest& r) {
  const auto n = core::with_defaults(
      "model", name.base, fmt::format("hidden=128,layers=1,tied=0,steps={},words={}", r.features, r.classes), name);
  require_text_sizes(n, r);
  const std::size_t hidden = parameter(n, "hidden", 65536), count = parameter(n, "layers", 16);
  std::vector<std::unique_ptr<Layer>> layers;
  layers.push_back(make_embedding_layer(r.features, r.classes, hidden, softmax_of(n)));
  const TokenShape tokens{.steps = r.features, .features = hidden};
  for (std::size_t i = 0; i < count; ++i)
    layers.push_back(make_recurrent_layer(cell, tokens, hidden, RecurrentOutput::every_step, r.precision));
  layers.push_back(make_step_dense_layer(tokens, r.classes, {.precision = r.precision, .weight = softmax_of(n)}));
  return made_of(n.canonical(), std::move(layers), r);
}

std::unique_ptr<Network> make_transformer_lm(const core::ParsedName& name, const ModelRequest& r) {
  const auto n = core::with_defaults(
      "model", name.base,
      fmt::format("hidden=64,layers=2,heads=4,ff=256,tied=0,steps={},words={}", r.features, r.classes), name);
  require_text_sizes(n, r);
  return made_of(n.canonical(),
                 make_transformer_layers({.steps = r.features,
                                          .words = r.classes,
                                          .hidden = parameter(n, "hidden", 65536),
                                          .layers = parameter(n, "layers", 64),
                                          .heads = parameter(n, "heads", 1024),
                                          .ff = parameter(n, "ff", 262144),
                                          .softmax = softmax_of(n),
                                          .precision = r.precision}),
                 r);
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

/// Makes a table that is part of the program, or a file; null if the name is neither.
std::unique_ptr<Network> make_table(const core::ParsedName& name, const ModelRequest& r) {
  const auto shipped = shipped_layer_tables();
  if (!is_table_file(name) && std::ranges::find(shipped, name.base) == shipped.end()) return nullptr;
  const core::ParsedName full = core::with_defaults("model", name.base, "shrink=1", name);
  const auto shrink = core::count_parameter(full, "shrink", {.least = 1, .most = 1024});
  const LayerTable t = is_table_file(name) ? read_layer_table(name.base) : shipped_layer_table(name.base);
  return make_table_network(shrink > 1 ? shrunk(t, shrink) : t, {.name = shrink > 1 ? full.canonical() : name.base,
                                                                 .features = r.features,
                                                                 .classes = r.classes,
                                                                 .precision = r.precision,
                                                                 .worker = r.worker,
                                                                 .device = r.device,
                                                                 .part = r.part});
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

/// Checks the data before the model is made, since it takes its sizes from them.
void require_kind(const ModelEntry& entry, const ModelRequest& r) {
  if (entry.reads_text && r.labels != r.features)
    throw core::UsageError(fmt::format(
        "model '{}' reads sentences, but the data is images; add --data language, or a text's file", entry.name));
  if (!entry.reads_text && r.labels != 1)
    throw core::UsageError(
        fmt::format("model '{}' reads images, but the data is sentences; take lstm-lm, gru-lm, rnn-lm or "
                    "transformer-lm",
                    entry.name));
}

[[noreturn]] void refuse_name(std::string_view name) {
  std::vector<std::string> names;
  for (const ModelEntry& entry : table) names.emplace_back(entry.name);
  for (const std::string_view t : shipped_layer_tables()) names.emplace_back(t);
  core::refuse_unknown("model", name, names);
}

}  // namespace

std::span<const ModelEntry> model_table() { return table; }

std::unique_ptr<Network> make_model(std::string_view name, const ModelRequest& r) {
  if (r.part.micro_batches == 0)
    throw core::UsageError(
        "a batch is to be cut into 0 micro-batches, which leaves nothing to train on; give 1 or more");
  const core::ParsedName parsed = core::parse_name(name);
  const auto* const entry = std::ranges::find(table, parsed.base, &ModelEntry::name);
  if (entry != table.end()) require_kind(*entry, r);
  auto network = entry != table.end() ? entry->make(parsed, r) : make_table(parsed, r);
  if (!network) refuse_name(parsed.base);
  require_fit(*network, r.features, r.classes);
  return network;
}

bool is_rounded_by_software(std::string_view name, const ModelRequest& r) {
  if (!kernels::info(r.precision).emulated) return false;
  return std::ranges::any_of(make_model(name, r)->pass_problems(1), [&](const RepeatedProblem& p) {
    return kernels::is_rounded_by_software(p.problem, r.device);
  });
}

}  // namespace gradmeter::model
