// The outer optimizer, which applies a block's mean change when workers that trained apart synchronise.
#pragma once
#include <cstddef>
#include <memory>

#include "dataparallel/optimizers/registry.hpp"

namespace gradmeter::dataparallel {

/// step: the factor of the change (bmuf's zeta, diloco's outer step size, slowmo's alpha).
struct OuterMomentum {
  float step = 1, mu = 0;
  bool nesterov = false;
  bool follows_step_size = false;  ///< v is that of steps of size 1, times the size of the block's last step
};

/// v = mu·v + Δ; w += step·(nesterov ? Δ + mu·v : v). Δ is the mean of the workers' weights less their weights at the
/// block's beginning, and w is what they begin the next one with.
///
/// BMUF's paper scales first, v = mu·v + zeta·Δ, which is the same with its v in units of step. Its Nesterov variant
/// keeps W(t) = W(t-1) + v(t) and begins blocks at W(t) + mu·v(t); written for where blocks begin, as here, that is
/// w += zeta·Δ + mu·v(t), and so the same as an outer SGD with Nesterov momentum, DiLoCo's.
///
/// follows_step_size: v = mu·(size/last size)·v + Δ, where size is UpdateStep's, which is not used otherwise. With
/// v = -size·u that is SlowMo's u = mu·u - Δ/size and w -= step·size·u. Where a size was 0, v begins anew.
/// Cost: 20 bytes an element, M of state.
/// Source: Chen & Huo, ICASSP 2016; Douillard et al., "DiLoCo", 2023, algorithm 1; Wang et al., "SlowMo", ICLR 2020.
std::unique_ptr<Optimizer> make_outer_momentum(const OptimizerScope&, OuterMomentum);

}  // namespace gradmeter::dataparallel
