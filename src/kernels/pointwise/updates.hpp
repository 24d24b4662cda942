// SPDX-License-Identifier: Apache-2.0
// The arithmetic of updates that the host and GPUs share: a loss scale that adapts and skips steps, the numbers of
// updates if steps are skipped, Adam's factors, LARS and LAMB.
#pragma once
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/host_device.hpp"
#include "kernels/pointwise/pointwise.hpp"
#include "runtime/buffer.hpp"

namespace gradmeter::kernels {

/// The counts of a loss scale that adapts. They are in the memory of the device that computes, so that the host need
/// not wait for them.
struct LossScaleCounts {
  std::int64_t skips_step = 0;  ///< 1: this step is skipped, since its gradients cannot be used
  std::int64_t skipped = 0;     ///< number of skipped steps so far
  std::int64_t good = 0;        ///< number of steps with usable gradients since the scale last changed
};
inline constexpr std::size_t loss_scale_words = sizeof(LossScaleCounts) / sizeof(std::int64_t);

/// Adapts the scale at the end of a step, after its updates. If the step was skipped, the scale is halved. After
/// `growth_interval` steps in a row that were not skipped, the scale is doubled, unless it would become infinite.
/// Source: PyTorch's GradScaler.
GRADMETER_HOST_DEVICE constexpr void end_step(float& scale, LossScaleCounts& counts, std::int64_t growth_interval) {
  constexpr float least = 0x1p-126F, most = 0x1.fffffep127F;  // the range of normal numbers
  if (counts.skips_step != 0) {
    scale = core::greater(scale / 2, least);
    counts = {.skips_step = 0, .skipped = counts.skipped + 1, .good = 0};
  } else if (++counts.good == growth_interval) {
    if (scale * 2 <= most) scale *= 2;
    counts.good = 0;
  }
}

/// The number of an update, from 1. With a loss scale, updates of skipped steps are neither made nor counted.
struct UpdateNumber {
  std::uint64_t value = 1;                              ///< the number if no step had been skipped
  runtime::ConstBuffer counts = runtime::empty_buffer;  ///< LossScaleCounts as int64 [3]; empty: every step is made

  /// is_skipped: true if this step is skipped. number_without_skipped: the number of this update when skipped steps are
  /// not counted. Both read `counts` on the host, so call them only within work that a queue runs on the host.
  bool is_skipped() const { return counts.count() > 0 && counts.values<std::int64_t>()[0] != 0; }
  std::uint64_t number_without_skipped() const {
    return counts.count() == 0 ? value : value - static_cast<std::uint64_t>(counts.values<std::int64_t>()[1]);
  }
};

// The factors of Adam that depend on an update's number, for the host and for a GPU's threads.

/// x^n by squaring. A chain of products has the same bits on the host and on a GPU, whose `pow` differs. The relative
/// error is at most n·2^-52.
GRADMETER_HOST_DEVICE constexpr double power(double x, std::uint64_t n) {
  double result = 1;
  for (; n > 0; n >>= 1, x *= x)
    if ((n & 1) != 0) result *= x;
  return result;
}
/// 1 − beta^t: after t updates, an average that began with zero is too small by this factor.
GRADMETER_HOST_DEVICE constexpr double adam_bias_correction(float beta, std::uint64_t t) {
  return 1 - power(double{beta}, t);
}

struct AdamRates {
  float rate, epsilon;
};
/// Adam's rate and epsilon for update t in w −= rate·m/(√v + epsilon), which is the form at the end of section 2 of
/// Adam's paper (AdamParameters). `adam_epsilon` takes the epsilon of the paper's algorithm 1 and returns that of this
/// form, which is √(1 − beta2^t) times as large.
GRADMETER_HOST_DEVICE inline float adam_rate(float step, float beta1, float beta2, std::uint64_t t) {
  return static_cast<float>(double{step} * sqrt(adam_bias_correction(beta2, t)) / adam_bias_correction(beta1, t));
}
GRADMETER_HOST_DEVICE inline float adam_epsilon(float epsilon, float beta2, std::uint64_t t) {
  return epsilon * static_cast<float>(sqrt(adam_bias_correction(beta2, t)));
}

// LARS and LAMB, whose updates depend on the norms of tensors: the arithmetic for one number, which the host and a
// GPU's threads use, and the host's loops.

/// Elements [offset, offset + count) of an update's buffers, which belong to one tensor: all of it, or this rank's
/// part.
struct TensorPiece {
  std::size_t offset, count;
};
/// Two sums of squares over a piece, in float64: Σw², and Σg² (LARS) or Σr² (LAMB, see LambParameters).
struct NormSquares {
  double weight_squares = 0, other_squares = 0;
};
/// The order in which a NormSquares is added up, so that neither the number of threads, nor the width of vectors, nor
/// the device changes a bit. The elements are cut into blocks of 4096. In a block, element i is added to lane i mod
/// `lanes`, up to the last multiple of `lanes`. Then the lanes are added in order, and then the elements that are left.
/// The sums of the blocks are added in order.
struct NormBlocks {
  static constexpr std::size_t length = 4096, lanes = 8;
  /// The number of blocks in `count` elements.
  GRADMETER_HOST_DEVICE static constexpr std::size_t blocks_in(std::size_t count) {
    return (count + length - 1) / length;
  }
};

/// trust = eta·‖w‖/(‖g‖ + decay·‖w‖), or 1 if one of the norms is zero; v = mu·v + step·trust·(g + decay·w); w −= v.
/// Source: You, Gitman & Ginsburg, arXiv:1708.03888, algorithm 1.
struct LarsParameters {
  float step, mu, eta, decay;
  /// step·trust from Σw² and Σg².
  GRADMETER_HOST_DEVICE float rate(NormSquares s) const {
    const double w_norm = sqrt(s.weight_squares), g_norm = sqrt(s.other_squares);
    const double trust = w_norm > 0 && g_norm > 0 ? double{eta} * w_norm / (g_norm + double{decay} * w_norm) : 1.0;
    return static_cast<float>(double{step} * trust);
  }
  GRADMETER_HOST_DEVICE constexpr void update(float& w, float& v, float g, float rate) const {
    v = mu * v + rate * (g + decay * w);
    w -= v;
  }
};

/// m and v as in Adam, m̂ and v̂ the same corrected for their bias (Unbiased); r = m̂/(√v̂ + epsilon) + decay·w; w −=
/// step·(‖w‖/‖r‖)·r, with 1 for the ratio if one of the norms is zero. Source: You et al., ICLR 2020, algorithm 2.
struct LambParameters {
  float step, beta1, beta2, epsilon, decay;

