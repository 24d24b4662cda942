// SPDX-License-Identifier: Apache-2.0
// The layers of a layer table: its rows as operations, each with the tensors that it owns.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels/problems/problem.hpp"
#include "model/layers/layer.hpp"
#include "model/table/layer_table.hpp"

namespace gradmeter::model {

/// One layer, for one sample. Several rows may form one layer: a recurrent layer has rows for its weights and biases.
struct TableLayer {
  /// tensor: a row with a gradient but no computation (biases, norms).
  enum class Kind : std::uint8_t { tensor, embedding, product, convolution, recurrent, attention };
  std::string name;
  Kind kind = Kind::tensor;
  /// The table rows of its tensors. recurrent: the weights of the input, the weights of the state, then the biases; if
  /// one matrix has both weights, one row stands for both. A tied product has the embedding's row.
  std::vector<std::size_t> rows = {};
  /// product: for one sample, m rows, n outputs and k inputs. attention: m = n tokens, and k is a head's width. The
  /// batch is 1 everywhere.
  kernels::ProblemShape shape = kernels::GemmShape{};
  std::size_t weight_rows = 1;  ///< recurrent: number of table rows with weights: two, or one that has both
  std::size_t heads = 1;        ///< attention heads
  bool has_scores = true;       ///< attention: computes scores and context; if false, only the context
  bool is_tied = false;         ///< product: another row has its tensor; embedding: a product adds to its gradient
  std::size_t owner = 0;        ///< tied product: index of the embedding among the layers
  bool is_implied = false;      ///< its row has no geometry: the product follows from the row's shape and FLOP
  std::size_t vocabulary = 0, width = 0, lookups = 0;  ///< an embedding's sizes for one sample

  bool computes() const { return kind >= Kind::product; }
  std::size_t input_elements() const;   ///< elements for one sample
  std::size_t output_elements() const;  ///< elements for one sample
};

/// The layers, in forward order. Errors: UsageError with the table's name and line for rows that make no layer.
std::vector<TableLayer> layers_of(const LayerTable&);

/// The table with all widths of at least 16 (channels, features, states, vocabularies) divided by `divisor`, rounded
/// up. Sizes of images, sides of filters, steps and heads stay; FLOP and parameters are recomputed. Errors: UsageError
/// when the width of a recurrent layer's input or state, or of a head, is not a multiple of `divisor`.
LayerTable shrunk(const LayerTable&, std::size_t divisor);

/// The number of the layer's rows, from the first one on, whose gradients its operations compute.
std::size_t rows_with_computed_gradients(const TableLayer&);

/// The operations that the layer runs forward and backward over this many samples. input_gradient: whether the
/// operations that compute its input's gradient are included.
LayerProblems problems_of(const TableLayer&, std::size_t samples, bool input_gradient, kernels::Precision);

}  // namespace gradmeter::model
