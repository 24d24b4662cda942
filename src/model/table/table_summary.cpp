#include "model/table/table_summary.hpp"

namespace gradmeter::model {

TableSummary summary(const LayerTable& table) {
  TableSummary s{.parameters = table.parameters(), .forward_flops = table.forward_flops(), .largest_tensor = {}};
  for (const TableRow& row : table.rows) {
    s.tensors += row.parameters > 0;
    s.activation_bytes += 4 * output_elements(row);
    if (row.parameters <= s.largest_elements) continue;
    s.largest_elements = row.parameters;
    s.largest_tensor = row.layer;
  }
  return s;
}

}  // namespace gradmeter::model
