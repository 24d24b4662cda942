// SPDX-License-Identifier: Apache-2.0
// The small loops of a training step, which layers and optimizers call. A device with kernels of its own derives a
// class from Loops and calls `add_loops` once; other devices use the host's loops.
#pragma once
#include <cstddef>
#include <functional>
#include <span>
#include <string_view>

#include "kernels/lns/arithmetic.hpp"
#include "kernels/pointwise/pointwise.hpp"
#include "kernels/pointwise/updates.hpp"
#include "runtime/buffer.hpp"

namespace gradmeter::kernels {

using runtime::Buffer;
using runtime::ConstBuffer;

/// How `reorder_heads` reorders: [samples × steps × parts × heads × width] to [parts × samples × heads × steps ×
/// width], or back. The number of parts (query, key and value: 3) follows from the buffer's length.
struct HeadLayout {
  std::size_t samples, steps, heads, width;
  bool to_heads;  ///< false: back to the order by samples and steps
};

/// The loops of one kind of device. This base class computes on the host. Buffers are fp32 except labels (int32). The
/// functions must be called within work of a queue. Errors: std::invalid_argument when lengths do not fit together.
class Loops {
 public:
  virtual ~Loops() = default;

  virtual void clear(Buffer) const;  ///< for any element type
  /// Both buffers have the same element type; either may be in the host's memory. Errors: std::logic_error when lengths
  /// differ.
  virtual void copy(ConstBuffer from, Buffer to) const;
  virtual void fill(Buffer, float value) const;
  virtual void scale(Buffer, float factor) const;
  /// to = a + b; to may be a or b.
  virtual void add(ConstBuffer a, ConstBuffer b, Buffer to) const;
  /// to = (a + b)·factor; to may be a or b.
  virtual void add_and_scale(ConstBuffer a, ConstBuffer b, float factor, Buffer to) const;
  /// to = x + row, for each row of x [rows × row's length]; `to` may be x. is_relu: negative results become zero.
  virtual void add_row(ConstBuffer x, ConstBuffer row, bool is_relu, Buffer to) const;
  /// Sums the columns of a matrix [rows × sums' length], in the order of pointwise/row_sums.hpp.
  virtual void column_sums(ConstBuffer matrix, Buffer sums) const;
  /// images = max(images + bias, 0), in place; images [samples × channels × pixels], bias [channels].
  virtual void add_channels_and_relu(ConstBuffer bias, std::size_t pixels, Buffer images) const;
  /// sums [channels]: the plane_sum of each channel of each image, added up over the images in the order of
  /// pointwise/row_sums.hpp.
  virtual void channel_sums(ConstBuffer images, std::size_t pixels, Buffer sums) const;
  virtual void relu_backward(ConstBuffer activation, Buffer gradient) const;

  /// The functions of kernels/attention/transformer.hpp.
  virtual void gelu(ConstBuffer x, Buffer y) const;
  virtual void gelu_backward(ConstBuffer x, ConstBuffer delta, Buffer to) const;
  virtual void layer_norm(ConstBuffer x, ConstBuffer gain, ConstBuffer bias, Buffer y) const;
  virtual void layer_norm_backward(ConstBuffer x, ConstBuffer gain, ConstBuffer delta, Buffer to) const;
  virtual void layer_norm_backward_parameters(ConstBuffer x, ConstBuffer delta, Buffer gain, Buffer bias) const;
  virtual void causal_softmax(Buffer scores, std::size_t steps, float scale) const;
  virtual void causal_softmax_backward(ConstBuffer probabilities, Buffer gradient, std::size_t steps,
                                       float scale) const;

  /// Writes each word's row of the table [words × width]. Words are whole numbers stored as fp32. Errors:
  /// std::out_of_range for a number outside the table; a GPU writes NaN instead.
  virtual void embed(ConstBuffer words, ConstBuffer table, std::size_t width, Buffer to) const;
  /// Adds each word's row of `delta` to the gradient of the table, in the order of the words. clears: sets the gradient
  /// to 0 first.
  virtual void embed_backward(ConstBuffer words, ConstBuffer delta, std::size_t width, bool clears, Buffer table) const;
  /// Transposes [rows × columns × width] to [columns × rows × width].
  virtual void swap_rows_and_columns(ConstBuffer from, std::size_t rows, std::size_t columns, std::size_t width,
                                     Buffer to) const;
  virtual void reorder_heads(ConstBuffer from, const HeadLayout&, Buffer to) const;

