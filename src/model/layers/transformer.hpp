// The layers of a small decoder in the manner of GPT-2.
#pragma once
#include <memory>
#include <vector>

#include "model/layers/layer.hpp"

namespace gradmeter::model {

struct TransformerOptions {
  std::size_t steps = 0, words = 0;  ///< of the data
  std::size_t hidden = 64, layers = 2, heads = 4, ff = 256;
  Weight softmax = Weight::own;
  kernels::Precision precision = kernels::Precision::fp32;
};

/// Embedding, learned positions, `layers` blocks, layer norm, dense to all words at each step. A block is
/// x += project(attention(project(norm(x)))), then x += dense(gelu(dense(norm(x)))) with `ff` units: norms come first
/// (pre-norm), as in GPT-2. No dropout. Initial weights of dense layers are uniform within ±1/√in, a variance near
/// GPT-2's at its width; embeddings and positions within ±0.1.
/// Cost: products of 2·(4·hidden² + 2·hidden·ff) + 4·steps·hidden FLOP a block and token forward, and 2·hidden·words a
/// token; twice that backward. Source: Vaswani et al. 2017; Radford et al. 2019 (GPT-2).
/// Errors: UsageError when the heads do not divide the width.
std::vector<std::unique_ptr<Layer>> make_transformer_layers(const TransformerOptions&);

}  // namespace gradmeter::model
