// A table of a network's layers: one row for each tensor, in forward order, as data/models has it.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

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

/// One row. Without its geometry (`has_geometry` false) a row that computes runs as the product that its shape implies:
/// then it has a shape, and its FLOP are a multiple of 2 for each element of it.
struct TableRow {
  std::string layer;
  RowKind kind = RowKind::linear;
  std::vector<std::size_t> shape = {};  ///< as the file has it; empty: no tensor ("-")
  std::size_t parameters = 0;           ///< elements of its gradient; 0: it computes and sends nothing
  double forward_flops = 0;             ///< of a sample, products alone, multiply and add counted as two
  std::vector<std::size_t> input = {};  ///< of a sample: channels x height x width, channels x steps, or features
  std::array<std::size_t, 2> stride{1, 1}, padding{0, 0};  ///< height, width
  std::size_t groups = 1;
  std::size_t steps = 0;  ///< rows of a product, steps of a recurrent layer, tokens of an attention, per sample
  std::size_t heads = 0;
  std::size_t line = 0;  ///< of the file, from 1
  bool has_geometry = false;
};
/// Results of the row's products for a sample; 0 where it computes nothing.
double output_elements(const TableRow&);

struct LayerTable {
  std::string name;    ///< "resnet50", or the file's path
  std::string sample;  ///< "1 image 3x224x224"; empty: not known
  std::string source;
  std::vector<TableRow> rows;
  std::size_t parameters() const;
  double forward_flops() const;  ///< of a sample
};

/// The tables of data/models, which are part of the program, by name.
std::vector<std::string_view> shipped_layer_tables();
/// With its sample and source. Errors: UsageError for a name that is not known, with those that are.
LayerTable shipped_layer_table(std::string_view name);
/// docs/models.md describes the format. Its parameters and FLOP are above 0, its rows agree with themselves.
/// Cost:   O(rows log rows).
/// Errors: UsageError, one line, "FILE:LINE:COLUMN: what", for the first fault.
LayerTable parse_layer_table(std::string_view text, const std::string& file);
/// Errors: UsageError when the file cannot be read, and as above.
LayerTable read_layer_table(const std::string& path);

}  // namespace gradmeter::model
