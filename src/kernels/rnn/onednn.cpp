// SPDX-License-Identifier: Apache-2.0
// Recurrent layers by oneDNN: one layer, one direction. Forward in fp32, bf16 and, for lstm and gru, u8 by s8; backward
// in fp32 and bf16. oneDNN computes all gradients in one primitive, which is the pass backward_data here.
#include <array>
#include <utility>

#include "kernels/backends.hpp"
#include "kernels/host/onednn.hpp"
#include "kernels/number_format.hpp"
#include "kernels/problems/problem.hpp"
#include "kernels/rnn/reference.hpp"

namespace gradmeter::kernels {
namespace {

using onednn::Argument;
using onednn::dim;
using onednn::PreparedPrimitive;
using onednn::Tag;
using onednn::Type;
using Description = dnnl::memory::desc;

constexpr auto direction = dnnl::rnn_direction::unidirectional_left2right;
constexpr auto activation = dnnl::algorithm::eltwise_relu;
constexpr auto backward_pass = dnnl::prop_kind::backward;

/// The types of inputs, states and outputs (data_type) and of weights (weights_type). oneDNN wants bias, an lstm's c
/// and all gradients in f32.
Type data_type(Precision p) { return p == Precision::bf16 ? Type::bf16 : p == Precision::int8 ? Type::u8 : Type::f32; }
Type weights_type(Precision p) { return p == Precision::int8 ? Type::s8 : data_type(p); }

/// Describes weights [1 x 1 x inputs x gates x hidden], where `input_width` is the width of the layer's input (weights)
/// or state (recurrent).
Description weights_description(const RnnShape& s, std::size_t input_width, Type type, Tag tag) {
  return {{1, 1, dim(input_width), dim(gates_of(s.cell)), dim(s.hidden)}, type, tag};
}

/// Describes the operands: input [steps x batch x input], output [steps x batch x hidden], state and cell_state [1 x 1
/// x batch x hidden], weights and recurrent in layouts that the library chooses.
struct Descriptions {
  Description input, output, state, cell_state, weights, recurrent, bias;
  /// For the states after the last step, which are not requested, since the last step of the output has h.
  Description none = {};
};

Descriptions describe(const RnnShape& s, Type data, Type weights) {
  const auto n = dim(s.batch), h = dim(s.hidden), g = dim(gates_of(s.cell));
  return {{{dim(s.steps), n, dim(s.input_width())}, data, Tag::tnc},
          {{dim(s.steps), n, h}, data, Tag::tnc},
          {{1, 1, n, h}, data, Tag::ldnc},
          {{1, 1, n, h}, Type::f32, Tag::ldnc},
          weights_description(s, s.input_width(), weights, Tag::any),
          weights_description(s, s.hidden, weights, Tag::any),
          {{1, 1, g, h}, Type::f32, Tag::ldgo}};
}

dnnl::primitive_attr attributes(const Problem& p, const std::optional<Quantization>& q) {
  dnnl::primitive_attr a;
  a.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (p.precision != Precision::int8) return a;
  a.set_rnn_data_qparams(1 / (q ? q->quantum : rnn_quantum), q ? static_cast<float>(q->zero_point) : rnn_zero_point);
  if (!q) {
    a.set_rnn_weights_qparams(0, {rnn_weights_scale(std::get<RnnShape>(p.shape))});
    return a;
  }
  std::vector<float> scales;
  for (const float w : q->weight_quanta) scales.push_back(1 / w);
  // A scale for each gate and hidden unit: these are dimensions 3 and 4 of [layers x directions x inputs x gates x
  // hidden].
  constexpr int gates_and_hidden = (1 << 3) + (1 << 4);
  a.set_rnn_weights_qparams(gates_and_hidden, scales);
  return a;
}

/// Attributes of the conversion from u8 to fp32.
dnnl::primitive_attr dequantizing(const Quantization& q) {
  dnnl::primitive_attr a;
  a.set_output_scales(0, {q.quantum});
  a.set_zero_points(DNNL_ARG_FROM, 0, {q.zero_point});
  return a;
}

constexpr std::array inputs{std::pair{"input", DNNL_ARG_SRC_LAYER},        std::pair{"state", DNNL_ARG_SRC_ITER},
                            std::pair{"memory", DNNL_ARG_SRC_ITER_C},      std::pair{"weights", DNNL_ARG_WEIGHTS_LAYER},
                            std::pair{"recurrent", DNNL_ARG_WEIGHTS_ITER}, std::pair{"bias", DNNL_ARG_BIAS}};
constexpr std::array results{std::pair{"output", DNNL_ARG_DST_LAYER}, std::pair{"kept", DNNL_ARG_WORKSPACE}};
constexpr std::array output_gradient{std::pair{"output gradient", DNNL_ARG_DIFF_DST_LAYER}};
constexpr std::array gradients{std::pair{"input gradient", DNNL_ARG_DIFF_SRC_LAYER},
                               std::pair{"state gradient", DNNL_ARG_DIFF_SRC_ITER},
                               std::pair{"memory gradient", DNNL_ARG_DIFF_SRC_ITER_C},
                               std::pair{"weights gradient", DNNL_ARG_DIFF_WEIGHTS_LAYER},
                               std::pair{"recurrent gradient", DNNL_ARG_DIFF_WEIGHTS_ITER},
                               std::pair{"bias gradient", DNNL_ARG_DIFF_BIAS}};

/// Makes the primitive of a problem.
class RnnMaker {
 public:
  RnnMaker(const Problem& p, const dnnl::engine& engine, const OpOptions& o)
      : problem_(p),
        shape_(std::get<RnnShape>(p.shape)),
        training_(o.training),
        quantization_(o.quantization),
        attributes_(attributes(p, quantization_)),
        engine_(engine),
        operands_(describe(shape_, data_type(p.precision), weights_type(p.precision))),
        gradients_(describe(shape_, Type::f32, Type::f32)) {}

