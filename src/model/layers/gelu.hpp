// The Gaussian error linear unit of each number.
#pragma once
#include <memory>

#include "model/layers/layer.hpp"

namespace gradmeter::model {

/// y = gelu(x), in the form with tanh (kernels/transformer.hpp). Cost: 8 bytes an element forward, 12 backward.
/// Source: Hendrycks & Gimpel 2016.
std::unique_ptr<Layer> make_gelu_layer(const TokenShape&);

}  // namespace gradmeter::model
