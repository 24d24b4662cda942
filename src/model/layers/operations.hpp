// SPDX-License-Identifier: Apache-2.0
// Work that several layers submit: operations on plain memory, products of inference, the loss, and passes over
// buffers.
#pragma once
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "kernels/op.hpp"
#include "model/layers/layer.hpp"
#include "model/model.hpp"

namespace gradmeter::model {

/// An operation on operands in plain memory. If the backend has layouts or formats of its own, PlainOp converts the
/// operands, which takes time. Outputs are overwritten, even if the operation itself would add to them. Memory: the
/// stored form of each packed operand, and the operation's scratch.
class PlainOp {
 public:
  PlainOp(const kernels::Problem&, runtime::Device&, const kernels::OpOptions& = {});

  const kernels::Op& op() const { return *op_; }
  /// Packs an input once; from now on `run` uses this packed form, whatever buffer it gets for this input. The contents
  /// of the given buffer must not change.
  void keep(runtime::Queue&, std::string_view pack_label, std::size_t input, const runtime::ConstBuffer&);
  /// Runs the operation on buffers in the order of its operands. They are fp32 whatever the operation's precision; an
  /// operand without a plain form is given in its stored form. Packing and unpacking are submitted under the label
  /// `pack_label`.
  void run(runtime::Queue&, std::string_view label, std::string_view pack_label,
           kernels::BufferList<runtime::ConstBuffer> inputs, kernels::BufferList<runtime::Buffer> outputs);

 private:
  struct Packed {
    std::unique_ptr<kernels::Op> op;  ///< packs or unpacks; null: the operand is plain fp32, or has no plain form
    runtime::OwnedBuffer stored;
    std::optional<runtime::ConstBuffer> kept = {};  ///< what `run` reads for this input; empty: `keep` was not called
  };
  /// The operands that must be converted because `run` gets them in another form.
  struct Packing {
    std::vector<Packed> inputs, outputs;
    /// Operands of the call that is being submitted. The lists are kept so that their memory is reused.
    std::vector<runtime::ConstBuffer> read;
    std::vector<runtime::Buffer> written;
  };
  Packing& packing();
  void run_packed(runtime::Queue&, std::string_view label, std::string_view pack_label,
                  kernels::BufferList<runtime::ConstBuffer> inputs, kernels::BufferList<runtime::Buffer> outputs);

  std::unique_ptr<kernels::Op> op_;
  runtime::Cost cost_;
  std::unique_ptr<Packing> packing_;  ///< null: all operands are taken as they are
};

/// A product or convolution of inference. Its weights are packed once; in int8 they are quantized at that time.
struct InferenceProduct {
  kernels::Problem problem;           ///< a forward pass, in a precision that some backend takes
  std::size_t weights_per_output;     ///< number of weights of one output, which are adjacent in memory
  std::size_t places_per_output = 1;  ///< results of one output in a sample: a filter has one at each pixel
  bool is_relu = false;
};

/// y = relu(x·w + b) or x·w + b. Parameters: weights w, bias b. The operation of a matrix product adds the bias itself;
/// for convolutions, and in precisions of whole numbers, a pass over the outputs adds it. int8: inputs become unsigned
/// 8-bit numbers over the request's range; values outside the range are clamped. Weights become signed 8-bit numbers,
/// with a quantum (step between adjacent values) for each output; sums are exact. When the layer is made, one pass with
/// zeros as input finds how much the zero point adds to each sum, also at padded borders; this is subtracted when the
/// bias is added.
std::unique_ptr<InferenceLayer> make_inference_product(const InferenceProduct&, const InferenceRequest&,
                                                       runtime::Queue&);

/// Returns the problem with its weights in the backend's own layout, if the backend has one; else the problem
/// unchanged.
kernels::Problem with_packed_weights(kernels::Problem, const runtime::Device&);
/// The options that quantize an operation in int8; empty in other precisions. The quantum of an output follows from the
/// largest of its weights in all buffers of `weights`. Shape of each: [… × outputs × weights_per_output].
kernels::OpOptions quantized(kernels::Precision, const ActivationRange& input, std::span<const ConstBuffer> weights,
                             std::size_t weights_per_output, std::size_t outputs, Queue&);

/// Softmax cross-entropy of logits [samples × classes]; it reads the batch's labels and scale. `delta`: gets the
/// gradient of the batch's mean loss with respect to the logits, times the scale; empty: it is not needed. The gradient
/// costs little more than the exponentials, so it is computed here rather than in the backward pass. outcome: the
/// result is added to it; null: another rank reports the result.
/// In a precision whose sums are logarithms, all of it is computed in logarithms; else in fp32.
void submit_loss(Queue&, const ConstBuffer& logits, const Batch&, const Buffer& delta, const OutcomePlace& outcome,
                 kernels::Precision = kernels::Precision::fp32);
/// Sets `delta`, the gradient with respect to a ReLU's output, to zero where that output is zero.
void submit_relu_backward(Queue&, const ConstBuffer& output, const Buffer& delta);
/// Fills the buffer by kernels::fill_repeating. Must be called within work of the buffer's device.
void fill_random(const Buffer&, const kernels::NumberFormat&, std::uint64_t seed, double scale = 1);
void submit_clear(Queue&, std::string_view label, const Buffer&);
void submit_sum(Queue&, std::string_view label, const ConstBuffer& a, const ConstBuffer& b, const Buffer& to);

}  // namespace gradmeter::model
