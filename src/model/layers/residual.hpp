// Layers one after another with a connection around them.
#pragma once
#include <memory>
#include <vector>

#include "model/layers/layer.hpp"

namespace gradmeter::model {

/// y = x + f(x), where f is the layers one after another. Tensors: theirs, last layer first, named "2.weight".
/// Cost: theirs, and 12 bytes an element forward, 20 backward. Source: He et al., CVPR 2016. Tensor ranks share its
/// pairs of layers (`cut_pairs`, `Cut::within`): what is added to x is the sum over them.
/// Errors: std::logic_error when a layer does not take what the one before gives, or the last gives no x.
std::unique_ptr<Layer> make_residual_layer(std::vector<std::unique_ptr<Layer>> layers);

}  // namespace gradmeter::model
