// SPDX-License-Identifier: Apache-2.0
// The models by name, and the function that makes one from its name.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/name.hpp"
#include "model/layers/layer.hpp"
#include "model/model.hpp"
#include "model/network/network.hpp"
#include "model/network/part.hpp"

namespace gradmeter::model {

/// The data, device and part that a model is made for.
struct ModelRequest {
  std::size_t features = 0, classes = 0;  ///< numbers of features and classes of the data
  std::size_t labels = 1;                 ///< labels of a sample; a sentence has as many as features
  kernels::Precision precision = kernels::Precision::fp32;
  /// Precision in which softmax cross-entropy is computed: fp32, or the logarithmic number format (lns16…) in which
  /// sums and updates are computed too.
  kernels::Precision loss_precision = kernels::Precision::fp32;
  Part part = {};
  /// The rank's number on the data axis. Models that draw their own data draw other data for each number.
  std::uint64_t worker = 0;
  std::string_view device = "host";  ///< runtime::Device::name of the device that runs its operations
};

/// One row of the table that `gradmeter list models` prints.
struct ModelEntry {
  std::string_view name, description, source;  ///< source: the publication
  /// The full name that the bare name stands for, given 28 × 28 images of ten digits, or the built-in language.
  std::string_view default_name;
  std::unique_ptr<Network> (*make)(const core::ParsedName&, const ModelRequest&);
  bool reads_text = false;  ///< the data are sentences, in which each token is to be predicted
};
std::span<const ModelEntry> model_table();

/// Makes the model of a name. "mlp" takes its outer widths from the data and has two hidden layers of 1024;
/// "mlp:784-100-10" gives all widths. "resnet50" and "FILE.csv" are layer tables (table/layer_table.hpp); shrink=2
/// halves their widths.
/// Errors: UsageError for an unknown name, for parameters that the model does not have, and when the model does not fit
/// the data, lacks the precision, or cannot be split as the request's part says.
std::unique_ptr<Network> make_model(std::string_view name, const ModelRequest&);
/// True if software, not the processor, rounds to the precision in some of the model's operations. The model's times
/// then tell nothing about the precision.
bool is_rounded_by_software(std::string_view name, const ModelRequest&);

/// Makes the name of an mlp, such as "mlp:784-100-10": a fully connected network with ReLU between its layers and
/// softmax cross-entropy on top. Nearly all of its time is matrix products, so it suits experiments with batch,
/// precision and exchange. widths: features, hidden layers, classes.
/// Errors: UsageError for fewer than 2 widths, more than 64, or a width outside 1 … 65536.
std::string mlp_name(std::span<const std::size_t> widths);
/// The layers of an mlp. Weights are stored as [out × in], as in most frameworks. Compared with [in × out] (oneDNN 2.6,
/// AVX-512, batch 16 and 256), the products of a step take the same time within 2 %, and the gradient of the narrow
/// last layer takes 0.6 times as long.
std::vector<std::unique_ptr<Layer>> mlp_layers(std::span<const std::size_t> widths, kernels::Precision);

/// The sizes of a small decoder like GPT-2.
struct TransformerOptions {
  std::size_t steps = 0, words = 0;                          ///< tokens of a sample, and words of the vocabulary
  std::size_t hidden = 64, layers = 2, heads = 4, ff = 256;  ///< ff: units of a block's feed-forward part
  Weight softmax = Weight::own;                              ///< tied: the last layer has the embedding's weight
  kernels::Precision precision = kernels::Precision::fp32;
};

/// The layers of the decoder: embedding, learned positions, `layers` blocks, layer norm, and a dense layer to all words
/// at each step. A block is x += project(attention(project(norm(x)))), then x += dense(gelu(dense(norm(x)))) with `ff`
/// units: norms come first (pre-norm), as in GPT-2. There is no dropout. Initial weights of dense layers are uniform
/// within ±1/√in; at GPT-2's width their variance is near that of GPT-2's weights. Embeddings and positions are uniform
/// within ±0.1.
/// Cost: forward, a token takes 2·(4·hidden² + 2·hidden·ff) + 4·steps·hidden FLOP of products in each block, and
/// 2·hidden·words in the last layer; backward, twice as much. Source: Vaswani et al. 2017; Radford et al. 2019 (GPT-2).
/// Errors: UsageError when the heads do not divide the width.
std::vector<std::unique_ptr<Layer>> make_transformer_layers(const TransformerOptions&);

}  // namespace gradmeter::model
