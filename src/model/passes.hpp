// Work that models and layers share.
#pragma once
#include "model/model.hpp"

namespace gradmeter::model {

/// Softmax cross-entropy of logits [samples × classes]; of the batch its labels and its scale count. `delta`: the
/// scaled gradient of the batch's mean loss by the logits; empty: not wanted. It costs little more than the
/// exponentials, so it is computed here and not again in backward. outcome: added to; null: another rank reports it.
/// The precision is fp32, or one whose sums are logarithms: then all of it is computed in them.
void submit_loss(Queue&, const ConstBuffer& logits, const Batch&, const Buffer& delta, const OutcomePlace& outcome,
                 kernels::Precision = kernels::Precision::fp32);
/// Sets `delta` to zero where the output of a ReLU is.
void submit_relu_backward(Queue&, const ConstBuffer& output, const Buffer& delta);

}  // namespace gradmeter::model
