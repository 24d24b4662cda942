// SPDX-License-Identifier: Apache-2.0
// The layers that networks are made of.
#pragma once
#include <memory>
#include <vector>

#include "model/layers/layer.hpp"

namespace gradmeter::model {

/// Fully connected: y = relu(x·Wᵀ + b), or without ReLU. Tensors: weight [out × in], bias [out]. A sample of any shape
/// is taken as a list of its `in` elements. Cost: 2·in·out FLOP a sample in each of three products: forward, the
/// input's gradient and the weight's. Initial weights: He et al., ICCV 2015 (uniform, variance 2/in); biases zero. The
/// precision is that of the products. If it sums in logarithms, the bias is added, and its gradient summed, in
/// logarithms too.
std::unique_ptr<Layer> make_dense_layer(const SampleShape& input, std::size_t out, kernels::Activation,
                                        kernels::Precision = kernels::Precision::fp32);

struct StepDenseOptions {
  kernels::Activation activation = kernels::Activation::none;
  kernels::Precision precision = kernels::Precision::fp32;
  Weight weight = Weight::own;
  double variance = 2;  ///< initial weights are uniform with a variance of `variance` ÷ input features
  /// The outputs consist of this many equal parts, one after another, such as query, key and value; each tensor rank
  /// has a share of each part.
  std::size_t parts = 1;
};

/// A dense layer that is applied to each step of a sentence: [steps × features] to [steps × out], with one weight for
/// all steps. Tied: its weight is that of the embedding [out words × features], and only the bias is its own.
std::unique_ptr<Layer> make_step_dense_layer(const TokenShape& input, std::size_t out, const StepDenseOptions& = {});

struct ConvolutionOptions {
  std::size_t filters = 1, side = 3;  ///< number and side of square filters
  std::size_t stride = 1, pad = 0;
};
/// A convolution with bias and ReLU: y = relu(x ∗ F + b). Tensors: filters [filters × channels × side × side], bias
/// [filters]. Cost: 2·outputs·channels·side² FLOP a sample in each of three operations: forward, the input's gradient
/// and the filters'; plus a pass over images and filters if the backend has its own layouts. Initial filters: He et
/// al., ICCV 2015 (uniform, variance 2/(channels·side²)).
std::unique_ptr<Layer> make_convolution_layer(const ImageShape& input, const ConvolutionOptions&,
                                              kernels::Precision = kernels::Precision::fp32);

/// The states that a recurrent layer gives as output: the state after every step, or only that after the last step.
enum class RecurrentOutput : std::uint8_t { every_step, last_step };

/// A recurrent layer that begins with zero states: vanilla, lstm or gru. h is the width of the state; gates is the
/// number of the cell's gates (1, 4 or 3). Tensors: weights [features × gates × h], recurrent [h in × gates × h out],
/// bias [gates × h]. kernels/rnn/reference.hpp defines the cells.
/// Cost: 2·gates·h·(features + h) FLOP a sample and step forward, and as much for each of the gradients of inputs and
/// weights. Inputs and outputs are transposed, since the backend takes steps before samples. Initial values: uniform,
/// variance 1/(3·h); biases zero.
std::unique_ptr<Layer> make_recurrent_layer(kernels::Cell, const TokenShape& input, std::size_t h, RecurrentOutput,
                                            kernels::Precision = kernels::Precision::fp32);

struct AttentionOptions {
  std::size_t width = 0, heads = 1;  ///< the width must be a multiple of heads
  kernels::Precision precision = kernels::Precision::fp32;
};

/// Causal self-attention without its projections. The input of a step is its query, key and value [3 × heads ×
/// width/heads]; its output is the heads' contexts [heads × width/heads], softmax(q·kᵀ/√(width/heads))·v over this step
/// and all steps before it. It has no tensors; dense layers before and after it are the projections. Cost:
/// 4·steps²·width FLOP a sample forward, twice that backward, in batches of samples·heads products; the masked half of
/// the scores is computed too. Operands are reordered by heads and back. Each tensor rank has some of the heads
/// (`Cut::between`).
/// Source: Vaswani et al. 2017, section 3.2. Errors: UsageError when the heads do not divide the width, or tensor ranks
/// do not divide the heads.
std::unique_ptr<Layer> make_attention_layer(std::size_t steps, const AttentionOptions&);

/// The first layer of a language model: the weight has a row of `width` numbers for each word. Inputs are indices of
/// words as fp32 [steps], outputs the words' rows [steps × width]. Tensor: weight [words × width]. Its gradient is
/// dense: rows of words that a batch does not have are zero, and rows are added in the order of the batch. Cost:
/// forward 8·width bytes a token; backward 4·words·width bytes in all, and width FLOP and 12·width bytes a token.
/// Initial values: uniform within ±0.1 (the small model of Zaremba et al. 2014). The input has no gradient. A tied
/// embedding adds its gradient to the gradient that the last layer wrote. Errors, when the work runs: std::out_of_range
/// for an index that is no word's.
std::unique_ptr<Layer> make_embedding_layer(std::size_t steps, std::size_t words, std::size_t width,
                                            Weight = Weight::own);

/// A learned row of numbers for each position in a sentence: y = x + weight, with the same weight for each sample.
/// Tensor: weight [steps × features]. Cost: 8 bytes an element forward, 12 backward. Initial values: uniform within
/// ±0.1, as the embedding's.
/// Source: learned positions, Gehring et al. 2017; GPT-2.
std::unique_ptr<Layer> make_positions_layer(const TokenShape&);

/// The Gaussian error linear unit of each number: y = gelu(x), in the form with tanh
/// (kernels/attention/transformer.hpp). Cost: 8 bytes an element forward, 12 backward. Source: Hendrycks & Gimpel 2016.
std::unique_ptr<Layer> make_gelu_layer(const TokenShape&);

/// Layer normalisation of each token: y = (x − mean)/√(variance + 1e-5)·gain + bias over the features of a step.
/// Tensors: gain [features], bias [features]. Cost: 12 bytes an element forward, 28 backward; each pass computes mean
/// and variance anew. Initial values: gains 1, biases 0. Source: Ba, Kiros, Hinton 2016.
std::unique_ptr<Layer> make_layer_norm_layer(const TokenShape&);

/// Layers with a residual connection around them: y = x + f(x), where f applies the layers one after another. Tensors:
/// those of the layers, last layer first, named like "2.weight". Cost: that of the layers, and 12 bytes an element
/// forward, 20 backward. Tensor ranks share pairs of its layers (`cut_pairs`, `Cut::within`); a pair's output is summed
/// over the ranks before it is used. Source: He et al., CVPR 2016. Errors: std::logic_error when a layer's input does
/// not have the size of the previous output, or the last output not the size of x.
std::unique_ptr<Layer> make_residual_layer(std::vector<std::unique_ptr<Layer>> layers);

}  // namespace gradmeter::model
