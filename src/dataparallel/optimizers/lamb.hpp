// Adam with each tensor's step in proportion to its size.
#pragma once
#include <memory>

#include "dataparallel/optimizers/registry.hpp"

namespace gradmeter::dataparallel {

/// m and v as in adam; r = m̂/(√v̂ + epsilon) + decay·w; for each tensor w −= step·(‖w‖/‖r‖)·r, the ratio 1 where one of
/// the norms is zero: the paper's φ is the identity. Every tensor alike, biases too.
/// Shape: ranges are whole tensors, or parts whose scope has `parts`. Cost: 40 bytes an element, 2M of state (r is
/// computed twice instead of kept). Errors: std::logic_error for other parts of a tensor. Source: You et al., "Large
/// batch optimization for deep learning", ICLR 2020, algorithm 2.
std::unique_ptr<Optimizer> make_lamb(const core::ParsedName&, const OptimizerScope&);

}  // namespace gradmeter::dataparallel
