// SPDX-License-Identifier: Apache-2.0
// A table of a network's layers in forward order, as in data/models: one row for each tensor, and one for each
// computation without a tensor.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/csv.hpp"
#include "core/embedded.hpp"

namespace gradmeter::model {

enum class RowKind : std::uint8_t {
  conv,
  conv1d,
  linear,
  linear_tied,
  lstm,
  gru,
  rnn,
  attention_matmul,
  embedding,
  norm,
  bias,
  vector
};
std::string_view name(RowKind);
/// The number of gates; 1 for rows that are neither lstm nor gru.
std::size_t gates_of(RowKind);
/// The elements of a shape; 1 for an empty one.
std::size_t elements(const std::vector<std::size_t>& shape);

/// One row. A row that computes, but for which the table has no geometry (`has_geometry` is false), runs as the product
/// that its shape implies. Such a row has a shape, and its FLOP are a multiple of twice the number of elements of that
/// shape.
struct TableRow {
  std::string layer;
  RowKind kind = RowKind::linear;
  std::vector<std::size_t> shape = {};  ///< as in the file; empty: no tensor ("-")
  std::size_t parameters = 0;  ///< elements of its gradient; 0: the row only computes, and has no gradient to exchange
  double forward_flops = 0;    ///< FLOP of the products of one sample; a multiply and an add count as two
  /// Shape of the input of one sample: channels x height x width, channels x steps, or features.
  std::vector<std::size_t> input = {};
  std::array<std::size_t, 2> stride{1, 1}, padding{0, 0};  ///< height, width
  std::size_t groups = 1;
  std::size_t steps = 0;  ///< per sample: rows of a product, steps of a recurrent layer, tokens, lookups of words
  std::size_t heads = 0;  ///< of an attention
  std::size_t line = 0;   ///< line in the file, from 1
  bool has_geometry = false;
};
/// The number of elements that the row's products compute for a sample; 0 if it computes nothing.
double output_elements(const TableRow&);

struct LayerTable {
  std::string name;    ///< "resnet50", or the file's path
  std::string sample;  ///< "1 image 3x224x224"; empty: unknown
  std::string source;
  std::vector<TableRow> rows;

  std::size_t parameters() const;
  double forward_flops() const;  ///< for one sample
  std::size_t tensors() const;   ///< number of rows with parameters, each of which has a gradient
  /// The row with the largest tensor; if there are several, the first.
  const TableRow& largest() const;
  double activation_bytes() const;  ///< for one sample: 4 bytes for each number that products compute
};

/// The tables of data/models, which are part of the program, by name.
std::vector<std::string_view> shipped_layer_tables();
/// The table of this name, with its sample and source. Errors: UsageError for an unknown name, with the known ones.
LayerTable shipped_layer_table(std::string_view name);
/// Reads a table in the format of docs/models.md. The table's total parameters and FLOP must be above 0, and its rows
/// consistent.
/// Cost: O(rows log rows). Errors: UsageError, one line, "FILE:LINE:COLUMN: what", for the first fault.
LayerTable parse_layer_table(std::string_view text, const std::string& file);
/// Errors: UsageError when the file cannot be read; those of `parse_layer_table`.
LayerTable read_layer_table(const std::string& path);

/// Sets input, stride, padding, groups, steps, heads and has_geometry from the row's cells. Errors: CsvFault for a
/// column that the kind does not have, and for a geometry that does not give the row's FLOP.
void read_geometry(const core::CsvRow&, TableRow&);

/// True if a recurrent row has the weights of the input and of the state in one matrix: (input + hidden) x (gates *
/// hidden). False if the shape could also be that of the weights of the input alone: (gates * hidden) x input.
bool is_fused(const TableRow&);

// The files of data/models, which are part of the program.

/// A file for each layer table, and "index", which has the sample, source and totals of each table.
std::span<const core::EmbeddedFile> embedded_layer_tables();

}  // namespace gradmeter::model
