// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "bench/codecs/measure.hpp"
#include "bench/kernels/limits.hpp"
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
        clock_(device),
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

  /// A sample of short calls holds several, since its marks and its launch take time too. The time is one call's.
  std::vector<double> time(CodecCall codec_call, std::size_t iterations) override {
    const auto call_once = [&, this] { run(codec_call); };
    const auto clear = [this] { queue_->submit("clear", {}, [this] { kernels::loops().clear(y_.buffer); }); };
    std::size_t& calls = calls_in_sample_[static_cast<std::size_t>(codec_call)];
    if (calls == 0) {
      clock_.time(*queue_, 1, 1, false, call_once, clear);  // the first call costs more
      const double call_s = clock_.time(*queue_, 1, 1, false, call_once, clear).front();
      calls = static_cast<std::size_t>(std::ceil(std::clamp(long_sample_s / std::max(call_s, 1e-8), 1.0, 100.0)));
    }
    return clock_.time(*queue_, iterations, calls, false, call_once, clear);
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

  static constexpr double long_sample_s = 100e-6;

  const CodecTask task_;
  DeviceCodecPtr codec_;
  std::unique_ptr<runtime::Queue> queue_;
  DeviceClock clock_;
  std::array<std::size_t, codec_call_count> calls_in_sample_{};  ///< 0: not known yet
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
