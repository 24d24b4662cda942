// SPDX-License-Identifier: Apache-2.0
// Fits the terms of a machine to measured steps.
#pragma once
#include <functional>
#include <span>
#include <vector>

#include "predict/step.hpp"

namespace gradmeter::predict {

/// Returns log(predicted ÷ measured) of one row, where the prediction is made with these logarithms of the terms.
using Residual = std::function<double(std::span<const double> log_terms)>;

/// Returns the logarithms of the terms that have the greatest posterior probability. Each term's logarithm has a normal
/// prior. Residuals are weighted by the pseudo-Huber loss, so that a row with a wrong time does not spoil the fit to
/// all others; noise: the residuals' standard deviation. Without residuals the result is the middle of each prior.
/// Method: Levenberg and Marquardt's, with numerical derivatives. Sources: Marquardt, SIAM J. Appl. Math. 11(2), 1963;
/// Charbonnier et al., IEEE TIP 6(2), 1997. Cost: some tens of evaluations of every residual for each term.
std::vector<double> fit_terms(std::span<const Prior> priors, std::span<const Residual> residuals, double noise = 0.04);

}  // namespace gradmeter::predict