  /// The functions of kernels/pointwise/pointwise.hpp. decay_factor: the factor by which the weights are multiplied
  /// before the update; 1 for Adam, 1 - step·decay for AdamW.
  virtual void sgd(Buffer w, ConstBuffer g, float step, const UpdateNumber&) const;
  virtual void momentum(Buffer w, Buffer v, ConstBuffer g, MomentumParameters, const UpdateNumber&) const;
  virtual void adam(Buffer w, Buffer m, Buffer v, ConstBuffer g, AdamParameters, float decay_factor) const;
  /// As `adam`, but with the epsilon of algorithm 1 of Adam's paper (see AdamParameters), and with the number of the
  /// update from UpdateNumber.
  virtual void adam_step(Buffer w, Buffer m, Buffer v, ConstBuffer g, AdamParameters, float decay_factor,
                         const UpdateNumber&) const;
  /// The functions of kernels/pointwise/updates.hpp over many pieces of tensors. sums: a NormSquares for each piece.
  using Pieces = std::span<const TensorPiece>;
  virtual void lars_norms(ConstBuffer w, ConstBuffer g, Pieces, Buffer sums) const;
  virtual void lars(Buffer w, Buffer v, ConstBuffer g, Pieces, ConstBuffer sums, LarsParameters,
                    const UpdateNumber&) const;
  virtual void lamb_norms(ConstBuffer w, Buffer m, Buffer v, ConstBuffer g, Pieces, Buffer sums, LambParameters,
                          const UpdateNumber&) const;
  virtual void lamb(Buffer w, ConstBuffer m, ConstBuffer v, Pieces, ConstBuffer sums, LambParameters,
                    const UpdateNumber&) const;

  /// The functions of kernels/pointwise/bf16_weights.hpp, which round weights to bf16. `to` may be `target`.
  virtual void bf16_nearest(ConstBuffer target, Buffer to, const UpdateNumber&) const;
  virtual void bf16_kahan(Buffer w, ConstBuffer target, Buffer carry, const UpdateNumber&) const;
  /// place: index of the buffer's first weight among all weights; with the update's number it is the key of the draws.
  virtual void bf16_stochastic(Buffer w, ConstBuffer target, std::uint64_t place, const UpdateNumber&) const;
  /// The functions of kernels/lns/arithmetic.hpp, whose weights are logarithmic numbers stored as fp32. carry: the
  /// rounding errors of Kahan's sum; empty: sums are plain.
  virtual void lns_round(unsigned fraction_bits, Buffer w) const;
  virtual void lns_update(LnsUpdateRule, Buffer w, ConstBuffer target, Buffer carry, const UpdateNumber&) const;
  virtual void lns_descend(LnsUpdateRule, Buffer w, ConstBuffer g, float step, Buffer carry, const UpdateNumber&) const;

  /// Divides the gradients by a loss scale [1]. At the end of a step, `end_step` adapts this scale by its counts [3]
  /// (LossScaleCounts): the scale doubles after `growth_interval` steps in a row that were not skipped.
  virtual void unscale(Buffer gradients, ConstBuffer scale) const;
  /// Notes in `counts` whether one of the gradients is infinite or NaN.
  virtual void note_non_finite(ConstBuffer gradients, Buffer counts) const;
  virtual void end_step(Buffer scale, Buffer counts, std::int64_t growth_interval) const;

  /// Computes softmax_cross_entropy. The gradient is that of the mean loss, times loss_scale [1] (empty: 1); gradient
  /// may be empty. `take` gets the sum of the losses (unscaled) and the number of right predictions once they are
  /// known; it may be called on any thread.
  using TakeLoss = std::function<void(const CrossEntropy&)>;
  virtual void cross_entropy(ConstBuffer logits, ConstBuffer labels, ConstBuffer loss_scale, Buffer gradient,
                             const TakeLoss& take) const;
  /// As `cross_entropy`, in logarithms, by lns_softmax_cross_entropy.
  virtual void lns_cross_entropy(unsigned fraction_bits, ConstBuffer logits, ConstBuffer labels, ConstBuffer loss_scale,
                                 Buffer gradient, const TakeLoss& take) const;
};

/// The loops of the device whose work runs on this thread; the host's if none are registered for that device.
const Loops& loops();
/// Registers loops for devices whose DeviceAccess::kernels() returns this name. Call it before threads begin. The loops
/// must live to the end of the process.
void add_loops(std::string_view kernels, const Loops&);

}  // namespace gradmeter::kernels
