// What a layer table computes: its rows as the operations of layers, each with the tensors that it owns.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels/problems/problem.hpp"
#include "model/layers/layer.hpp"
#include "model/table/layer_table.hpp"

namespace gradmeter::model {

/// One layer at one sample. Several rows may be one layer: the weights and biases of a recurrent one.
struct TableLayer {
  /// tensor: it has a gradient, and nothing of it is computed (biases, norms).
  enum class Kind : std::uint8_t { tensor, embedding, product, convolution, recurrent, attention };
  std::string name;
  Kind kind = Kind::tensor;
  /// Rows of its tensors. recurrent: weights of the input, of the state (the same row where one matrix has both), then
  /// biases. A tied product: the embedding's row.
  std::vector<std::size_t> rows = {};
  /// product: m rows of a sample, n outputs, k inputs; of attention: m = n tokens, k of a head. Batch is 1 everywhere.
  kernels::ProblemShape shape = kernels::GemmShape{};
  std::size_t heads = 1;    ///< of attention
  bool has_scores = true;   ///< attention: scores and context; else the context alone is a product
  bool is_tied = false;     ///< product: another row has its tensor; embedding: a product adds to its gradient
  bool is_implied = false;  ///< the product that its shape and FLOP imply: its row has no geometry
  std::size_t vocabulary = 0, width = 0, lookups = 0;  ///< embedding: of a sample

  bool computes() const { return kind >= Kind::product; }
  std::size_t input_elements() const;   ///< of a sample
  std::size_t output_elements() const;  ///< of a sample
};

/// In forward order. Errors: UsageError with the table's name and line for rows that make no layer.
std::vector<TableLayer> layers_of(const LayerTable&);

/// The table with all widths of at least 16 (channels, features, states, vocabularies) divided by `divisor`, rounded
/// up; images, filters' sides, steps and heads stay. FLOP and parameters follow.
/// Errors: UsageError when a recurrent state or the width of a head does not divide.
LayerTable shrunk(const LayerTable&, std::size_t divisor);

/// The operations that one pass runs, at so many samples. input_gradient: of its input too.
LayerProblems problems_of(const TableLayer&, std::size_t samples, bool input_gradient, kernels::Precision);

}  // namespace gradmeter::model
