// Updates that go by the sizes of tensors, LARS and LAMB: the host's loops, and the arithmetic of one number that a
// GPU's threads share with them.
#pragma once
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/host_device.hpp"
#include "kernels/adam_rates.hpp"

namespace gradmeter::kernels {

/// Elements [offset, offset + count) of an update's buffers that are one tensor, or the part of it that is here.
struct TensorPiece {
  std::size_t offset, count;
};
/// Two sums of squares over a piece, in float64.
struct TwoSums {
  double first = 0, second = 0;
};
/// The order of such a sum: blocks; in a block, element i in lane i mod lanes, then the lanes in order, then what no
/// whole row of lanes is left of; then the blocks in order. So neither threads nor vectors nor a device change a bit.
struct NormBlocks {
  static constexpr std::size_t length = 4096, lanes = 8;
  GRADMETER_HOST_DEVICE static constexpr std::size_t in(std::size_t count) { return (count + length - 1) / length; }
};

/// trust = eta·‖w‖/(‖g‖ + decay·‖w‖), or 1 where one of the norms is zero; v = mu·v + step·trust·(g + decay·w); w −= v.
/// Source: You, Gitman & Ginsburg, arXiv:1708.03888, algorithm 1.
struct LarsParameters {
  float step, mu, eta, decay;
  /// step·trust, of Σw² and Σg².
  GRADMETER_HOST_DEVICE float rate(TwoSums s) const {
    const double size = sqrt(s.first), slope = sqrt(s.second);
    const double trust = size > 0 && slope > 0 ? double{eta} * size / (slope + double{decay} * size) : 1.0;
    return static_cast<float>(double{step} * trust);
  }
  GRADMETER_HOST_DEVICE constexpr void move(float& w, float& v, float g, float rate) const {
    v = mu * v + rate * (g + decay * w);
    w -= v;
  }
};

/// m and v as in Adam; r = m̂/(√v̂ + epsilon) + decay·w; w −= step·(‖w‖/‖r‖)·r, the ratio 1 where one of them is zero.
/// Source: You et al., ICLR 2020, algorithm 2.
struct LambParameters {
  float step, beta1, beta2, epsilon, decay;

  /// 1/(1 − beta^t) in update t: what frees both averages of their bias.
  struct Unbiased {
    float mean, square;
  };
  GRADMETER_HOST_DEVICE constexpr Unbiased unbiased(std::uint64_t t) const {
    return {static_cast<float>(1 / adam_share(beta1, t)), static_cast<float>(1 / adam_share(beta2, t))};
  }
  GRADMETER_HOST_DEVICE constexpr void average(float& m, float& v, float g) const {
    m = beta1 * m + (1 - beta1) * g;
    v = beta2 * v + (1 - beta2) * (g * g);
  }
  GRADMETER_HOST_DEVICE float direction(float w, float m, float v, Unbiased u) const {
    return m * u.mean / (sqrtf(v * u.square) + epsilon) + decay * w;
  }
  /// step·‖w‖/‖r‖, of Σw² and Σr².
  GRADMETER_HOST_DEVICE float rate(TwoSums s) const {
    const bool both = s.first > 0 && s.second > 0;
    return static_cast<float>(double{step} * (both ? sqrt(s.first / s.second) : 1.0));
  }
};

/// All spans of an update have w's length, and pieces lie in it. Threads change no bit. Errors: none are looked for.

/// Σw² and Σg² of a piece. Cost: 8 bytes an element.
TwoSums lars_norms(std::span<const float> w, std::span<const float> g, TensorPiece);
/// Cost: 20 bytes an element.
void lars(std::span<float> w, std::span<float> v, std::span<const float> g, TensorPiece, TwoSums, LarsParameters);
/// Σw² and Σr² of a piece, whose averages it moves on. Cost: 24 bytes an element.
TwoSums lamb_norms(std::span<const float> w, std::span<float> m, std::span<float> v, std::span<const float> g,
                   TensorPiece, LambParameters, std::uint64_t number);
/// Cost: 16 bytes an element: r is computed twice instead of kept.
void lamb(std::span<float> w, std::span<const float> m, std::span<const float> v, TensorPiece, TwoSums, LambParameters,
          std::uint64_t number);

}  // namespace gradmeter::kernels