  PreparedPrimitive make() const {
    if (is_backward()) return backward();
    const auto kind = training_ ? dnnl::prop_kind::forward_training : dnnl::prop_kind::forward_inference;
    if (shape_.cell == Cell::vanilla) return prepare<dnnl::vanilla_rnn_forward>(vanilla(kind));
    return shape_.cell == Cell::lstm ? prepare<dnnl::lstm_forward>(lstm(kind)) : prepare<dnnl::gru_forward>(gru(kind));
  }

 private:
  bool is_backward() const { return problem_.pass != Pass::forward; }

  dnnl::vanilla_rnn_forward::primitive_desc vanilla(dnnl::prop_kind kind) const {
    return {{kind, activation, direction, operands_.input, operands_.state, operands_.weights, operands_.recurrent,
             operands_.bias, operands_.output, operands_.none},
            attributes_,
            engine_};
  }
  dnnl::lstm_forward::primitive_desc lstm(dnnl::prop_kind kind) const {
    return {{kind, direction, operands_.input, operands_.state, operands_.cell_state, operands_.weights,
             operands_.recurrent, operands_.bias, operands_.output, operands_.none, operands_.none},
            attributes_,
            engine_};
  }
  dnnl::gru_forward::primitive_desc gru(dnnl::prop_kind kind) const {
    return {{kind, direction, operands_.input, operands_.state, operands_.weights, operands_.recurrent, operands_.bias,
             operands_.output, operands_.none},
            attributes_,
            engine_};
  }

  /// Makes the backward primitive, for which the library also wants the description of the forward pass.
  PreparedPrimitive backward() const {
    constexpr auto training = dnnl::prop_kind::forward_training;
    if (shape_.cell == Cell::vanilla)
      return prepare<dnnl::vanilla_rnn_backward>(
          {{backward_pass, activation, direction, operands_.input, operands_.state, operands_.weights,
            operands_.recurrent, operands_.bias, operands_.output, operands_.none, gradients_.input, gradients_.state,
            gradients_.weights, gradients_.recurrent, gradients_.bias, gradients_.output, gradients_.none},
           attributes_,
           engine_,
           vanilla(training)});
    if (shape_.cell == Cell::lstm)
      return prepare<dnnl::lstm_backward>(
          {{backward_pass,        direction,           operands_.input,   operands_.state,       operands_.cell_state,
            operands_.weights,    operands_.recurrent, operands_.bias,    operands_.output,      operands_.none,
            operands_.none,       gradients_.input,    gradients_.state,  gradients_.cell_state, gradients_.weights,
            gradients_.recurrent, gradients_.bias,     gradients_.output, gradients_.none,       gradients_.none},
           attributes_,
           engine_,
           lstm(training)});
    return prepare<dnnl::gru_backward>(
        {{backward_pass, direction, operands_.input, operands_.state, operands_.weights, operands_.recurrent,
          operands_.bias, operands_.output, operands_.none, gradients_.input, gradients_.state, gradients_.weights,
          gradients_.recurrent, gradients_.bias, gradients_.output, gradients_.none},
         attributes_,
         engine_,
         gru(training)});
  }

