#include "model/layers/transformer.hpp"

#include "model/layers/attention.hpp"
#include "model/layers/dense.hpp"
#include "model/layers/embedding.hpp"
#include "model/layers/gelu.hpp"
#include "model/layers/layer_norm.hpp"
#include "model/layers/positions.hpp"
#include "model/layers/residual.hpp"

namespace gradmeter::model {
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

}  // namespace gradmeter::model
