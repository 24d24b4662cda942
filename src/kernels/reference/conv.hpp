// Convolution by its definition, in float64, one element of the result at a time, so that a big result can be sampled.
// Cross-correlation, as all deep learning libraries define it; zeros outside the input.
#pragma once
#include <functional>
#include <span>

#include "kernels/cases/element_check.hpp"

namespace gradmeter::kernels {

/// Element `index` of the output [batch x filters x out_height x out_width].
/// Shape:  input [batch x channels x height x width], filters [filters x channels x filter_height x filter_width].
/// Cost:   2·channels·filter_height·filter_width FLOP.
ReferenceSum conv_forward_at(const ConvShape&, std::span<const float> input, std::span<const float> filters,
                             std::size_t index);
/// Element `index` of the input's gradient; `output` is the output's gradient.
/// Cost:   2·filters·(filter area / stride area) FLOP.
ReferenceSum conv_backward_data_at(const ConvShape&, std::span<const float> output, std::span<const float> filters,
                                   std::size_t index);
/// Element `index` of the filters' gradient.
/// Cost:   2·batch·out_height·out_width FLOP.
ReferenceSum conv_backward_weights_at(const ConvShape&, std::span<const float> input, std::span<const float> output,
                                      std::size_t index);

/// Element of an operand's plain form.
using ElementAt = std::function<double(std::size_t)>;
/// Element `index` of what a pass computes of its two inputs, in the order of Op.
ReferenceSum conv_at(const ConvShape&, Pass, const ElementAt& left, const ElementAt& right, std::size_t index);

std::size_t input_elements(const ConvShape&);
std::size_t filter_elements(const ConvShape&);
std::size_t output_elements(const ConvShape&);

}  // namespace gradmeter::kernels
