// What the geometry of a table's row must agree with: its shape and its FLOP.
#pragma once
#include "kernels/problems/csv.hpp"
#include "model/table/layer_table.hpp"

namespace gradmeter::model {

/// Fills in input, stride, padding, groups, steps, heads and has_geometry from the row's cells.
/// Errors: CsvFault for a column that the kind does not have, and for a geometry that does not give the row's FLOP.
void read_geometry(const kernels::CsvRow&, TableRow&);

/// Whether a recurrent row's shape is (input + hidden) x (gates * hidden). A shape that could be both is the weights of
/// the input alone: (gates * hidden) x input.
bool is_fused(const TableRow&);

}  // namespace gradmeter::model
