// SPDX-License-Identifier: Apache-2.0
// Fits the terms of a machine to measured steps.
#pragma once
#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "predict/step.hpp"

namespace gradmeter::predict {

/// A symmetric matrix [n × n], of which only elements with row ≥ column are read and written.
class SymmetricMatrix {
 public:
  explicit SymmetricMatrix(std::size_t n) : n_(n), elements_(n * n) {}
  double& at(std::size_t row, std::size_t column) { return elements_[row * n_ + column]; }

 private:
  std::size_t n_;
  std::vector<double> elements_;
};

/// Solves a · x = b for a positive definite matrix by Cholesky's method; x takes the place of b. Returns false if the
/// matrix is not positive definite. Cost: n³/3 FLOP.
bool solve(SymmetricMatrix a, std::vector<double>& b);

/// Returns log(predicted ÷ measured) of one row, where the prediction is made with these logarithms of the terms.
using Residual = std::function<double(std::span<const double> log_terms)>;

/// Returns the logarithms of the terms that have the greatest posterior probability. Each term's logarithm has a normal
/// prior. Residuals are weighted by the pseudo-Huber loss, so that a row with a wrong time does not spoil the fit to
/// all others; noise: the residuals' standard deviation. Without residuals the results are the logarithms of the
/// priors' middles. Method: Levenberg and Marquardt's, with numerical derivatives. Sources: Marquardt, SIAM J. Appl.
/// Math. 11(2), 1963; Charbonnier et al., IEEE TIP 6(2), 1997. Cost: some tens of evaluations of every residual for
/// each term.
std::vector<double> fit_terms(std::span<const Prior> priors, std::span<const Residual> residuals, double noise = 0.04);

}  // namespace gradmeter::predict
