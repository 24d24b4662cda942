// SPDX-License-Identifier: Apache-2.0
// Deep gradient compression: elements that are not sent accumulate, with the momentum that they would have had.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "compression/codecs/sparse.hpp"
#include "compression/registry.hpp"
#include "core/name.hpp"

namespace gradmeter::compression {

/// Each step computes u = momentum·u + g and v = v + u for a gradient g, sends the k elements of v of largest
/// magnitude, and clears u and v at their places (momentum factor masking). The decoded vector replaces momentum SGD's
/// velocity, so the optimizer after it has no momentum of its own. Every value that u adds to v has been sent, or is
/// still in v.
/// Shape: g, u, v [n]; u and v are 0 before the first step and are kept for each tensor.
/// Source: Lin et al., ICLR 2018, section 3.
class MomentumCorrection {
 public:
  /// Reads the parameters `density`, `momentum`, `clip`. Errors: UsageError.
  explicit MomentumCorrection(const core::ParsedName&);
  const TopK& encoding() const { return encoding_; }

  /// The factor for a rank's gradient of L2 norm `norm`: clip/(norm·sqrt(ranks)), but at most 1; with clip=0 it is 1. A
  /// norm that is not finite gives 1, so that the error stays visible.
  float clip_factor(double norm, std::size_t ranks) const;
  /// u = momentum·u + factor·g; v = v + u. Cost: one pass, 12 bytes read and 8 written an element. Bits are equal on
  /// every machine.
  void accumulate(std::span<const float> g, float factor, std::span<float> u, std::span<float> v) const;
  /// Clears u and v at the places that `wire` sends; clears all of both when v was not finite, so that one bad gradient
  /// does not spoil all that follow. Cost: O(k).
  void clear_sent(std::span<const std::byte> wire, std::span<float> u, std::span<float> v) const;
  /// Makes a whole step: clips by the norm of g, accumulates, encodes v, and clears what was sent. For the clipping, g
  /// must be the whole gradient. A caller whose gradient comes in tensors or buckets clips it itself (`clip_gradient`),
  /// and makes this object from the codec that `without_clip` returns. Returns the number of bytes written:
  /// encoding().wire_bytes(n).
  std::size_t encode(std::span<const float> g, std::size_t ranks, std::span<float> u, std::span<float> v,
                     std::byte* wire) const;

 private:
  float momentum_;
  double clip_;
  TopK encoding_;
};
void check_dgc(const core::ParsedName&);
/// The momentum that a codec applies in place of the optimizer; 0 where it applies none.
double momentum_of(const CodecChoice&);
/// The norm that the codec clips gradients to; 0 where it does not clip, or where there is no codec (null).
double clip_of(const CodecChoicePtr&);
/// Returns the same codec for gradients that have been clipped already.
CodecChoicePtr without_clip(const CodecChoicePtr&);
/// Local gradient clipping of all tensors together: the norm becomes clip/sqrt(ranks) where it is larger.
void clip_gradient(std::span<float> g, double clip, std::size_t ranks);

/// The root of the sum of squares, which is added up in doubles in one fixed order.
double l2_of_gradient(std::span<const float> g);

/// Density warm-up: a sparse codec begins dense and its density then falls, since gradients change fast at first. In
/// the four quarters of the warm-up, the density is 1/4, 1/16, 1/64 and 1/256 of a tensor, but never below the codec's
/// own density, which holds after the warm-up. If the warm-up lasts four epochs, each epoch has a quarter of the
/// density of the epoch before: `auto` stands for that length.
/// Source: Lin et al., ICLR 2018, section 3.3.
inline constexpr std::uint64_t auto_warm_up_epochs = 4;

/// The value of the parameter `warmup`, a number of steps. 0 means no warm-up; `auto` counts as 0 until it is replaced
/// by a number.
/// Errors: UsageError for another value.
std::uint64_t warm_up_steps(const core::ParsedName&);
/// Replaces warmup=auto by `steps`. Codecs without warmup=auto, and null, are returned unchanged.
CodecChoicePtr with_warm_up(const CodecChoicePtr&, std::uint64_t steps);
/// The codecs of the warm-up in order, each without a warm-up of its own; the last one has the final density.
std::vector<CodecChoicePtr> warm_up_stages(const CodecChoice&);
/// The index, below `stages`, of the warm-up stage that step number `step` (from 0) belongs to.
std::size_t warm_up_stage(std::uint64_t warm_up_steps, std::size_t stages, std::uint64_t step);

/// Consecutive steps with one density.
struct DensityPhase {
  CodecChoicePtr codec;
  std::uint64_t steps = 0;
};
/// The phases of the `steps` steps that begin with step number `first` (from 0). Without a codec (null) there is one
/// phase without a codec.
std::vector<DensityPhase> warm_up_phases(const CodecChoicePtr&, std::uint64_t first, std::uint64_t steps);

}  // namespace gradmeter::compression
