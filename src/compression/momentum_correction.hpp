// Deep gradient compression: elements that are not sent accumulate, with the momentum that they would have had.
#pragma once
#include <cstddef>
#include <memory>
#include <span>

#include "compression/codecs/topk.hpp"
#include "compression/registry.hpp"
#include "core/name.hpp"

namespace gradmeter::compression {

/// u = momentum·u + g; v = v + u; the top k of v are sent, and u and v cleared at these places (momentum factor
/// masking). The decoded vector replaces momentum SGD's velocity, so the optimizer after it has no momentum of its own.
/// Everything that u ever added to v is sent or still in v.
/// Shape:  g, u, v [n]; u and v are 0 before the first step and are kept for each tensor.
/// Source: Lin et al., ICLR 2018, section 3.
class MomentumCorrection {
 public:
  /// The parameters `density`, `momentum`, `clip`. Errors: UsageError.
  explicit MomentumCorrection(const core::ParsedName&);
  const TopK& encoding() const { return *encoding_; }

  /// The factor of a rank's gradient whose L2 norm is `norm`: clip/(norm·sqrt(ranks)) where that is below 1. clip=0: 1.
  /// A norm that is not finite gives 1, so that the error stays visible.
  float clip_factor(double norm, std::size_t ranks) const;
  /// u = momentum·u + factor·g; v = v + u. One pass: 12 bytes read and 8 written an element. Equal bits everywhere.
  void accumulate(std::span<const float> g, float factor, std::span<float> u, std::span<float> v) const;
  /// Clears u and v where `wire` sends v; all of them when v was not finite, so that one bad gradient does not spoil
  /// all that follow. O(k).
  void clear_sent(std::span<const std::byte> wire, std::span<float> u, std::span<float> v) const;
  /// The three in order, clipped by the norm of g, which must then be the whole gradient. Where the gradient comes in
  /// tensors or buckets, its owner clips it (`clip_gradient`), and this is made `without_clip`. Returns the bytes
  /// written: encoding().wire_bytes(n).
  std::size_t encode(std::span<const float> g, std::size_t ranks, std::span<float> u, std::span<float> v,
                     std::byte* wire) const;

 private:
  float momentum_;
  double clip_;
  std::unique_ptr<const TopK> encoding_;
};
void check_dgc(const core::ParsedName&);
/// The momentum that a codec applies in place of the optimizer's; 0: none.
double momentum_of(const CodecChoice&);
/// The threshold that gradients are clipped at; 0, and of null: none.
double clip_of(const CodecChoicePtr&);
/// The same codec for gradients that are clipped already.
CodecChoicePtr without_clip(const CodecChoicePtr&);
/// Local gradient clipping of all tensors together: the norm becomes clip/sqrt(ranks) where it is larger.
void clip_gradient(std::span<float> g, double clip, std::size_t ranks);

/// Root of the sum of squares, in doubles and one fixed order.
double l2_of_gradient(std::span<const float> g);

}  // namespace gradmeter::compression
