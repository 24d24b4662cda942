// A fully connected layer, with ReLU or without.
#pragma once
#include <memory>

#include "model/layers/layer.hpp"

namespace gradmeter::model {

/// y = relu(x·Wᵀ + b). Tensors: weight [out × in], bias [out]. Takes a sample of any shape as its elements.
/// Cost: 2·in·out FLOP a sample in each of its three passes. Initial weights: He et al., ICCV 2015 (uniform, variance
/// 2/in); biases zero.
/// precision: of the products. Where sums are logarithms, the bias is added as one and its gradient summed as one.
std::unique_ptr<Layer> make_dense_layer(const SampleShape& input, std::size_t out, kernels::Activation,
                                        kernels::Precision = kernels::Precision::fp32);

struct StepDenseOptions {
  kernels::Activation activation = kernels::Activation::none;
  kernels::Precision precision = kernels::Precision::fp32;
  Weight weight = Weight::own;
  double variance = 2;    ///< of an initial weight, times the features
  std::size_t parts = 1;  ///< outputs are so many equal parts one after another; tensor ranks have a share of each
};

/// The same for each step of a sentence: [steps × features] to [steps × out], with one weight for all. Tied: its weight
/// is that of the embedding [out words × features], and the bias alone its own.
std::unique_ptr<Layer> make_step_dense_layer(const TokenShape& input, std::size_t out, const StepDenseOptions& = {});

}  // namespace gradmeter::model
