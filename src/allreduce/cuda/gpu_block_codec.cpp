#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "allreduce/mover/block_codec.hpp"
#include "core/error.hpp"

#ifdef GRADMETER_HAS_CUDA
#include "allreduce/cuda/reduce.hpp"
#include "compression/cuda/device_codecs.hpp"
#include "compression/cuda/feedback.hpp"
#include "runtime/cuda/stream.hpp"
#endif

namespace gradmeter::allreduce {

#ifdef GRADMETER_HAS_CUDA
namespace {

using compression::cuda::DeviceCodec;
using runtime::DeviceSpan;

/// Seconds between pairs of marks, which are known later.
class MarkedTime {
 public:
  template <class Work>
  void around(const Work& work) {
    runtime::MarkPtr begin = runtime::device_access->mark();
    work();
    marks_.push_back({std::move(begin), runtime::device_access->mark()});
  }
  /// All marked work is done.
  double seconds() {
    for (const Marks& m : marks_) seconds_ += m.begin->until(*m.end);
    marks_.clear();
    return seconds_;
  }

 private:
  struct Marks {
    runtime::MarkPtr begin, end;
  };
  std::vector<Marks> marks_;
  double seconds_ = 0;
};

class GpuBlockCodec final : public BlockCodec {
 public:
  GpuBlockCodec(std::shared_ptr<const DeviceCodec> codec, runtime::Device& device, std::size_t longest)
      : codec_(std::move(codec)),
        scratch_(device.allocate(core::Element::f32, longest)),
        workspace_(device.allocate(core::Element::i8, codec_->workspace_bytes(longest))) {}

  void divide(const float* in, float* out, std::size_t n, int ranks) override {
    encoding_.around([&] {
      cuda::finish(core::Element::f32, Op::average, reinterpret_cast<std::byte*>(out),
                   reinterpret_cast<const std::byte*>(in), n, ranks, gpu::stream());
    });
  }
  void encode(const float* x, std::size_t n, float* residual, std::byte* wire, const compression::Draw& draw) override {
    const DeviceSpan<std::byte> coded(wire, codec_->wire_bytes(n));
    encoding_.around([&] {
      if (!residual) return codec_->encode(DeviceSpan<const float>(x, n), coded, draw, workspace(), gpu::stream());
      compression::cuda::encode_with_feedback(*codec_, DeviceSpan<const float>(x, n), DeviceSpan<float>(residual, n),
                                              scratch(n), coded, draw, workspace(), gpu::stream());
    });
  }
  void decode(const std::byte* wire, const float* addend, float* out, std::size_t n) override {
    const DeviceSpan<const float> added = addend ? DeviceSpan<const float>(addend, n) : DeviceSpan<const float>();
    decoding_.around([&] {
      codec_->decode(DeviceSpan<const std::byte>(wire, codec_->wire_bytes(n)), added, DeviceSpan<float>(out, n),
                     workspace(), gpu::stream());
    });
  }
  void copy(std::byte* to, const std::byte* from, std::size_t bytes) override {
    cuda::finish(core::Element::i8, Op::sum, to, from, bytes, 1, gpu::stream());
  }
  CodingTime time() override { return {.encode_s = encoding_.seconds(), .decode_s = decoding_.seconds()}; }

 private:
  DeviceSpan<std::byte> workspace() const { return workspace_.buffer.device(); }
  DeviceSpan<float> scratch(std::size_t n) const {
    return DeviceSpan<float>(reinterpret_cast<float*>(scratch_.buffer.device().device_address()), n);
  }

  std::shared_ptr<const DeviceCodec> codec_;
  runtime::OwnedBuffer scratch_, workspace_;
  MarkedTime encoding_, decoding_;
};

}  // namespace

std::string gpu_block_codec_refusal(const compression::CodecChoice& c) {
  const auto forms = compression::cuda::device_forms();
  const auto form = std::ranges::find(forms, c.info->name, &compression::cuda::DeviceForm::name);
  if (form != forms.end() && form->kind == compression::cuda::DeviceKind::codec) return {};
  return form == forms.end() ? "it is not in the table of codecs for GPUs" : std::string(form->how);
}

MakeBlockCodec gpu_block_codecs(const compression::CodecChoice& c, runtime::Device& device) {
  std::shared_ptr<const DeviceCodec> codec = compression::cuda::make_device_codec(c);
  return [codec, &device](std::size_t longest) { return std::make_unique<GpuBlockCodec>(codec, device, longest); };
}
#else
std::string gpu_block_codec_refusal(const compression::CodecChoice&) { return "this program was built without CUDA"; }
MakeBlockCodec gpu_block_codecs(const compression::CodecChoice&, runtime::Device&) {
  throw core::BackendError("CUDA", "codecs", "this program was built without CUDA: configure with -DGRADMETER_CUDA=ON");
}
#endif

}  // namespace gradmeter::allreduce