  /// The factors 1/(1 − beta^t) by which the averages are multiplied at update t, to correct their bias.
  struct Unbiased {
    float mean, square;
  };
  GRADMETER_HOST_DEVICE constexpr Unbiased unbiased(std::uint64_t t) const {
    return {static_cast<float>(1 / adam_bias_correction(beta1, t)),
            static_cast<float>(1 / adam_bias_correction(beta2, t))};
  }
  GRADMETER_HOST_DEVICE constexpr void average(float& m, float& v, float g) const {
    m = beta1 * m + (1 - beta1) * g;
    v = beta2 * v + (1 - beta2) * (g * g);
  }
  /// r for one weight.
  GRADMETER_HOST_DEVICE float direction(float w, float m, float v, Unbiased u) const {
    return m * u.mean / (sqrtf(v * u.square) + epsilon) + decay * w;
  }
  /// step·‖w‖/‖r‖ from Σw² and Σr².
  GRADMETER_HOST_DEVICE float rate(NormSquares s) const {
    const bool both = s.weight_squares > 0 && s.other_squares > 0;
    return static_cast<float>(double{step} * (both ? sqrt(s.weight_squares / s.other_squares) : 1.0));
  }
};

/// All spans of an update must be as long as w, and pieces must lie within w; this is not checked. The number of
/// threads changes no bit.

/// Σw² and Σg² of a piece. Cost: 8 bytes an element.
NormSquares lars_norms(std::span<const float> w, std::span<const float> g, TensorPiece);
/// Makes the update of a piece from the sums over its whole tensor. Cost: 20 bytes an element.
void lars(std::span<float> w, std::span<float> v, std::span<const float> g, TensorPiece, NormSquares, LarsParameters);
/// Updates the averages of a piece and returns its Σw² and Σr². Cost: 24 bytes an element.
NormSquares lamb_norms(std::span<const float> w, std::span<float> m, std::span<float> v, std::span<const float> g,
                       TensorPiece, LambParameters, std::uint64_t number);
/// Makes the update of a piece from the sums over its whole tensor. Cost: 16 bytes an element, since r is computed
/// again instead of kept.
void lamb(std::span<float> w, std::span<const float> m, std::span<const float> v, TensorPiece, NormSquares,
          LambParameters, std::uint64_t number);

}  // namespace gradmeter::kernels
