// SPDX-License-Identifier: Apache-2.0
// Convolutions on a GPU by our own kernels as operations.
#include "kernels/backends.hpp"
#include "kernels/conv/gpu_kernels.hpp"
#include "kernels/cuda/device_op.hpp"

namespace gradmeter::kernels::cuda {
namespace {

template <class T>
class OwnConv final : public DeviceOp {
 public:
  OwnConv(const ConvShape& s, Pass pass, core::Element e, runtime::Cost cost, runtime::Device& device)
      : DeviceOp(conv_operands(s, pass, e), cost),
        shape_(s),
        pass_(pass),
        scratch_(device, product_scratch(extents_of(s, pass))) {}
  std::size_t scratch_bytes() const override { return scratch_.bytes(); }
  std::string implementation() const override { return "own tiles, gathered"; }

 protected:
  void launch(Inputs in, Outputs out, cudaStream_t stream) override {
    convolve(
        shape_, pass_,
        ConvOperands<T>{device_values<T>(in[0]), device_values<T>(in[1]), device_values<T>(out[0]), scratch_.span()},
        stream);
  }

 private:
  ConvShape shape_;
  Pass pass_;
  Scratch scratch_;
};

template <class T>
std::unique_ptr<Op> make(const Problem& p, core::Element e, runtime::Device& device) {
  const auto& s = std::get<ConvShape>(p.shape);
  return std::make_unique<OwnConv<T>>(s, p.pass, e, runtime::Cost{.flops = flops(p), .bytes = native_bytes(p)}, device);
}

}  // namespace

std::string own_conv_refusal(const Problem& p) {
  if (auto why = conv_shape_refusal(p); !why.empty()) return why;
  const auto& s = std::get<ConvShape>(p.shape);
  constexpr std::size_t most = 0x7fffffff;
  const std::size_t taps = s.filter_height * s.filter_width,
                    largest = std::max({s.batch * s.height * s.width, s.batch * s.out_height() * s.out_width(),
                                        s.channels * taps, s.filters * taps});
  return largest > most ? "images or filters have 2^31 places or more" : "";
}

std::unique_ptr<Op> make_own_conv(const Problem& p, const OpOptions&, runtime::Device& device) {
  if (p.precision == Precision::bf16) return make<Bf16>(p, core::Element::bf16, device);
  if (p.precision == Precision::fp16) return make<Fp16>(p, core::Element::f16, device);
  return make<float>(p, core::Element::f32, device);
}

}  // namespace gradmeter::kernels::cuda
