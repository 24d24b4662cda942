#include "compression/cuda/device_bucketed.hpp"

#include "compression/cuda/cast.hpp"
#include "compression/cuda/checks.hpp"
#include "compression/cuda/onebit.hpp"
#include "compression/registry.hpp"

namespace gradmeter::compression::cuda {
namespace {

using detail::Norm;

class DeviceBucketed final : public DeviceCodec {
 public:
  DeviceBucketed(const WireLayout& layout, Norm norm, const BucketedKernels& kernels)
      : layout_(layout), norm_(norm), kernels_(kernels) {}

  std::size_t wire_bytes(std::size_t n) const override { return layout_.wire(n); }
  std::size_t workspace_bytes(std::size_t) const override { return 0; }

  void encode(DeviceSpan<const float> x, DeviceSpan<std::byte> wire, const Draw& draw, DeviceSpan<std::byte>,
              cudaStream_t stream) const override {
    check_wire(wire, wire_bytes(x.size()));
    if (x.empty()) return;
    kernels_.encode(x.device_address(), shape(x.size()), norm_, detail::Draws(draw), wire.device_address(), stream);
  }
  void decode(DeviceSpan<const std::byte> wire, DeviceSpan<const float> addend, DeviceSpan<float> out,
              DeviceSpan<std::byte>, cudaStream_t stream) const override {
    check_wire(wire, wire_bytes(out.size()));
    check_addend(addend, out);
    if (out.empty()) return;
    kernels_.decode(wire.device_address(), shape(out.size()), addend.device_address(), out.device_address(), stream);
  }
  void reduce(std::span<const DeviceSpan<const std::byte>> wires, std::size_t n, DeviceSpan<std::byte> out,
              const Draw& draw, DeviceSpan<std::byte>, cudaStream_t stream) const override {
    const Wires all = checked_wires(wires, wire_bytes(n));
    check_wire(out, wire_bytes(n));
    if (n == 0) return;
    kernels_.reduce(all, shape(n), norm_, detail::Draws(draw), out.device_address(), stream);
  }

 private:
  WireShape shape(std::size_t n) const { return WireShape(layout_, n); }

  WireLayout layout_;
  Norm norm_;
  const BucketedKernels& kernels_;
};

DeviceCodecPtr made(const CodecChoice& c, const BucketedKernels& kernels, Norm norm = Norm::max) {
  return std::make_unique<DeviceBucketed>(c.codec->layout().value(), norm, kernels);
}

}  // namespace

DeviceCodecPtr make_device_qsgd(const CodecChoice& c) {
  const std::size_t bits = c.codec->layout().value().bits;
  return made(c, qsgd_kernels(bits, detail::rounding_of(c.parsed)), detail::norm_of(c.parsed));
}
DeviceCodecPtr make_device_qsgd1(const CodecChoice& c) { return made(c, qsgd1_kernels()); }
DeviceCodecPtr make_device_fp8_e4m3(const CodecChoice& c) { return made(c, fp8_kernels(true)); }
DeviceCodecPtr make_device_fp8_e5m2(const CodecChoice& c) { return made(c, fp8_kernels(false)); }
DeviceCodecPtr make_device_bf16(const CodecChoice& c) { return made(c, cast_kernels(false)); }
DeviceCodecPtr make_device_fp16(const CodecChoice& c) { return made(c, cast_kernels(true)); }
DeviceCodecPtr make_device_onebit(const CodecChoice& c) {
  return made(c, onebit_kernels(whole_number(c.parsed, "means", 1, 2) == 2));
}
DeviceCodecPtr make_device_lns4(const CodecChoice& c) { return made(c, lns4_kernels()); }
DeviceCodecPtr make_device_natural8(const CodecChoice& c) { return made(c, natural_kernels()); }

}  // namespace gradmeter::compression::cuda