  template <class Primitive>
  PreparedPrimitive prepare(const typename Primitive::primitive_desc& d) const {
    PreparedPrimitive prepared{.primitive = Primitive(d),
                               .scratchpad = d.scratchpad_desc(),
                               .implementation = d.impl_info_str(),
                               .inputs = {},
                               .outputs = {},
                               .packing_attributes = attributes_};
    add(inputs, d, prepared.inputs);
    add(results, d, is_backward() ? prepared.inputs : prepared.outputs);
    add(output_gradient, d, prepared.inputs);
    add(gradients, d, prepared.outputs);
    if (quantization_) prepared.outputs.at(0).fp32_conversion = dequantizing(*quantization_);
    return prepared;
  }

  /// Appends those of the wanted operands that the primitive has.
  void add(std::span<const std::pair<const char*, int>> wanted, const dnnl::primitive_desc_base& d,
           std::vector<Argument>& to) const {
    for (const auto& [name, number] : wanted) {
      const Description stored = d.query_md(dnnl::query::exec_arg_md, number);
      const bool is_added_to =
          number == DNNL_ARG_DIFF_WEIGHTS_LAYER || number == DNNL_ARG_DIFF_WEIGHTS_ITER || number == DNNL_ARG_DIFF_BIAS;
      if (stored.get_size() > 0) to.push_back({name, number, stored, plain(number, stored), is_added_to});
    }
  }
  Description plain(int number, const Description& stored) const {
    const Type type = problem_.precision == Precision::int8 ? Type::f32 : weights_type(problem_.precision);
    switch (number) {
      case DNNL_ARG_WORKSPACE:
        return {};
      case DNNL_ARG_WEIGHTS_LAYER:
        return weights_description(shape_, shape_.input_width(), type, Tag::ldigo);
      case DNNL_ARG_WEIGHTS_ITER:
        return weights_description(shape_, shape_.hidden, type, Tag::ldigo);
      case DNNL_ARG_DIFF_WEIGHTS_LAYER:
        return weights_description(shape_, shape_.input_width(), Type::f32, Tag::ldigo);
      case DNNL_ARG_DIFF_WEIGHTS_ITER:
        return weights_description(shape_, shape_.hidden, Type::f32, Tag::ldigo);
      default:
        return stored;
    }
  }

  Problem problem_;
  RnnShape shape_;
  bool training_;
  std::optional<Quantization> quantization_;
  dnnl::primitive_attr attributes_;
  dnnl::engine engine_;
  Descriptions operands_, gradients_;  ///< descriptions of the operands, and of their gradients
};

}  // namespace

std::string onednn_rnn_refusal(const Problem& p) {
  if (auto why = rnn_shape_refusal(p); !why.empty()) return why;
  const auto& s = std::get<RnnShape>(p.shape);
  if (p.precision == Precision::int8 && p.pass != Pass::forward)
    return "int8 rnn has a forward pass alone: no library trains in 8 bits";
  if (p.precision == Precision::int8 && s.cell == Cell::vanilla) return "oneDNN has int8 rnn for lstm and gru alone";
  return p.precision == Precision::bf16 ? onednn::bf16_refusal() : "";
}

std::unique_ptr<Op> make_onednn_rnn(const Problem& p, const OpOptions& o, runtime::Device& device) {
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return onednn::make_primitive_op(
      onednn::checked("creation of a recurrent primitive", [&] { return RnnMaker(p, engine, o).make(); }),
      {.flops = run_flops(p), .bytes = bytes(p)}, engine, device);
}

}  // namespace gradmeter::kernels
