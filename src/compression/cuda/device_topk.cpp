#include "compression/cuda/device_topk.hpp"

#include "compression/cuda/checks.hpp"

namespace gradmeter::compression::cuda {
namespace {

class DeviceTopK final : public DeviceCodec {
 public:
  explicit DeviceTopK(const core::ParsedName& name) : host_(make_topk_encoding(name)) {}

  std::size_t wire_bytes(std::size_t n) const override { return host_->wire_bytes(n); }
  std::size_t workspace_bytes(std::size_t n) const override { return topk_workspace(n); }
  std::size_t reduce_workspace_bytes(std::size_t n) const override { return sum_bytes(n) + topk_workspace(n); }

  void encode(DeviceSpan<const float> x, DeviceSpan<std::byte> wire, const Draw&, DeviceSpan<std::byte> workspace,
              cudaStream_t stream) const override {
    const std::size_t n = x.size();
    check_wire(wire, wire_bytes(n));
    check_workspace(workspace, workspace_bytes(n));
    if (n == 0) return;
    topk_encode(x.device_address(), topk_wire(*host_, n), wire.device_address(), workspace.device_address(), stream);
  }
  void decode(DeviceSpan<const std::byte> wire, DeviceSpan<const float> addend, DeviceSpan<float> out,
              DeviceSpan<std::byte> workspace, cudaStream_t stream) const override {
    const std::size_t n = out.size();
    check_wire(wire, wire_bytes(n));
    check_addend(addend, out);
    check_workspace(workspace, workspace_bytes(n));
    if (n == 0) return;
    topk_decode(wire.device_address(), topk_wire(*host_, n), addend.empty() ? Sent::put : Sent::add,
                addend.device_address(), out.device_address(), workspace.device_address(), stream);
  }
  /// Through memory: which elements the sum sends depends on all of it.
  void reduce(std::span<const DeviceSpan<const std::byte>> wires, std::size_t n, DeviceSpan<std::byte> out,
              const Draw& draw, DeviceSpan<std::byte> workspace, cudaStream_t stream) const override {
    checked_wires(wires, wire_bytes(n));
    check_workspace(workspace, reduce_workspace_bytes(n));
    const DeviceSpan<float> sum(reinterpret_cast<float*>(workspace.device_address()), n);
    const auto rest = workspace.subspan(sum_bytes(n));
    decode(wires.front(), {}, sum, rest, stream);
    for (const auto& wire : wires.subspan(1)) decode(wire, sum, sum, rest, stream);
    encode(sum, out, draw, rest, stream);
  }

 private:
  static std::size_t sum_bytes(std::size_t n) { return (n * sizeof(float) + 255) / 256 * 256; }
  std::unique_ptr<const TopK> host_;
};

}  // namespace

TopKWire topk_wire(const TopK& codec, std::size_t n) {
  return {.n = n, .k = codec.kept(n), .bitmap = codec.sends_bitmap()};
}

DeviceCodecPtr make_device_topk(const CodecChoice& c) { return std::make_unique<DeviceTopK>(c.parsed); }

}  // namespace gradmeter::compression::cuda
