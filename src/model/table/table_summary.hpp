// What a layer table comes to: the figures that `gradmeter list models` shows.
#pragma once
#include <cstddef>
#include <string>

#include "model/table/layer_table.hpp"

namespace gradmeter::model {

struct TableSummary {
  std::size_t tensors = 0;  ///< rows with parameters: each is a gradient
  std::size_t parameters = 0;
  double forward_flops = 0;    ///< of a sample
  std::string largest_tensor;  ///< its row's name; the first of several
  std::size_t largest_elements = 0;
  double activation_bytes = 0;  ///< of a sample: the results of all products, 4 bytes each
  double flops_per_parameter() const { return forward_flops / static_cast<double>(parameters); }
  double largest_share() const { return static_cast<double>(largest_elements) / static_cast<double>(parameters); }
};

TableSummary summary(const LayerTable&);

}  // namespace gradmeter::model
