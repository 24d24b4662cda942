// Work that models and layers share.
#pragma once
#include "model/model.hpp"

namespace gradmeter::model {

/// Softmax cross-entropy of logits [samples × classes]. `delta`: the loss's gradient by the logits, of the batch's
/// mean; empty: not wanted. It costs little more than the exponentials, so it is computed here and not again in
/// backward. outcome: added to; null: another rank reports it.
void submit_loss(Queue&, const ConstBuffer& logits, const ConstBuffer& labels, const Buffer& delta,
                 const OutcomePlace& outcome);
/// Sets `delta` to zero where the output of a ReLU is.
void submit_relu_backward(Queue&, const ConstBuffer& output, const Buffer& delta);

}  // namespace gradmeter::model
