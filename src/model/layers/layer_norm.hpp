// Layer normalisation of each token.
#pragma once
#include <memory>

#include "model/layers/layer.hpp"

namespace gradmeter::model {

/// y = (x − mean)/√(variance + 1e-5)·gain + bias over the features of a step. Tensors: gain [features], bias
/// [features]. Cost: 12 bytes an element forward, 28 backward; moments are computed in each pass again. Initial values:
/// gains 1, biases 0. Source: Ba, Kiros, Hinton 2016.
std::unique_ptr<Layer> make_layer_norm_layer(const TokenShape&);

}  // namespace gradmeter::model
