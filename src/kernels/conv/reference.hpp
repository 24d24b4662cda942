// SPDX-License-Identifier: Apache-2.0
// Convolution by its definition, in float64, one element of the result at a time, so that a large result can be
// sampled. It is a cross-correlation, as in all deep learning libraries, with zeros outside the input.
#pragma once
#include <functional>
#include <span>

#include "kernels/cases/kernel_case.hpp"

namespace gradmeter::kernels {

/// Returns an element of an operand by its index in the dense row-major tensor, whatever the layout of the stored data.
using ElementAt = std::function<double(std::size_t)>;

/// Element `index` of the result of a pass, from its two inputs in the order of Op.
/// Shape:  input [batch x channels x height x width], filters [filters x channels x filter_height x filter_width],
///         output [batch x filters x out_height x out_width]; a gradient has the shape of its tensor.
/// Cost:   of an element: forward 2·channels·filter_height·filter_width FLOP, backward_data 2·filters·(filter area /
///         stride area), backward_weights 2·batch·out_height·out_width.
ReferenceSum conv_at(const ConvShape&, Pass, std::span<const float> left, std::span<const float> right,
                     std::size_t index);
ReferenceSum conv_at(const ConvShape&, Pass, const ElementAt& left, const ElementAt& right, std::size_t index);

std::size_t input_elements(const ConvShape&);
std::size_t filter_elements(const ConvShape&);
std::size_t output_elements(const ConvShape&);

}  // namespace gradmeter::kernels
