// Optimizers that step by running averages of the gradient and of its square.
#pragma once
#include <memory>

#include "dataparallel/optimizers/registry.hpp"

namespace gradmeter::dataparallel {

/// m = beta1·m + (1 − beta1)·g; v = beta2·v + (1 − beta2)·g²; w −= step·m̂/(√v̂ + epsilon), where m̂ = m/(1 − beta1^t)
/// and v̂ = v/(1 − beta2^t): algorithm 1 of the paper, as frameworks have it. (The kernel's epsilon is that of the end
/// of the paper's section 2, smaller by √(1 − beta2^t); the optimizer converts.) t is the step's number.
/// Cost: 28 bytes an element, 2M of state. Source: Kingma & Ba, ICLR 2015.
std::unique_ptr<Optimizer> make_adam(const core::ParsedName&, const OptimizerScope&);
/// w *= 1 − step·decay, then adam: the decay does not pass through the averages. As in frameworks it is multiplied by
/// the step; the paper multiplies it by its schedule alone.
/// Cost: 36 bytes an element, 2M of state. Source: Loshchilov & Hutter, ICLR 2019, algorithm 2.
std::unique_ptr<Optimizer> make_adamw(const core::ParsedName&, const OptimizerScope&);

}  // namespace gradmeter::dataparallel
