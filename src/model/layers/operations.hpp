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

/// An operation on operands in plain memory. It packs operands into the backend's own layouts and formats, and pays for
/// it. Outputs are overwritten, even where the operation by itself would add to them. Memory: the stored form of each
/// packed operand, and the operation's scratch.
class PlainOp {
 public:
  PlainOp(const kernels::Problem&, runtime::Device&, const kernels::OpOptions& = {});

  const kernels::Op& op() const { return *op_; }
  /// Packs an input once: from now on `run` uses this form, whatever buffer it is given. The buffer must stay
  /// unchanged.
  void keep(runtime::Queue&, std::string_view packing, std::size_t input, const runtime::ConstBuffer&);
  /// Takes buffers in the order of the operation's operands, in fp32 whatever its precision; an operand without a plain
  /// form is given as it is stored. Packing and unpacking are submitted as `packing`.
  void run(runtime::Queue&, std::string_view label, std::string_view packing,
           kernels::BufferList<runtime::ConstBuffer> inputs, kernels::BufferList<runtime::Buffer> outputs);

 private:
  struct Packed {
    std::unique_ptr<kernels::Op> op;  ///< null: it is stored as plain fp32, or has no plain form
    runtime::OwnedBuffer stored;
    std::optional<runtime::ConstBuffer> kept = {};
  };
  /// The operands that must be converted because `run` gets another form.
  struct Packing {
    std::vector<Packed> inputs, outputs;
    /// operands of the call being submitted; the lists are kept for their memory
    std::vector<runtime::ConstBuffer> read;
    std::vector<runtime::Buffer> written;
  };
  Packing& packing();
  void run_packed(runtime::Queue&, std::string_view label, std::string_view packing,
                  kernels::BufferList<runtime::ConstBuffer> inputs, kernels::BufferList<runtime::Buffer> outputs);

  std::unique_ptr<kernels::Op> op_;
  runtime::Cost cost_;
  std::unique_ptr<Packing> packing_;  ///< null: all operands are taken as they are
};

/// A product or convolution of inference. Its weights are packed once; in int8 they are quantized then.
struct InferenceProduct {
  kernels::Problem problem;       ///< a forward pass, in a precision that some backend takes
  std::size_t output_weights;     ///< number of weights of one output, which follow one another
  std::size_t output_places = 1;  ///< numbers that one output has in a sample: a filter's pixels
  bool is_relu = false;
};

/// y = relu(x·w + b) or x·w + b. Parameters: weights, bias. A product adds the bias itself. For convolutions and whole
/// numbers, whose operations have no bias, a pass over the outputs adds it. int8: inputs are 8 bits without sign over
/// the request's range, and values beyond it are cut off; weights are 8 bits with sign, with a quantum for each output;
/// sums are exact. A pass over zeros finds what the zero point adds to the sums, at padded borders too; it is
/// subtracted with the bias.
std::unique_ptr<InferenceLayer> make_inference_product(const InferenceProduct&, const InferenceRequest&,
                                                       runtime::Queue&);

/// Returns the problem with its weights in the backend's own layout where the backend can take them so, and any other
/// problem as it is.
kernels::Problem with_packed_weights(kernels::Problem, const runtime::Device&);
/// The options that quantize an operation in int8; empty in other precisions. Each output has a quantum, by the largest
/// of its weights. A buffer of `weights` has `outputs` outputs one after another, with `output_weights` weights each.
kernels::OpOptions quantized(kernels::Precision, const ActivationRange& input, std::span<const ConstBuffer> weights,
                             std::size_t output_weights, std::size_t outputs, Queue&);

/// Softmax cross-entropy of logits [samples × classes]; it reads the batch's labels and scale. `delta`: the scaled
/// gradient of the batch's mean loss by the logits; empty: not wanted. It costs little more than the exponentials, so
/// it is computed here and not again in backward. outcome: the result is added to it; null: another rank reports it.
/// The precision is fp32, or one whose sums are logarithms: then all of it is computed in logarithms.
void submit_loss(Queue&, const ConstBuffer& logits, const Batch&, const Buffer& delta, const OutcomePlace& outcome,
                 kernels::Precision = kernels::Precision::fp32);
/// Sets `delta` to zero where the output of a ReLU is zero.
void submit_relu_backward(Queue&, const ConstBuffer& output, const Buffer& delta);
void submit_clear(Queue&, std::string_view label, const Buffer&);
void submit_sum(Queue&, std::string_view label, const ConstBuffer& a, const ConstBuffer& b, const Buffer& to);

}  // namespace gradmeter::model
