// SPDX-License-Identifier: Apache-2.0
// The codecs on a GPU, which check arguments and launch the kernels of bucketed.hpp and device_codec.hpp, and their
// table.
#include "compression/cuda/device_codec.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <stdexcept>

#include "compression/codecs/quantized.hpp"
#include "compression/cuda/bucketed.hpp"
#include "compression/registry.hpp"
#include "core/error.hpp"
#include "core/format.hpp"

namespace gradmeter::compression::cuda {

namespace {

// Checks of arguments that all codecs on a GPU share. They are made before a launch: afterwards only the device would
// notice an error.

void check_aligned(const void* address, std::size_t bytes, const char* what) {
  if (reinterpret_cast<std::uintptr_t>(address) % bytes == 0) return;
  throw std::invalid_argument(
      fmt::format("{} at {} does not begin at a multiple of {} bytes, which kernels read in one access: move it", what,
                  address, bytes));
}

void check_wire(DeviceSpan<const std::byte> wire, std::size_t bytes) {
  if (wire.size() < bytes) {
    throw std::invalid_argument(
        fmt::format("a wire of {} bytes is too short for its tensor: give {}", wire.size(), bytes));
  }
  check_aligned(wire.device_address(), 16, "a wire");
}

void check_addend(DeviceSpan<const float> addend, DeviceSpan<float> out) {
  if (addend.empty() || addend.size() == out.size()) return;
  throw std::invalid_argument(
      fmt::format("{} numbers cannot be added to {} decoded ones: give as many, or none", addend.size(), out.size()));
}

void check_workspace(DeviceSpan<std::byte> workspace, std::size_t bytes) {
  if (workspace.size() < bytes) {
    throw std::invalid_argument(
        fmt::format("a workspace of {} bytes is too small: give workspace_bytes(n), {}", workspace.size(), bytes));
  }
  check_aligned(workspace.device_address(), 256, "a workspace");
}

Wires checked_wires(std::span<const DeviceSpan<const std::byte>> wires, std::size_t bytes) {
  if (wires.empty() || wires.size() > most_wires) {
    throw std::invalid_argument(
        fmt::format("{} wires cannot be added up: a kernel takes 1 to {}", wires.size(), most_wires));
  }
  Wires addresses{};
  for (const auto& wire : wires) {
    check_wire(wire, bytes);
    addresses.address[addresses.count++] = wire.device_address();
  }
  return addresses;
}

using detail::Norm;

class DeviceBucketed final : public DeviceCodec {
 public:
  DeviceBucketed(const WireLayout& layout, Norm norm, const BucketedKernels& kernels)
      : layout_(layout), norm_(norm), kernels_(kernels) {}

  std::size_t wire_bytes(std::size_t n) const override { return layout_.total_bytes(n); }
  std::size_t workspace_bytes(std::size_t) const override { return 0; }

  void encode(DeviceSpan<const float> x, DeviceSpan<std::byte> wire, const RandomDraw& draw, DeviceSpan<std::byte>,
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
              const RandomDraw& draw, DeviceSpan<std::byte>, cudaStream_t stream) const override {
    const Wires addresses = checked_wires(wires, wire_bytes(n));
    check_wire(out, wire_bytes(n));
    if (n == 0) return;
    kernels_.reduce(addresses, shape(n), norm_, detail::Draws(draw), out.device_address(), stream);
  }

 private:
  WireShape shape(std::size_t n) const { return WireShape(layout_, n); }

  WireLayout layout_;
  Norm norm_;
  const BucketedKernels& kernels_;
};

DeviceCodecPtr make_bucketed(const CodecChoice& c, const BucketedKernels& kernels, Norm norm = Norm::max) {
  return std::make_unique<DeviceBucketed>(c.codec->layout().value(), norm, kernels);
}

template <auto kernels, auto... arguments>
DeviceCodecPtr make_with(const CodecChoice& c) {
  return make_bucketed(c, kernels(arguments...));
}

DeviceCodecPtr make_onebit(const CodecChoice& c) {
  return make_bucketed(c, onebit_kernels(whole_number(c.parsed, "means", 1, 2) == 2));
}

/// With 2, 4 or 8 bits.
DeviceCodecPtr make_qsgd(const CodecChoice& c) {
  const std::size_t bits = c.codec->layout().value().bits;
  return make_bucketed(c, qsgd_kernels(bits, detail::rounding_of(c.parsed)), detail::norm_of(c.parsed));
}

class DeviceTernGrad final : public DeviceCodec {
 public:
  explicit DeviceTernGrad(const CodecChoice& c) : codec_(c.codec), clip_(ternary_clip(c.parsed)) {}

  std::size_t wire_bytes(std::size_t n) const override { return codec_->wire_bytes(n); }
  std::size_t workspace_bytes(std::size_t n) const override { return terngrad_workspace(n); }

  void encode(DeviceSpan<const float> x, DeviceSpan<std::byte> wire, const RandomDraw& draw,
              DeviceSpan<std::byte> workspace, cudaStream_t stream) const override {
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
              const RandomDraw& draw, DeviceSpan<std::byte> workspace, cudaStream_t stream) const override {
    const Wires addresses = checked_wires(wires, wire_bytes(n));
    check_wire(out, wire_bytes(n));
    check_workspace(workspace, workspace_bytes(n));
    if (n == 0) return;
    terngrad_reduce(addresses, n, clip_, detail::Draws(draw), out.device_address(), workspace.device_address(), stream);
  }

