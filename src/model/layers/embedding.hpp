// The first layer of a language model: a row of numbers for each word.
#pragma once
#include <memory>

#include "model/layers/layer.hpp"

namespace gradmeter::model {

/// Inputs are words' numbers as fp32 [steps], outputs their rows [steps × width]. Tensor: weight [words × width]. Its
/// gradient is dense: rows of words that a batch does not have are zero; rows are added in the order of the batch.
/// Cost: no FLOP; 8·width bytes a word forward, 4·words·width and 12·width a word backward. Initial values: uniform
/// within ±0.1 (Zaremba et al. 2014, small). Its input has no gradient. Tied: its gradient is added to that which the
/// last layer wrote.
/// Errors, within the work: std::out_of_range for a number that is no word's.
std::unique_ptr<Layer> make_embedding_layer(std::size_t steps, std::size_t words, std::size_t width,
                                            Weight = Weight::own);

}  // namespace gradmeter::model
