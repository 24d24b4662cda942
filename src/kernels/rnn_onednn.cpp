#include "kernels/rnn_onednn.hpp"

#include "kernels/reference/rnn.hpp"

namespace gradmeter::kernels::onednn {
namespace {

using Description = dnnl::memory::desc;
constexpr auto direction = dnnl::rnn_direction::unidirectional_left2right;
constexpr auto activation = dnnl::algorithm::eltwise_relu;

struct Descriptions {
  Description input, output, state, memory, weights, recurrent, bias;
  // The states after the last step: not asked for, the last step of the layer's output has h.
  Description none = {};
};

Descriptions describe(const RnnShape& s, Type data, Type weights, Tag weights_tag) {
  const auto n = dim(s.batch), h = dim(s.hidden), g = dim(gates_of(s.cell));
  return {{{dim(s.steps), n, dim(s.input_width())}, data, Tag::tnc},
          {{dim(s.steps), n, h}, data, Tag::tnc},
          {{1, 1, n, h}, data, Tag::ldnc},
          {{1, 1, n, h}, Type::f32, Tag::ldnc},
          rnn_weights(s, s.input_width(), weights, weights_tag),
          rnn_weights(s, s.hidden, weights, weights_tag),
          {{1, 1, g, h}, Type::f32, Tag::ldgo}};
}

template <class Primitive>
RnnPrimitive made(const typename Primitive::primitive_desc& d) {
  RnnPrimitive result{Primitive(d), {}, d.scratchpad_desc(), d.impl_info_str()};
  for (const int name :
       {DNNL_ARG_SRC_LAYER, DNNL_ARG_SRC_ITER, DNNL_ARG_SRC_ITER_C, DNNL_ARG_WEIGHTS_LAYER, DNNL_ARG_WEIGHTS_ITER,
        DNNL_ARG_BIAS, DNNL_ARG_DST_LAYER, DNNL_ARG_WORKSPACE, DNNL_ARG_DIFF_SRC_LAYER, DNNL_ARG_DIFF_SRC_ITER,
        DNNL_ARG_DIFF_SRC_ITER_C, DNNL_ARG_DIFF_WEIGHTS_LAYER, DNNL_ARG_DIFF_WEIGHTS_ITER, DNNL_ARG_DIFF_BIAS,
        DNNL_ARG_DIFF_DST_LAYER}) {
    const auto wanted = d.query_md(dnnl::query::exec_arg_md, name);
    if (wanted.get_size() > 0) result.tensors.emplace(name, wanted);
  }
  return result;
}

/// What a pass is made of: the forward primitive's description, which the backward one wants to see as well.
struct Context {
  Descriptions x, gradients;
  dnnl::primitive_attr attributes;
  dnnl::engine engine;
};

dnnl::vanilla_rnn_forward::primitive_desc vanilla(const Context& c, dnnl::prop_kind kind) {
  const auto& x = c.x;
  return {{kind, activation, direction, x.input, x.state, x.weights, x.recurrent, x.bias, x.output, x.none},
          c.attributes,
          c.engine};
}
dnnl::lstm_forward::primitive_desc lstm(const Context& c, dnnl::prop_kind kind) {
  const auto& x = c.x;
  return {{kind, direction, x.input, x.state, x.memory, x.weights, x.recurrent, x.bias, x.output, x.none, x.none},
          c.attributes,
          c.engine};
}
dnnl::gru_forward::primitive_desc gru(const Context& c, dnnl::prop_kind kind) {
  const auto& x = c.x;
  return {
      {kind, direction, x.input, x.state, x.weights, x.recurrent, x.bias, x.output, x.none}, c.attributes, c.engine};
}

constexpr auto backward = dnnl::prop_kind::backward;
constexpr auto training = dnnl::prop_kind::forward_training;

RnnPrimitive vanilla_backward(const Context& c) {
  const auto &x = c.x, &g = c.gradients;
  return made<dnnl::vanilla_rnn_backward>(
      {{backward, activation, direction, x.input, x.state, x.weights, x.recurrent, x.bias, x.output, x.none, g.input,
        g.state, g.weights, g.recurrent, g.bias, g.output, g.none},
       c.attributes,
       c.engine,
       vanilla(c, training)});
}
RnnPrimitive lstm_backward(const Context& c) {
  const auto &x = c.x, &g = c.gradients;
  return made<dnnl::lstm_backward>(
      {{backward, direction, x.input, x.state,  x.memory,  x.weights,   x.recurrent, x.bias,   x.output, x.none,
        x.none,   g.input,   g.state, g.memory, g.weights, g.recurrent, g.bias,      g.output, g.none,   g.none},
       c.attributes,
       c.engine,
       lstm(c, training)});
}
RnnPrimitive gru_backward(const Context& c) {
  const auto &x = c.x, &g = c.gradients;
  return made<dnnl::gru_backward>({{backward, direction, x.input, x.state, x.weights, x.recurrent, x.bias, x.output,
                                    x.none, g.input, g.state, g.weights, g.recurrent, g.bias, g.output, g.none},
                                   c.attributes,
                                   c.engine,
                                   gru(c, training)});
}

Context context(const RnnShape& s, Precision p, const dnnl::primitive_attr& attributes, const dnnl::engine& engine) {
  return {describe(s, rnn_data_type(p), rnn_weights_type(p), Tag::any), describe(s, Type::f32, Type::f32, Tag::any),
          attributes, engine};
}

}  // namespace

Type rnn_data_type(Precision p) {
  return p == Precision::bf16 ? Type::bf16 : p == Precision::int8 ? Type::u8 : Type::f32;
}
Type rnn_weights_type(Precision p) { return p == Precision::int8 ? Type::s8 : rnn_data_type(p); }

Description rnn_weights(const RnnShape& s, std::size_t inputs, Type type, Tag tag) {
  return {{1, 1, dim(inputs), dim(gates_of(s.cell)), dim(s.hidden)}, type, tag};
}

RnnPrimitive make_rnn_forward(const RnnShape& s, Precision p, dnnl::prop_kind kind, const dnnl::primitive_attr& a,
                              const dnnl::engine& engine) {
  const Context c = context(s, p, a, engine);
  if (s.cell == Cell::vanilla) return made<dnnl::vanilla_rnn_forward>(vanilla(c, kind));
  return s.cell == Cell::lstm ? made<dnnl::lstm_forward>(lstm(c, kind)) : made<dnnl::gru_forward>(gru(c, kind));
}

RnnPrimitive make_rnn_backward(const RnnShape& s, Precision p, const dnnl::primitive_attr& a,
                               const dnnl::engine& engine) {
  const Context c = context(s, p, a, engine);
  if (s.cell == Cell::vanilla) return vanilla_backward(c);
  return s.cell == Cell::lstm ? lstm_backward(c) : gru_backward(c);
}

}  // namespace gradmeter::kernels::onednn
