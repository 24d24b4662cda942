// SPDX-License-Identifier: Apache-2.0
// The time of a training step of one rank, for a network that is given as a table of its layers (data/models, or a
// file): convolutional, recurrent and others.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "core/machine.hpp"
#include "model/table/layer_table.hpp"

namespace gradmeter::predict {

/// Finds the layer table for a network's name as tables of measurements write it ("ResNet50", "resnet50v1.5",
/// "InceptionV3"), or reads it from the file if `name` ends in .csv. Empty: there is no such table. Errors: those of
/// model::read_layer_table.
std::optional<model::LayerTable> find_layer_table(const std::string& name);

struct LayerStep {
  double compute_s = 0;  ///< time of forward and backward
  double memory_s = 0;   ///< the part of `compute_s` in which memory, not arithmetic, sets the time
  double update_s = 0;
  double flops = 0;             ///< FLOP of both passes
  double activation_bytes = 0;  ///< bytes kept for the backward pass
};
/// Predicts the step from the machine's data sheet; no measured step of the network is needed. Each operation of the
/// table takes the longest of three times: its FLOP at a share of the device's peak, its operands at four fifths of the
/// memory's rate, and a kernel launch. Norms and activation functions add ten passes over each result. On one GPU such
/// predictions are a third to a half away from measurements (results/predict.md).
/// Cost: O(layers). Errors: UsageError of model::layers_of. Precondition: the machine has a device with a peak and a
/// memory rate.
LayerStep layer_step(const model::LayerTable&, std::size_t samples, std::string_view precision, const core::Machine&);

/// The 90th percentile of |log(predicted / measured)| for predictions by `layer_step`, over the rows of data/predict
/// with one GPU and a network that has a layer table (tests/predict/corpus_test.cpp computes it again).
inline constexpr double layer_step_spread = 1.08;

}  // namespace gradmeter::predict
