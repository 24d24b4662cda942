// Recurrent layers by oneDNN: one layer, one direction. Forward in fp32, bf16 and, for lstm and gru, u8 by s8; backward
// in fp32 and bf16. oneDNN computes all gradients in one primitive, which is backward-data here.
#include "kernels/rnn_onednn.hpp"
#include "kernels/ops/makers.hpp"
#include "kernels/ops/primitive_op.hpp"
#include "kernels/quantization.hpp"
#include "kernels/reference/rnn.hpp"

namespace gradmeter::kernels {
namespace {

using onednn::Argument;
using onednn::Tag;
using onednn::Type;

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
  constexpr int gates_and_hidden = (1 << 3) + (1 << 4);  // of layers, directions, inputs, gates, hidden
  a.set_rnn_weights_qparams(gates_and_hidden, scales);
  return a;
}

dnnl::primitive_attr restoring(const Quantization& q) {
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

class RnnMaker {
 public:
  RnnMaker(const Problem& p, const dnnl::engine& engine, const OpOptions& o)
      : p_(p),
        s_(std::get<RnnShape>(p.shape)),
        quantization_(o.quantization),
        attributes_(attributes(p, quantization_)),
        made_(make(engine, o.training)) {}

  onednn::PreparedPrimitive prepared() const {
    onednn::PreparedPrimitive all{.primitive = made_.primitive,
                                  .scratchpad = made_.scratchpad,
                                  .implementation = made_.name,
                                  .inputs = {},
                                  .outputs = {},
                                  .packing = attributes_};
    add(inputs, all.inputs);
    add(results, backward() ? all.inputs : all.outputs);
    add(output_gradient, all.inputs);
    add(gradients, all.outputs);
    if (quantization_) all.outputs.at(0).floats = restoring(*quantization_);
    return all;
  }

 private:
  bool backward() const { return p_.pass != Pass::forward; }

  onednn::RnnPrimitive make(const dnnl::engine& engine, bool training) const {
    if (backward()) return onednn::make_rnn_backward(s_, p_.precision, attributes_, engine);
    const auto kind = training ? dnnl::prop_kind::forward_training : dnnl::prop_kind::forward_inference;
    return onednn::make_rnn_forward(s_, p_.precision, kind, attributes_, engine);
  }

  /// Those that the primitive has.
  void add(std::span<const std::pair<const char*, int>> wanted, std::vector<Argument>& to) const {
    for (const auto& [name, number] : wanted) {
      const auto found = made_.tensors.find(number);
      const bool added_to =
          number == DNNL_ARG_DIFF_WEIGHTS_LAYER || number == DNNL_ARG_DIFF_WEIGHTS_ITER || number == DNNL_ARG_DIFF_BIAS;
      if (found != made_.tensors.end())
        to.push_back({name, number, found->second, plain(number, found->second), added_to});
    }
  }
  dnnl::memory::desc plain(int number, const dnnl::memory::desc& stored) const {
    const bool is_int8 = p_.precision == Precision::int8;
    const Type type = onednn::rnn_weights_type(p_.precision);
    switch (number) {
      case DNNL_ARG_WORKSPACE:
        return {};
      case DNNL_ARG_WEIGHTS_LAYER:
        return onednn::rnn_weights(s_, s_.input_width(), is_int8 ? Type::f32 : type, Tag::ldigo);
      case DNNL_ARG_WEIGHTS_ITER:
        return onednn::rnn_weights(s_, s_.hidden, is_int8 ? Type::f32 : type, Tag::ldigo);
      case DNNL_ARG_DIFF_WEIGHTS_LAYER:
        return onednn::rnn_weights(s_, s_.input_width(), Type::f32, Tag::ldigo);
      case DNNL_ARG_DIFF_WEIGHTS_ITER:
        return onednn::rnn_weights(s_, s_.hidden, Type::f32, Tag::ldigo);
      default:
        return stored;
    }
  }

  Problem p_;
  RnnShape s_;
  std::optional<Quantization> quantization_;
  dnnl::primitive_attr attributes_;
  onednn::RnnPrimitive made_;
};

}  // namespace

std::string rnn_op_refusal(const Problem& p) {
  if (auto why = rnn_shape_refusal(p); !why.empty()) return why;
  const auto& s = std::get<RnnShape>(p.shape);
  if (p.precision == Precision::int8 && p.pass != Pass::forward)
    return "int8 rnn has a forward pass alone: no library trains in 8 bits";
  if (p.precision == Precision::int8 && s.cell == Cell::vanilla) return "oneDNN has int8 rnn for lstm and gru alone";
  return p.precision == Precision::bf16 ? onednn::bf16_refusal() : "";
}

std::unique_ptr<Op> make_rnn_op(const Problem& p, const OpOptions& o, runtime::Device& device) {
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return onednn::make_primitive_op(
      onednn::checked("creation of a recurrent primitive", [&] { return RnnMaker(p, engine, o).prepared(); }),
      {.flops = run_flops(p), .bytes = bytes(p)}, engine, device);
}

}  // namespace gradmeter::kernels
