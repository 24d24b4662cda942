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
  double spread = 0;  ///< 90th percentile of |log(predicted ÷ measured)| on published systems
  double gpus = 1;    ///< GPUs of the row from which the step is scaled
  double base_s = 0;  ///< that row's step [s]
  std::string reason = {};
};
/// T = T1 · (1 + σ · log2 N) + max(0, C − ov · ⅔ · T1) + fe · C. T1 is the measured step from which T is scaled, N says
/// on how many times as many GPUs, and C is the time to exchange all gradients: as the row's `exchange` says, or by
/// parameter servers if its strategy says so. σ is the loss in each doubling, ov the share of the backward pass (⅔ of
/// T1) that can hide exchange, and fe the share of C that is exposed in any case. If gradients are encoded, the time of
/// this is added. T1 is the step of a row of `known`: of the same system, network, precision and batch a GPU, the one
/// with the fewest GPUs.
ScaledStep scaled_step(const MeasuredStep&, std::span<const MeasuredStep> known, const core::Machine&);
/// Why the exchange that the row chooses cannot be predicted on its GPUs; empty: it can.
std::string exchange_refusal(const MeasuredStep&, const core::Machine&);
/// The same T [s] from a known step: `one_gpu_s` on `gpus_of_it` GPUs.
double scaled_seconds(const MeasuredStep&, double one_gpu_s, double gpus_of_it, const core::Machine&);

}  // namespace gradmeter::predict