 private:
  CodecPtr codec_;
  double clip_;
};

class DeviceTopK final : public DeviceCodec {
 public:
  explicit DeviceTopK(const core::ParsedName& name) : host_(name) {}

  std::size_t wire_bytes(std::size_t n) const override { return host_.wire_bytes(n); }
  std::size_t workspace_bytes(std::size_t n) const override { return topk_workspace(n); }
  std::size_t reduce_workspace_bytes(std::size_t n) const override { return sum_bytes(n) + topk_workspace(n); }

  void encode(DeviceSpan<const float> x, DeviceSpan<std::byte> wire, const RandomDraw&, DeviceSpan<std::byte> workspace,
              cudaStream_t stream) const override {
    const std::size_t n = x.size();
    check_wire(wire, wire_bytes(n));
    check_workspace(workspace, workspace_bytes(n));
    if (n == 0) return;
    topk_encode(x.device_address(), host_.wire(n), wire.device_address(), workspace.device_address(), stream);
  }
  void decode(DeviceSpan<const std::byte> wire, DeviceSpan<const float> addend, DeviceSpan<float> out,
              DeviceSpan<std::byte> workspace, cudaStream_t stream) const override {
    const std::size_t n = out.size();
    check_wire(wire, wire_bytes(n));
    check_addend(addend, out);
    check_workspace(workspace, workspace_bytes(n));
    if (n == 0) return;
    topk_decode(wire.device_address(), host_.wire(n), addend.empty() ? Scatter::assign : Scatter::add,
                addend.device_address(), out.device_address(), workspace.device_address(), stream);
  }
  /// Adds up whole tensors in memory, since which elements are sent depends on the whole sum.
  void reduce(std::span<const DeviceSpan<const std::byte>> wires, std::size_t n, DeviceSpan<std::byte> out,
              const RandomDraw& draw, DeviceSpan<std::byte> workspace, cudaStream_t stream) const override {
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
  TopK host_;
};

constexpr std::string_view fused = "one read and one write; a warp for each 512 elements of a bucket",
                           cast = "one read and one write; four elements a thread";

/// Codecs that are not here have no kernels.
constexpr std::array table{
    DeviceCodecInfo{.name = "bf16", .description = cast, .make = make_with<cast_kernels, false>},
    DeviceCodecInfo{.name = "dgc", .description = "one pass gathers momentum; then as topk"},
    DeviceCodecInfo{.name = "fp16", .description = cast, .make = make_with<cast_kernels, true>},
    DeviceCodecInfo{.name = "fp8-e4m3", .description = fused, .make = make_with<fp8_kernels, true>},
    DeviceCodecInfo{.name = "fp8-e5m2", .description = fused, .make = make_with<fp8_kernels, false>},
    DeviceCodecInfo{.name = "lns4", .description = fused, .make = make_with<lns4_kernels>},
    DeviceCodecInfo{.name = "natural8", .description = fused, .make = make_with<natural_kernels>},
    DeviceCodecInfo{.name = "onebit", .description = "one read and one write; signs by ballots", .make = make_onebit},
    DeviceCodecInfo{.name = "powersgd",
                    .description = "products by rows and by columns, orthonormal columns by one block"},
    DeviceCodecInfo{
        .name = "qsgd-elias",
        .description =
            "its stream of bits has no place where a second thread could begin to read, so that decoding would "
            "take one thread as long as a tensor has elements"},
    DeviceCodecInfo{.name = "qsgd1", .description = fused, .make = make_with<qsgd1_kernels>},
    DeviceCodecInfo{.name = "qsgd2", .description = fused, .make = make_qsgd},
    DeviceCodecInfo{.name = "qsgd4", .description = fused, .make = make_qsgd},
    DeviceCodecInfo{.name = "qsgd8", .description = fused, .make = make_qsgd},
    DeviceCodecInfo{.name = "randomk", .description = "a thread to each place"},
    DeviceCodecInfo{.name = "terngrad",
                    .description = "two reads: the scale of the tensor, then its codes",
                    .make = [](const CodecChoice& c) -> DeviceCodecPtr { return std::make_unique<DeviceTernGrad>(c); }},
    DeviceCodecInfo{
        .name = "topk",
        .description = "two passes over histograms, then two that count and write",
        .make = [](const CodecChoice& c) -> DeviceCodecPtr { return std::make_unique<DeviceTopK>(c.parsed); }},
};

}  // namespace

DeviceCodecInfo device_form(std::string_view codec) {
  const auto row = std::ranges::find(table, codec, &DeviceCodecInfo::name);
  return row == table.end() ? DeviceCodecInfo{.name = codec, .description = "it has no kernels for GPUs"} : *row;
}

DeviceCodecPtr make_device_codec(const CodecChoice& c) {
  const DeviceCodecInfo form = device_form(c.info->name);
  if (form.make) return form.make(c);
  throw core::UsageError(fmt::format("codec {} cannot encode on a GPU by itself: {}; take another codec or the host's",
                                     c.info->name, c.codec ? form.description : "it consists of collectives"));
}

}  // namespace gradmeter::compression::cuda
