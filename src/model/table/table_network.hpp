// SPDX-License-Identifier: Apache-2.0
// A layer table as a network: each layer of the table becomes a `Layer`.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "model/network/network.hpp"
#include "model/table/layer_table.hpp"

namespace gradmeter::model {

struct TableNetworkOptions {
  std::string name;  ///< canonical: "resnet50:shrink=2"
  /// Numbers of features and classes of the run's data set, whose samples the table's operations do not read.
  std::size_t features = 0, classes = 0;
  /// precision of its operations; parameters and gradients are fp32
  kernels::Precision precision = kernels::Precision::fp32;
  std::uint64_t worker = 0;          ///< ranks with different numbers have different data
  std::string_view device = "host";  ///< runtime::Device::name of the device that runs its operations
  Part part = {};
};

/// A network as a workload: it runs every product, convolution and recurrent layer of the table, forward and backward.
/// Its gradients have the real sizes and become ready in the real order. It does not learn. Layers run in the table's
/// order. Activation functions, norms and pooling are skipped: a layer reads the output of the layer before if the
/// sizes agree, and random data otherwise. Gradients are passed back in the same way. Biases, norms and other tensors
/// whose gradients no operation computes get a gradient copied from random data. For a row without geometry, the model
/// runs the product that the row's shape and FLOP imply, and says so in `note`.
/// Weights start with a variance of 1/(inputs), which keeps values near 1 through the layers. The gradient that enters
/// at the top is random, and its sign varies from pass to pass, so weights stay near their start however long the model
/// runs.
/// The layers of a rank are prepared together: activations stay in the library's layouts from layer to layer. Pipeline
/// stages send as many fp32 numbers as the next stage's first layer reads. If no layer of a stage computes so many,
/// because pooling was skipped, or because attention comes last, the stage sends random numbers.
/// Cost: the operations of `problems_of`; converting weights and gradients if the library has other layouts; setting an
/// embedding's gradient to zero and adding its rows.
/// Errors: those of layers_of and Network; UsageError when no backend takes an operation in this precision, and for
/// tensor ranks, since a table does not say which layers read the same numbers.
std::unique_ptr<Network> make_table_network(const LayerTable&, const TableNetworkOptions&);

}  // namespace gradmeter::model
