#include "compression/cuda/device_terngrad.hpp"

#include "compression/codecs/terngrad.hpp"
#include "compression/cuda/checks.hpp"
#include "compression/cuda/terngrad.hpp"

namespace gradmeter::compression::cuda {
namespace {

class DeviceTernGrad final : public DeviceCodec {
 public:
  explicit DeviceTernGrad(const CodecChoice& c) : codec_(c.codec), clip_(ternary_clip(c.parsed)) {}

  std::size_t wire_bytes(std::size_t n) const override { return codec_->wire_bytes(n); }
  std::size_t workspace_bytes(std::size_t n) const override { return terngrad_workspace(n); }

  void encode(DeviceSpan<const float> x, DeviceSpan<std::byte> wire, const Draw& draw, DeviceSpan<std::byte> workspace,
              cudaStream_t stream) const override {
    check_wire(wire, wire_bytes(x.size()));
    check_workspace(workspace, workspace_bytes(x.size()));
    if (x.empty()) return;
    terngrad_encode(x, clip_, detail::Draws(draw), wire.device_address(), workspace.device_address(), stream);
  }
  void decode(DeviceSpan<const std::byte> wire, DeviceSpan<const float> addend, DeviceSpan<float> out,
              DeviceSpan<std::byte>, cudaStream_t stream) const override {
    check_wire(wire, wire_bytes(out.size()));
    check_addend(addend, out);
    if (!out.empty()) terngrad_decode(wire.device_address(), addend.device_address(), out, stream);
  }
  void reduce(std::span<const DeviceSpan<const std::byte>> wires, std::size_t n, DeviceSpan<std::byte> out,
              const Draw& draw, DeviceSpan<std::byte> workspace, cudaStream_t stream) const override {
    const Wires all = checked_wires(wires, wire_bytes(n));
    check_wire(out, wire_bytes(n));
    check_workspace(workspace, workspace_bytes(n));
    if (n == 0) return;
    terngrad_reduce(all, n, clip_, detail::Draws(draw), out.device_address(), workspace.device_address(), stream);
  }

 private:
  CodecPtr codec_;
  double clip_;
};

}  // namespace

DeviceCodecPtr make_device_terngrad(const CodecChoice& c) { return std::make_unique<DeviceTernGrad>(c); }

}  // namespace gradmeter::compression::cuda
