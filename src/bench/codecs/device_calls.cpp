// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "bench/codecs/measure.hpp"
#include "core/format.hpp"
#include "runtime/device.hpp"
#ifdef GRADMETER_HAS_CUDA
#include "compression/cuda/device_codec.hpp"
#include "kernels/loops.hpp"
#include "runtime/cuda/stream.hpp"
#endif

namespace gradmeter::bench {

#ifdef GRADMETER_HAS_CUDA
namespace {

using compression::cuda::DeviceCodecPtr;
using runtime::Buffer;
using runtime::DeviceSpan;

DeviceSpan<float> floats_of(const runtime::OwnedBuffer& b) {
  return DeviceSpan<float>(reinterpret_cast<float*>(b.buffer.device().device_address()), b.buffer.count());
}
DeviceSpan<std::byte> bytes_of(const runtime::OwnedBuffer& b) { return b.buffer.device(); }

/// Takes memory for `bytes` bytes; it is typed as int8, since buffers have no element type for bytes.
runtime::OwnedBuffer take(runtime::Device& device, std::size_t bytes) {
  return device.allocate(core::Element::i8, bytes);
}

class DeviceCalls final : public CodecCalls {
 public:
  DeviceCalls(const CodecTask& t, runtime::Device& device)
      : task_(t),
        codec_(compression::cuda::make_device_codec(t.choice)),
        queue_(device.make_queue()),
        x_(device.allocate(core::Element::f32, n())),
        y_(device.allocate(core::Element::f32, n())),
        wire_(take(device, codec_->wire_bytes(n()))),
        workspace_(take(device, std::max(codec_->workspace_bytes(n()), codec_->reduce_workspace_bytes(n())))) {
    queue_->copy("upload", t.gradient, x_.buffer);
    for (std::size_t p = 0; p < t.parts; ++p) {
      parts_.push_back(take(device, codec_->wire_bytes(n())));
      queue_->submit("encode", {}, [&] {
        codec_->encode(floats_of(x_), bytes_of(parts_.back()), task_.draw(p), bytes_of(workspace_), gpu::stream());
      });
    }
    for (const auto& p : parts_) part_bytes_.emplace_back(bytes_of(p));
    queue_->synchronise();
  }

  bool has(CodecCall) const override { return true; }

  /// The device must encode to the host's bytes, and decode to the host's numbers, bit by bit.
  std::string fault() override {
    const compression::Codec& host = task_.codec;
    std::vector<std::byte> wire(host.wire_bytes(n())), encoded(wire.size());
    wire.resize(host.encode(task_.gradient, wire.data(), task_.draw()));
    run(CodecCall::encode);
    queue_->copy("download", wire_.buffer, std::span(reinterpret_cast<std::int8_t*>(encoded.data()), encoded.size()));
    queue_->synchronise();
    encoded.resize(wire.size());
    if (encoded != wire) return "the device's encoding is not the host's";
    std::vector<float> expected(n()), found(n());
    host.decode(wire, expected);
    run(CodecCall::decode);
    queue_->copy("download", y_.buffer, found);
    queue_->synchronise();
    const bool same = std::memcmp(found.data(), expected.data(), n() * sizeof(float)) == 0;
    return same ? "" : "the device decodes other numbers than the host";
  }

  std::vector<double> time(CodecCall codec_call, std::size_t iterations) override {
    std::vector<std::pair<runtime::EventPtr, runtime::EventPtr>> marks(iterations);
    queue_->submit("clear", {}, [&] { kernels::loops().clear(y_.buffer); });
    for (auto& [begin, end] : marks) {
      queue_->submit("codec", {}, [&, this] {
        begin = runtime::device_access->mark();
        call(codec_call);
        end = runtime::device_access->mark();
      });
    }
    queue_->synchronise();
    std::vector<double> times;
    for (const auto& [begin, end] : marks) times.push_back(begin->until(*end));
    return times;
  }

 private:
  std::size_t n() const { return task_.gradient.size(); }
  void run(CodecCall codec_call) {
    queue_->submit("codec", {}, [&, this] { call(codec_call); });
  }

  /// Makes one call. To be called from within work of the queue.
  void call(CodecCall codec_call) {
    const DeviceSpan<const float> x = floats_of(x_);
    const DeviceSpan<float> y = floats_of(y_);
    const DeviceSpan<std::byte> workspace = bytes_of(workspace_), wire = bytes_of(wire_);
    switch (codec_call) {
      case CodecCall::copy:
        runtime::device_access->copy(y_.buffer.address(), x_.buffer.address(), x_.buffer.bytes());
        break;
      case CodecCall::add:
        kernels::loops().add(x_.buffer, y_.buffer, y_.buffer);
        break;
      case CodecCall::encode:
        codec_->encode(x, wire, task_.draw(), workspace, gpu::stream());
        break;
      case CodecCall::decode:
        codec_->decode(part_bytes_.front(), {}, y, workspace, gpu::stream());
        break;
      case CodecCall::decode_add:
        codec_->decode(part_bytes_.front(), y, y, workspace, gpu::stream());
        break;
      case CodecCall::reduce_encode:
        codec_->reduce(part_bytes_, n(), wire, task_.draw(), workspace, gpu::stream());
        break;
    }
  }

  const CodecTask task_;
  DeviceCodecPtr codec_;
  std::unique_ptr<runtime::Queue> queue_;
  runtime::OwnedBuffer x_, y_, wire_, workspace_;  ///< x_: the gradient; y_: what calls decode, copy or add up
  std::vector<runtime::OwnedBuffer> parts_;
  std::vector<DeviceSpan<const std::byte>> part_bytes_;  ///< `parts_` as bytes
};

}  // namespace

std::unique_ptr<CodecCalls> make_device_calls(const CodecTask& t, runtime::Device& device) {
  return std::make_unique<DeviceCalls>(t, device);
}

std::string device_calls_refusal(const compression::CodecChoice& c, const runtime::Device& device) {
  if (&device == &runtime::host_device()) return {};
  const auto form = compression::cuda::device_form(c.info->name);
  if (form.make) return {};
  if (c.codec) return std::string(form.description);
  return fmt::format("{} consists of collectives: of it a device has parts, which are not timed alone", c.label);
}
#else
std::unique_ptr<CodecCalls> make_device_calls(const CodecTask&, runtime::Device&) {
  throw std::logic_error("built without a device's codecs");
}
std::string device_calls_refusal(const compression::CodecChoice&, const runtime::Device&) { return {}; }
#endif

}  // namespace gradmeter::bench
