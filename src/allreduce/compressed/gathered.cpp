#include "allreduce/compressed/gathered.hpp"

#include <algorithm>
#include <cstring>

#include "allreduce/compressed/staged.hpp"
#include "core/format.hpp"

namespace gradmeter::allreduce {
namespace {

AlgorithmPtr gatherer_of(const CodedRequest& r) {
  const bool chosen = r.algorithm.info().carrier == Carrier::selection;
  return chosen ? find_algorithm("ring") : find_algorithm(r.algorithm.name);
}

std::size_t slot_bytes(const CodedRequest& r) { return r.codec.codec->wire_bytes(r.max_elements()); }
std::size_t all_slots(const CodedRequest& r) { return r.shape.ranks * slot_bytes(r); }
std::size_t lengths_bytes(const CodedRequest& r) { return r.shape.ranks * sizeof(std::int64_t); }

class Gathered final : public Staged {
 public:
  Gathered(const CodedRequest& r, const Site& site)
      : Staged("gather"),
        codec_(r.codec.codec),
        rank_(static_cast<std::size_t>(site.transport.rank())),
        ranks_(r.shape.ranks),
        slots_(site.network.arena().take(all_slots(r))),
        lengths_(site.network.arena().take(lengths_bytes(r))),
        gather_(own(gatherer_of(r)->bind(site, r.inner(std::max(all_slots(r), lengths_bytes(r))), Goal::all_gather))) {}

 private:
  enum class Step : std::uint8_t { encode, gather, add };

  void begin(const Call& call) override {
    call_ = call;
    step_ = Step::encode;
  }

  Stage next() override {
    switch (step_) {
      case Step::encode:
        encoding([&] { length_ = encode_own(); });
        step_ = Step::gather;
        if (codec_->variable()) return gather_lengths();
        most_ = codec_->wire_bytes(call_.count);
        [[fallthrough]];
      case Step::gather:
        step_ = Step::add;
        return gather_bytes();
      case Step::add:
        decoding([&] { add_all(); });
    }
    return {};
  }

  /// To the beginning of the slots: where it must lie is known when the longest is.
  std::size_t encode_own() {
    const Encoding& o = call_.encoding;
    const compression::Draw draw{
        .seed = o.seed, .step = o.step, .tensor = o.tensor, .rank = static_cast<std::uint32_t>(rank_)};
    const std::span<const float> x{reinterpret_cast<const float*>(call_.in), call_.count};
    if (!o.worker_residual) return codec_->encode(x, slots_.data(), draw);
    if (scratch_.size() < call_.count) scratch_.resize(call_.count);
    return compression::encode_with_feedback(*codec_, x, {o.worker_residual, call_.count}, scratch_, slots_.data(),
                                             draw);
  }

  Stage gather_lengths() {
    const auto mine = static_cast<std::int64_t>(length_);
    std::memcpy(lengths_.data() + rank_ * sizeof mine, &mine, sizeof mine);
    return {&gather_, gather_call(lengths_, ranks_, core::Element::i64)};
  }

  Stage gather_bytes() {
    if (codec_->variable()) {
      most_ = 0;
      for (std::size_t r = 0; r < ranks_; ++r) most_ = std::max(most_, length_of(r));
      most_ = compression::padded(most_);
    }
    if (std::byte* mine = slots_.data() + rank_ * most_; mine != slots_.data()) {
      std::memmove(mine, slots_.data(), length_);
    }
    return {&gather_, gather_call(slots_, ranks_ * most_, core::Element::i8)};
  }

  static Call gather_call(std::span<std::byte> memory, std::size_t count, core::Element element) {
    return {.in = memory.data(), .out = memory.data(), .count = count, .element = element};
  }

  std::size_t length_of(std::size_t rank) const {
    if (!codec_->variable()) return most_;
    std::int64_t n;
    std::memcpy(&n, lengths_.data() + rank * sizeof n, sizeof n);
    return static_cast<std::size_t>(n);
  }

  void add_all() {
    const std::span<float> out{reinterpret_cast<float*>(call_.out), call_.count};
    codec_->decode({slots_.data(), length_of(0)}, out);
    for (std::size_t r = 1; r < ranks_; ++r) codec_->decode_add({slots_.data() + r * most_, length_of(r)}, out, out);
    if (call_.op != Op::average) return;
    const float share = 1.0f / static_cast<float>(ranks_);
    for (float& x : out) x *= share;
  }

  compression::CodecPtr codec_;
  std::size_t rank_, ranks_;
  std::span<std::byte> slots_, lengths_;
  Collective& gather_;
  Call call_{};
  Step step_ = Step::encode;
  std::size_t length_ = 0, most_ = 0;  ///< own, and of every slot [bytes]
  std::vector<float> scratch_;
};

}  // namespace

std::string gathered_refusal(const CodedRequest& r) {
  return gatherer_of(r)->refusal(r.shape, Goal::all_gather, {.element = core::Element::i8});
}

std::size_t gathered_arena_bytes(const CodedRequest& r, std::uint32_t rank) {
  const std::size_t inner = std::max(all_slots(r), lengths_bytes(r));
  return all_slots(r) + lengths_bytes(r) + 3 * arena_slack +
         gatherer_of(r)->arena_bytes(r.shape, rank, r.inner(inner), Goal::all_gather);
}

std::unique_ptr<Collective> bind_gathered(const CodedRequest& r, const Site& site) {
  return std::make_unique<Gathered>(r, site);
}

}  // namespace gradmeter::allreduce
