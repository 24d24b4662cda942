// oneDNN's recurrent primitives by one interface: which tensors each needs, in which layouts.
#pragma once
#include <unordered_map>

#include "kernels/onednn.hpp"
#include "kernels/problems/problem.hpp"

namespace gradmeter::kernels::onednn {

struct RnnPrimitive {
  dnnl::primitive primitive;
  std::unordered_map<int, dnnl::memory::desc> tensors;  ///< by DNNL_ARG_…; workspace too, scratchpad not
  dnnl::memory::desc scratchpad;
  std::string name;
};

/// Type of inputs, states and outputs, and of weights. Bias, c of lstm and all gradients are f32 always: oneDNN's rule.
Type rnn_data_type(Precision);
Type rnn_weights_type(Precision);
/// W [1 x 1 x input x gates x hidden] or U [1 x 1 x hidden x gates x hidden] in a layout.
dnnl::memory::desc rnn_weights(const RnnShape&, std::size_t inputs, Type, Tag);

/// `kind`: forward_inference, or forward_training, which writes the workspace that the backward pass reads.
/// Input [steps x batch x input], output [steps x batch x hidden], states [1 x 1 x batch x hidden]; weights in the
/// library's own layouts. Errors: dnnl::error.
RnnPrimitive make_rnn_forward(const RnnShape&, Precision, dnnl::prop_kind kind, const dnnl::primitive_attr&,
                              const dnnl::engine&);
RnnPrimitive make_rnn_backward(const RnnShape&, Precision, const dnnl::primitive_attr&, const dnnl::engine&);

}  // namespace gradmeter::kernels::onednn
