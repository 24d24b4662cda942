// SPDX-License-Identifier: Apache-2.0
// All-gather of tensors that are encoded and decoded by kernels in the stream of a GPU's queue.
#include <stdexcept>

#include "allreduce/coded/collective_sequence.hpp"
#include "allreduce/coded/exchanges.hpp"
#include "allreduce/executor/coding.hpp"
#include "core/format.hpp"

namespace gradmeter::allreduce {
namespace {

template <class T>
auto* floats(T* address) {
  using Float = std::conditional_t<std::is_const_v<T>, const float, float>;
  return reinterpret_cast<Float*>(address);
}

class GatheredOnGpu final : public CollectiveSequence {
 public:
  GatheredOnGpu(const ExchangeSpec& spec, const GroupConnection& connection, const AlgorithmChoice& gatherer,
                std::span<std::byte> slots)
      : CollectiveSequence(gatherer.name, spec.queue),
        device_(spec.queue->device()),
        codec_(spec.codec->codec),
        block_codec_(gpu_block_codec(*spec.codec, device_, spec.max_floats())),
        rank_(static_cast<std::size_t>(connection.transport.rank())),
        ranks_(spec.shape.ranks),
        slots_(device_.allocate_beside(core::Element::i8, slots)),
        gather_(add_part(gatherer.bind(connection, spec.inner_call_spec(slots.size()), CollectiveKind::all_gather))) {}
  bool works_on_device_memory() const override { return true; }
  std::optional<CodingTime> coding() const override {
    CodingTime sum = *CollectiveSequence::coding();
    sum.add_times(block_codec_->time());
    return sum;
  }

 private:
  void begin(const Call& call) override {
    tensors_.assign(call);
    rank_bytes_ = 0;
    for (const Call& c : tensors_.calls()) rank_bytes_ += codec_->wire_bytes(c.count());
    if (ranks_ * rank_bytes_ > slots_.buffer.bytes()) {
      throw std::logic_error(
          fmt::format("{} tensors of a call with {} exceed its memory", tensors_.calls().size(), name()));
    }
  }

  SequenceStep next(std::size_t number) override {
    if (number > 0) {
      run_local("decode", [this] { add_all(); });
      return {};
    }
    run_local("encode", [this] { for_each_tensor(&GatheredOnGpu::encode); });
    record_differences(tensors_, [this] { for_each_tensor(&GatheredOnGpu::record_own_difference); });
    const runtime::Buffer gathered = slots_.buffer.part(0, ranks_ * rank_bytes_);
    return {&gather_, {.in = gathered, .out = gathered}};
  }

  /// Calls `work` for each tensor with the offset of its encoding in a rank's slots [bytes].
  void for_each_tensor(void (GatheredOnGpu::*work)(const Call&, std::size_t place)) {
    std::size_t at = 0;
    for (const Call& c : tensors_.calls()) {
      (this->*work)(c, at);
      at += codec_->wire_bytes(c.count());
    }
  }
  std::byte* slot(std::size_t rank, std::size_t place) const {
    return slots_.buffer.device().device_address() + rank * rank_bytes_ + place;
  }

  void encode(const Call& c, std::size_t place) {
    compression::RandomDraw draw = c.encoding.draw;
    draw.rank = static_cast<std::uint32_t>(rank_);
    block_codec_->encode(floats(c.in.address()), c.count(), c.encoding.worker_residual, slot(rank_, place), draw);
  }

  /// The host computes the difference, since the difference is in host memory.
  void record_own_difference(const Call& c, std::size_t place) {
    if (own_.buffer.count() < c.count()) own_ = device_.allocate(core::Element::f32, c.count());
    const runtime::Buffer own = own_.buffer.part(0, c.count());
    block_codec_->decode(slot(rank_, place), nullptr, floats(own.address()), c.count());
    record_difference(c, static_cast<float>(ranks_), runtime::ConstBuffer(own).values<float>());
  }

  void add_all() {
    std::size_t at = 0;
    for (const Call& c : tensors_.calls()) {
      float* const out = floats(c.out.address());
      for (std::size_t r = 0; r < ranks_; ++r) block_codec_->decode(slot(r, at), r > 0 ? out : nullptr, out, c.count());
      if (c.op == Op::average) block_codec_->divide(out, out, c.count(), static_cast<int>(ranks_));
      at += codec_->wire_bytes(c.count());
    }
  }

  runtime::Device& device_;
  compression::CodecPtr codec_;
  std::unique_ptr<BlockCodec> block_codec_;
  std::size_t rank_, ranks_;
  runtime::OwnedBuffer slots_;  ///< one slot for each rank and tensor
  Collective& gather_;
  TensorCalls tensors_;
  /// A tensor, decoded from this rank's encoding; allocated when differences are first asked for.
  runtime::OwnedBuffer own_;
  std::size_t rank_bytes_ = 0;  ///< the bytes of all slots of one rank
};

}  // namespace

std::unique_ptr<Collective> gather_on_gpu(const ExchangeSpec& spec, const GroupConnection& connection,
                                          const AlgorithmChoice& gatherer, std::span<std::byte> slots) {
  return std::make_unique<GatheredOnGpu>(spec, connection, gatherer, slots);
}

}  // namespace gradmeter::allreduce
