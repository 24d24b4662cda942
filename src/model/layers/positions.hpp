// A learned row of numbers for each place in a sentence.
#pragma once
#include <memory>

#include "model/layers/layer.hpp"

namespace gradmeter::model {

/// y = x + weight, the same for each sample. Tensor: weight [steps × features]. Cost: 8 bytes an element and pass.
/// Initial values: uniform within ±0.1, as the embedding's. Source: learned positions, Gehring et al. 2017; GPT-2.
std::unique_ptr<Layer> make_positions_layer(const TokenShape&);

}  // namespace gradmeter::model
