// SPDX-License-Identifier: Apache-2.0
// The step on many GPUs of a network whose step on few was measured. Convolutional networks are predicted so, since
// their time on one GPU is a third to a half away from what operations and bytes say.
#pragma once
#include <optional>
#include <span>
#include <string>

#include "predict/measurements.hpp"
#include "predict/step.hpp"

namespace gradmeter::predict {

struct ScaledStep {
  std::optional<double> seconds = {};
  double spread = 0;  ///< 90th percentile of |log(predicted ÷ measured)|, as published systems had it
  double gpus = 1;    ///< of the row that it is scaled from
  double base_s = 0;  ///< that row's step [s]
  std::string reason = {};
};
/// T = T1 · (1 + σ · log2 N) + max(0, C − ov · ⅔ · T1) + fe · C, where C is the exchange of all gradients: by a ring,
/// or by parameter servers where the row's strategy says so. `known`: rows among which the one with the fewest GPUs of
/// the same system, network, precision and batch a GPU is T1.
ScaledStep scaled_step(const MeasuredStep&, std::span<const MeasuredStep> known, const core::Machine&);
/// Why the row's choice of an exchange cannot be predicted on its GPUs; empty: it can.
std::string exchange_refusal(const MeasuredStep&, const core::Machine&);
/// The same from a step of one GPU that is known [s].
double scaled_seconds(const MeasuredStep&, double one_gpu_s, double gpus_of_it, const core::Machine&);

}  // namespace gradmeter::predict
