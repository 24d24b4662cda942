// SPDX-License-Identifier: Apache-2.0
// Loss curves of several workers, and how far two curves or two sets of weights are apart.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>
#include <vector>

#include "model/model.hpp"

namespace gradmeter::test {

/// The global batch's mean loss of each step. outcomes: where a worker's trace has them, one a step.
template <class Trace, class Outcomes>
std::vector<double> mean_losses(const std::vector<Trace>& traces, const Outcomes& outcomes) {
  std::vector<model::Outcome> all;
  for (const Trace& t : traces) {
    const std::vector<model::Outcome>& own = std::invoke(outcomes, t);
    all.resize(own.size());
    for (std::size_t i = 0; i < own.size(); ++i) {
      all[i].loss_sum += own[i].loss_sum;
      all[i].labels += own[i].labels;
    }
  }
  std::vector<double> out;
  for (const model::Outcome& o : all) out.push_back(o.loss_sum / static_cast<double>(o.labels));
  return out;
}

/// Infinite where they are not of one length.
template <class Number>
double largest_difference(const std::vector<Number>& a, const std::vector<Number>& b) {
  double most = a.size() == b.size() ? 0 : std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    most = std::max(most, std::fabs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
  }
  return most;
}

}  // namespace gradmeter::test
