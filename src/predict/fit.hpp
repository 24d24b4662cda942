// SPDX-License-Identifier: Apache-2.0
// Fits the terms of a machine to measured steps.
#pragma once
#include <functional>
#include <span>
#include <vector>

#include "predict/step.hpp"

namespace gradmeter::predict {

/// log(predicted ÷ measured) of one row, for the logarithms of the terms.
using Residual = std::function<double(std::span<const double> log_terms)>;

/// The terms with the greatest posterior probability: residuals weigh by the pseudo-Huber loss, so that a row that the
/// source got wrong does not bend all others, and each term's logarithm by its prior. Levenberg and Marquardt's method
/// with numerical derivatives. Without residuals: the priors' middles. noise: of residuals, a standard deviation.
/// Sources: Marquardt, SIAM J. Appl. Math. 11(2), 1963; Charbonnier et al., IEEE TIP 6(2), 1997. Cost: some tens of
/// evaluations of every residual for each term.
std::vector<double> fit_terms(std::span<const Prior> priors, std::span<const Residual> residuals, double noise = 0.04);

}  // namespace gradmeter::predict
