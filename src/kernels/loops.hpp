// The small loops of a training step by the device whose work runs: what layers and optimizers call. A device with
// kernels of its own derives from Loops and is one call of `add_loops`.
#pragma once
#include <cstddef>
#include <functional>
#include <string_view>

#include "kernels/pointwise.hpp"
#include "runtime/buffer.hpp"

namespace gradmeter::kernels {

using runtime::Buffer;
using runtime::ConstBuffer;

/// [samples × steps × parts × heads × width] to [parts × samples × heads × steps × width], or back.
struct HeadLayout {
  std::size_t samples, steps, heads, width;
  bool to_heads;  ///< else back to tokens
};

/// Here they are the host's. Buffers are fp32 but for labels (int32). Within work of a queue only. Errors:
/// std::invalid_argument when lengths do not fit together.
class Loops {
 public:
  virtual ~Loops() = default;

  virtual void clear(Buffer) const;  ///< of any type
  virtual void fill(Buffer, float value) const;
  virtual void scale(Buffer, float factor) const;
  /// to = a + b; to may be either.
  virtual void add(ConstBuffer a, ConstBuffer b, Buffer to) const;
  /// to = (a + b)·factor; to may be either.
  virtual void add_and_scale(ConstBuffer a, ConstBuffer b, float factor, Buffer to) const;
  /// Each row of `to` [rows × row's length] = x's + row; is_relu: what is below zero becomes zero. to may be x.
  virtual void add_row(ConstBuffer x, ConstBuffer row, bool is_relu, Buffer to) const;
  /// Of a matrix [rows × sums' length], summed in row order.
  virtual void column_sums(ConstBuffer matrix, Buffer sums) const;
  /// Images [samples × channels × pixels], bias [channels]: x = max(x + bias, 0), in place.
  virtual void add_channels_and_relu(ConstBuffer bias, std::size_t pixels, Buffer images) const;
  /// sums [channels]: of each plane in order, then over the samples in order.
  virtual void channel_sums(ConstBuffer images, std::size_t pixels, Buffer sums) const;
  virtual void relu_backward(ConstBuffer activation, Buffer gradient) const;

  /// As in kernels/transformer.hpp.
  virtual void gelu(ConstBuffer x, Buffer y) const;
  virtual void gelu_backward(ConstBuffer x, ConstBuffer delta, Buffer to) const;
  virtual void layer_norm(ConstBuffer x, ConstBuffer gain, ConstBuffer bias, Buffer y) const;
  virtual void layer_norm_backward(ConstBuffer x, ConstBuffer gain, ConstBuffer delta, Buffer to) const;
  virtual void layer_norm_backward_parameters(ConstBuffer x, ConstBuffer delta, Buffer gain, Buffer bias) const;
  virtual void causal_softmax(Buffer scores, std::size_t steps, float scale) const;
  virtual void causal_softmax_backward(ConstBuffer probabilities, Buffer gradient, std::size_t steps,
                                       float scale) const;

  /// Words are whole numbers in fp32; table [words × width]. Errors: std::out_of_range for a number that is none of
  /// the table's, which a device shows as NaN instead.
  virtual void embed(ConstBuffer words, ConstBuffer table, std::size_t width, Buffer to) const;
  /// Adds each word's row of `delta` to the table's gradient, in the order of the words; clears it first.
  virtual void embed_backward(ConstBuffer words, ConstBuffer delta, std::size_t width, bool clears, Buffer table) const;
  /// [rows × columns × width] to [columns × rows × width].
  virtual void swap_rows_and_columns(ConstBuffer from, std::size_t rows, std::size_t columns, std::size_t width,
                                     Buffer to) const;
  virtual void reorder_heads(ConstBuffer from, const HeadLayout&, Buffer to) const;

  /// As in kernels/pointwise.hpp. kept: what weights are multiplied by first, 1 - step·decay of AdamW; 1: Adam.
  virtual void sgd(Buffer w, ConstBuffer g, float step) const;
  virtual void momentum(Buffer w, Buffer v, ConstBuffer g, MomentumParameters) const;
  virtual void adam(Buffer w, Buffer m, Buffer v, ConstBuffer g, AdamParameters, float kept) const;

  /// As softmax_cross_entropy. The loss is given to `take` once it is known, on whatever thread; gradient may be empty.
  using TakeLoss = std::function<void(const CrossEntropy&)>;
  virtual void cross_entropy(ConstBuffer logits, ConstBuffer labels, float scale, Buffer gradient,
                             const TakeLoss& take) const;
};

/// Of the device whose work runs on this thread; the host's where it has none of its own.
const Loops& loops();
/// For DeviceAccess::kernels() of that name. Before threads begin; they live for ever.
void add_loops(std::string_view kernels, const Loops&);

}  // namespace gradmeter::kernels
