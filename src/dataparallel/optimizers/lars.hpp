// Steps in proportion to each tensor's size: gradient descent with large batches.
#pragma once
#include <memory>

#include "dataparallel/optimizers/registry.hpp"

namespace gradmeter::dataparallel {

/// For each tensor: trust = eta·‖w‖/(‖g‖ + decay·‖w‖), or 1 where ‖w‖ or ‖g‖ is zero; v = mu·v + step·trust·(g +
/// decay·w); w −= v. Every tensor alike, biases too.
/// Shape: ranges are whole tensors, or parts whose scope has `parts`. Cost: 28 bytes an element, M of state. Errors:
/// std::logic_error for other parts of one. Source: You, Gitman & Ginsburg, "Large batch training of convolutional
/// networks", arXiv:1708.03888, algorithm 1.
std::unique_ptr<Optimizer> make_lars(const core::ParsedName&, const OptimizerScope&);

}  // namespace gradmeter::dataparallel
