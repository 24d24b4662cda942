// SPDX-License-Identifier: Apache-2.0
// The operations of dense products on a GPU by our own kernels.
#include "kernels/backends.hpp"
#include "kernels/cuda/device_op.hpp"
#include "kernels/gemm/gpu_kernels.hpp"

namespace gradmeter::kernels::cuda {
namespace {

std::vector<Operand> inputs_of_own_gemm(const GemmShape& s, core::Element e) {
  std::vector<Operand> operands{plain_operand("a", e, s.count * s.m * s.k), plain_operand("b", e, s.count * s.k * s.n)};
  if (s.bias) operands.push_back(plain_operand("bias", core::Element::f32, s.n));
  return operands;
}

template <class T>
class OwnGemm final : public DeviceOp {
 public:
  OwnGemm(const GemmShape& s, core::Element e, runtime::Cost cost, runtime::Device& device)
      : DeviceOp({inputs_of_own_gemm(s, e), {plain_operand("c", e, s.count * s.m * s.n, s.accumulate)}}, cost),
        shape_(s),
        scratch_(device, gemm_scratch(s)) {}
  std::size_t scratch_bytes() const override { return scratch_.bytes(); }
  std::string implementation() const override { return "own tiles"; }

 protected:
  void launch(Inputs in, Outputs out, cudaStream_t stream) override {
    gemm(shape_,
         GemmOperands<T>{.a = device_values<T>(in[0]),
                         .b = device_values<T>(in[1]),
                         .bias = shape_.bias ? device_values<float>(in[2]) : DeviceSpan<const float>(),
                         .c = device_values<T>(out[0]),
                         .scratch = scratch_.span()},
         stream);
  }

 private:
  GemmShape shape_;
  Scratch scratch_;
};

}  // namespace

std::string own_gemm_refusal(const Problem& p) {
  if (auto why = gemm_shape_refusal(p); !why.empty()) return why;
  const auto& s = std::get<GemmShape>(p.shape);
  if (s.packed) return "products on the device have no layout of their own; leave packed out";
  constexpr std::size_t most = 0x7fffffff;
  return s.m > most || s.n > most || s.k > most || s.count > most ? "an extent of a product is 2^31 or more" : "";
}

std::unique_ptr<Op> make_own_gemm(const Problem& p, const OpOptions&, runtime::Device& device) {
  const auto& s = std::get<GemmShape>(p.shape);
  const runtime::Cost cost{.flops = flops(p), .bytes = native_bytes(p)};
  if (p.precision == Precision::bf16) return std::make_unique<OwnGemm<Bf16>>(s, core::Element::bf16, cost, device);
  if (p.precision == Precision::fp16) return std::make_unique<OwnGemm<Fp16>>(s, core::Element::f16, cost, device);
  return std::make_unique<OwnGemm<float>>(s, core::Element::f32, cost, device);
}

}  // namespace gradmeter::kernels::cuda
