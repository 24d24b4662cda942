// Gradient steps: plain, with Polyak's and with Nesterov's momentum.
#pragma once
#include <memory>

#include "dataparallel/optimizers/registry.hpp"

namespace gradmeter::dataparallel {

/// w -= step·g. Cost: 12 bytes an element. Source: Robbins & Monro 1951.
std::unique_ptr<Optimizer> make_sgd(const core::ParsedName&, const OptimizerScope&);
/// v = mu·v + g; w -= step·v. Cost: 20 bytes an element, M of state. Source: Polyak 1964.
std::unique_ptr<Optimizer> make_momentum(const core::ParsedName&, const OptimizerScope&);
/// v = mu·v + g; w -= step·(g + mu·v). Cost: as momentum. Source: Nesterov 1983.
std::unique_ptr<Optimizer> make_nesterov(const core::ParsedName&, const OptimizerScope&);

}  // namespace gradmeter::dataparallel
