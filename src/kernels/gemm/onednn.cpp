// SPDX-License-Identifier: Apache-2.0
// Dense products by oneDNN's matmul: fp32; bf16 with sums in fp32; u8 by s8 with sums in int32. Bias, accumulation and
// ReLU are parts of the same primitive. A transposed operand is described by its strides (format tags ab, ba), so that
// nothing is copied.
#include "kernels/host/onednn.hpp"
#include "kernels/backends.hpp"

namespace gradmeter::kernels {
namespace {

using onednn::Tag;
using onednn::Type;

/// Describes an operand in plain form: `count` matrices one after another, one for each product.
class Matrices {
 public:
  explicit Matrices(std::size_t count) : count_(count) {}
  dnnl::memory::desc operator()(std::size_t rows, std::size_t columns, Type type, Transpose t = Transpose::no) const {
    const bool is_transposed = t == Transpose::yes;
    if (count_ == 1) return {{onednn::dim(rows), onednn::dim(columns)}, type, is_transposed ? Tag::ba : Tag::ab};
    return {{onednn::dim(count_), onednn::dim(rows), onednn::dim(columns)}, type, is_transposed ? Tag::acb : Tag::abc};
  }

 private:
  std::size_t count_;
};

dnnl::primitive_attr attributes(const GemmShape& s) {
  dnnl::post_ops after;
  if (s.accumulate) after.append_sum(1.0F);
  if (s.activation == Activation::relu) after.append_eltwise(1.0F, dnnl::algorithm::eltwise_relu, 0.0F, 0.0F);
  dnnl::primitive_attr attributes;
  attributes.set_post_ops(after);
  // The library's own scratchpad belongs to the thread that made the primitive; with ours, any thread may run it.
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

onednn::PreparedPrimitive prepared(const Problem& p, const OpOptions& o, const dnnl::engine& engine) {
  const auto& s = std::get<GemmShape>(p.shape);
  const onednn::OperandTypes types = onednn::operand_types(p.precision);
  const Matrices matrix(s.count);
  const auto a = matrix(s.m, s.k, types.left, s.transpose_a), b = matrix(s.k, s.n, types.right, s.transpose_b),
             c = matrix(s.m, s.n, types.result), bias = matrix(1, s.n, Type::f32);
  const auto b_layout = s.packed ? dnnl::memory::desc({onednn::dim(s.k), onednn::dim(s.n)}, types.right, Tag::any) : b;
  const dnnl::matmul::primitive_desc description(
      s.bias ? dnnl::matmul::desc(a, b_layout, bias, c) : dnnl::matmul::desc(a, b_layout, c), attributes(s), engine);
  onednn::PreparedPrimitive prepared{
      .primitive = dnnl::matmul(description),
      .scratchpad = description.scratchpad_desc(),
      .implementation = description.impl_info_str(),
      .inputs = {{"a", DNNL_ARG_SRC, a, a}, {"b", DNNL_ARG_WEIGHTS, description.weights_desc(), b}},
      .outputs = {{"c", DNNL_ARG_DST, c, c, s.accumulate}}};
  if (s.bias) prepared.inputs.push_back({"bias", DNNL_ARG_BIAS, bias, bias});
  if (o.quantization) onednn::quantize(*o.quantization, 1, prepared);
  return prepared;
}

}  // namespace

std::string onednn_gemm_refusal(const Problem& p) {
  if (auto why = gemm_shape_refusal(p); !why.empty()) return why;
  const auto& s = std::get<GemmShape>(p.shape);
  if (s.count > 1 && (s.packed || s.bias)) return "products by the count have no packed operand and no bias";
  return p.precision == Precision::bf16 ? onednn::bf16_refusal() : "";
}

std::unique_ptr<Op> make_onednn_gemm(const Problem& p, const OpOptions& o, runtime::Device& device) {
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return onednn::make_primitive_op(
      onednn::checked("creation of a matmul primitive", [&] { return prepared(p, o, engine); }),
      {.flops = flops(p), .bytes = bytes(p)}, engine, device);
}

}  // namespace gradmeter::kernels
