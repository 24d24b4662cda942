// A recurrent layer: vanilla, lstm or gru, from zero states.
#pragma once
#include <memory>

#include "model/layers/layer.hpp"

namespace gradmeter::model {

/// The state after every step, or after the last.
enum class RecurrentOutput : std::uint8_t { every_step, last_step };

/// h: the width of the state. Tensors: weights [features × gates × h], recurrent [h in × gates × h out], bias [gates ×
/// h]; the cells' definitions are in kernels/reference/rnn.hpp.
/// Cost: 2·gates·h·(features + h) FLOP a sample and step forward, as much for the gradients of inputs and of weights
/// each; its inputs and outputs are transposed, since the backend takes steps before samples.
/// Initial values: uniform, variance 1/(3·h), biases zero.
std::unique_ptr<Layer> make_recurrent_layer(kernels::Cell, const TokenShape& input, std::size_t h, RecurrentOutput,
                                            kernels::Precision = kernels::Precision::fp32);

}  // namespace gradmeter::model
