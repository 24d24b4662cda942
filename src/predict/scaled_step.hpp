// SPDX-License-Identifier: Apache-2.0
// Predicts a network's step on many GPUs from its measured step on few GPUs. Networks other than transformers are
// predicted in this way, since a sum over their operations and bytes is a third to a half away from their measured time
// on one GPU.
#pragma once
#include <optional>
#include <span>
#include <string>

#include "predict/measurements.hpp"
#include "predict/step.hpp"

namespace gradmeter::predict {

struct ScaledStep {
  std::optional<double> seconds = {};
  double spread = 0;        ///< 90th percentile of |log(predicted ÷ measured)| on published systems
  double gpus = 1;          ///< GPUs of the row from which the step is scaled
  double base_s = 0;        ///< the step of that row [s]
  std::string reason = {};  ///< why `seconds` is empty
};
/// T = T1 · (1 + σ · log2 N) + max(0, C − ov · ⅔ · T1) + fe · C, and the time of encoding and decoding if gradients are
/// encoded. The term max(0, …) holds for the default exchange; data_exchange.hpp has the other exchanges. T1 is the
/// measured step of a row of `known` that has the same system, GPU, network, precision and batch a GPU, and at most as
/// many GPUs. Of several such rows, those with the same data are preferred, then those with the same strategy, then the
/// one with the fewest GPUs. N is the number of GPUs divided by that row's. With N = 1 the result is T1. T1 does not
/// contain an exchange or encoding that the step itself chooses, so a step on several GPUs with such a choice is scaled
/// from a row with fewer GPUs. C is the time to exchange all gradients: as the row's `exchange` says, or by parameter
/// servers if its strategy says so. σ is the loss in each doubling of GPUs, ov the share of the backward pass (⅔ of T1)
/// that can hide exchange, and fe the share of C that is exposed in any case.
ScaledStep scaled_step(const TrainingStep&, std::span<const TrainingStep> known, const core::Machine&);
/// The reason why the exchange that the row chooses cannot be predicted on its GPUs; empty: it can.
std::string exchange_refusal(const TrainingStep&, const core::Machine&);
/// T [s] by the formula above, where T1 is `base_s`, measured on `base_gpus` GPUs.
double scaled_seconds(const TrainingStep&, double base_s, double base_gpus, const core::Machine&);

}  // namespace gradmeter::predict
