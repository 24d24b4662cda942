// SPDX-License-Identifier: Apache-2.0
// A GPU's kernels for the slices of the executor: copies, sums, and the encoding and decoding of blocks.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "allreduce/executor/coding.hpp"
#include "allreduce/executor/submitter.hpp"
#include "core/error.hpp"
#include "core/format.hpp"

#ifdef GRADMETER_HAS_CUDA
#include "allreduce/gpu/reduce.hpp"
#include "compression/cuda/device_codec.hpp"
#include "runtime/cuda/stream.hpp"
#endif

namespace gradmeter::allreduce {

#ifdef GRADMETER_HAS_CUDA
namespace {

constexpr SliceKernels stream_kernels{
    .copy = [](std::byte* to, const std::byte* from,
               std::size_t n) { cuda::finish(core::Element::i8, Op::sum, to, from, n, 1, gpu::stream()); },
    .reduce = [](core::Element e, core::Element accumulate, Op op, std::byte* to,
                 std::span<const std::byte* const> sources,
                 std::size_t n) { cuda::reduce(e, accumulate, op, to, sources, n, gpu::stream()); },
    .finish = [](core::Element e, Op op, std::byte* to, const std::byte* from, std::size_t n,
                 int ranks) { cuda::finish(e, op, to, from, n, ranks, gpu::stream()); }};

}  // namespace

std::string gpu_kernels_refusal(std::uint32_t ranks) {
  if (ranks <= cuda::most_sources) return {};
  return fmt::format("a kernel adds up {} ranks at most, and there are {}: use nccl, or mpi", cuda::most_sources,
                     ranks);
}
const SliceKernels& gpu_kernels() { return stream_kernels; }
#else
std::string gpu_kernels_refusal(std::uint32_t) { return {}; }
const SliceKernels& gpu_kernels() {
  throw core::BackendError("CUDA", "sums", "this program was built without CUDA: configure with -DGRADMETER_CUDA=ON");
}
#endif

#ifdef GRADMETER_HAS_CUDA
namespace {

using compression::cuda::DeviceCodec;
using runtime::DeviceSpan;

/// The time of work in a stream, between marks before and after it. It is known once the work is done.
class MarkedTime {
 public:
  /// Submits `work` between two marks.
  template <class Work>
  void run_between_marks(const Work& work) {
    runtime::EventPtr begin = runtime::device_access->mark();
    work();
    marks_.emplace_back(std::move(begin), runtime::device_access->mark());
  }
  /// The time of all work so far. Call it only once that work is done.
  double seconds() {
    for (const auto& [begin, end] : marks_) seconds_ += begin->until(*end);
    marks_.clear();
    return seconds_;
  }

 private:
  std::vector<std::pair<runtime::EventPtr, runtime::EventPtr>> marks_;
  double seconds_ = 0;
};

class GpuBlockCodec final : public BlockCodec {
 public:
  GpuBlockCodec(std::unique_ptr<const DeviceCodec> codec, runtime::Device& device, std::size_t longest)
      : codec_(std::move(codec)),
        scratch_(device.allocate(core::Element::f32, longest)),
        workspace_(device.allocate(core::Element::i8, codec_->workspace_bytes(longest))) {}

  void divide(const float* in, float* out, std::size_t n, int ranks) override {
    encoding_.run_between_marks([&] {
      cuda::finish(core::Element::f32, Op::average, reinterpret_cast<std::byte*>(out),
                   reinterpret_cast<const std::byte*>(in), n, ranks, gpu::stream());
    });
  }
  void encode(const float* x, std::size_t n, float* residual, std::byte* wire,
              const compression::RandomDraw& draw) override {
    const DeviceSpan<std::byte> coded(wire, codec_->wire_bytes(n));
    encoding_.run_between_marks([&] {
      if (!residual) return codec_->encode(DeviceSpan<const float>(x, n), coded, draw, workspace(), gpu::stream());
      compression::cuda::encode_with_feedback(*codec_, DeviceSpan<const float>(x, n), DeviceSpan<float>(residual, n),
                                              scratch(n), coded, draw, workspace(), gpu::stream());
    });
  }
  void decode(const std::byte* wire, const float* addend, float* out, std::size_t n) override {
    const DeviceSpan<const float> added = addend ? DeviceSpan<const float>(addend, n) : DeviceSpan<const float>();
    decoding_.run_between_marks([&] {
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

  std::unique_ptr<const DeviceCodec> codec_;
  runtime::OwnedBuffer scratch_, workspace_;
  MarkedTime encoding_, decoding_;
};

}  // namespace

std::string gpu_block_codec_refusal(const compression::CodecChoice& c) {
  const auto form = compression::cuda::device_form(c.info->name);
  return form.make ? "" : std::string(form.description);
}

std::unique_ptr<BlockCodec> gpu_block_codec(const compression::CodecChoice& c, runtime::Device& device,
                                            std::size_t longest) {
  return std::make_unique<GpuBlockCodec>(compression::cuda::make_device_codec(c), device, longest);
}
#else
std::string gpu_block_codec_refusal(const compression::CodecChoice&) { return "this program was built without CUDA"; }
std::unique_ptr<BlockCodec> gpu_block_codec(const compression::CodecChoice&, runtime::Device&, std::size_t) {
  throw core::BackendError("CUDA", "codecs", "this program was built without CUDA: configure with -DGRADMETER_CUDA=ON");
}
#endif

}  // namespace gradmeter::allreduce
