// SPDX-License-Identifier: Apache-2.0
// The step of one rank on a network that is given as a table of its layers (data/models, or a file): convolutional,
// recurrent and others.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "core/machine.hpp"
#include "model/table/layer_table.hpp"

namespace gradmeter::predict {

/// The table of a name as tables of measurements have it ("ResNet50", "resnet50v1.5", "InceptionV3"), or of a file that
/// ends in .csv; none: no such table. Errors: those of model::read_layer_table.
std::optional<model::LayerTable> find_layer_table(const std::string& name);

struct LayerStep {
  double compute_s = 0;  ///< forward and backward
  double memory_s = 0;   ///< the part of it in which memory, not arithmetic, sets the time
  double update_s = 0;
  double flops = 0;             ///< of both passes
  double activation_bytes = 0;  ///< that the backward pass needs
};
/// Each operation of the table takes the longer of its FLOP at a share of the device's peak and its operands at four
/// fifths of the memory's rate, and each result is gone over by norms and activation functions. Nothing is fitted, and
/// on one GPU such sums are a third to a half away from measurements (results/predict.md).
/// Cost: O(layers). Errors: UsageError of model::layers_of. Precondition: the machine has a device with a peak and a
/// memory rate.
LayerStep layer_step(const model::LayerTable&, std::size_t samples, std::string_view precision, const core::Machine&);

/// 90th percentile of |log(predicted / measured)| of such steps on one GPU: over the rows of data/predict that have one
/// GPU and a network with a table (tests/predict/corpus_test.cpp computes it again).
inline constexpr double layer_step_spread = 1.08;

}  // namespace gradmeter::predict
