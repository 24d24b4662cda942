// SPDX-License-Identifier: Apache-2.0
// All-gather of encoded tensors, by a codec of the host; also of one whose density decreases over its first calls.
#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <stdexcept>
#include <vector>

#include "allreduce/coded/collective_sequence.hpp"
#include "allreduce/coded/exchanges.hpp"
#include "compression/codecs/dgc.hpp"
#include "core/format.hpp"

namespace gradmeter::allreduce {
namespace {

bool has_momentum(const ExchangeSpec& spec) { return !spec.codec->codec; }

/// Encodes one rank's gradients. For a codec with momentum it keeps each tensor's u and v from call to call; v is what
/// other codecs call the residual. The residual of any other codec comes with the call.
class Encoder {
 public:
  Encoder(const ExchangeSpec& spec, std::uint32_t rank)
      : plain_(spec.codec->codec), rank_(rank), ranks_(spec.shape.ranks) {
    if (has_momentum(spec)) correction_.emplace(spec.codec->parsed);
  }
  const compression::Codec& codec() const {
    if (correction_) return correction_->encoding();
    return *plain_;
  }
  /// Returns the bytes written.
  std::size_t encode(const Call& call, std::byte* wire) {
    const std::span<const float> x = call.in.values<float>();
    if (correction_) {
      auto& kept = kept_[call.tensor_layout.offset_in_step];
      kept.u.resize(x.size());
      kept.v.resize(x.size());
      return correction_->encode(x, ranks_, kept.u, kept.v, wire);
    }
    const EncodingInputs& e = call.encoding;
    compression::RandomDraw draw = e.draw;
    draw.rank = rank_;
    if (!e.worker_residual) return plain_->encode(x, wire, draw);
    if (scratch_.size() < x.size()) scratch_.resize(x.size());
    return compression::encode_with_feedback(*plain_, x, {e.worker_residual, x.size()}, scratch_, wire, draw);
  }
  /// Like Collective::take_state and restore_state.
  CodecState take_state() { return correction_ ? take_values(kept_) : nullptr; }
  void restore_state(const CodecState& state) {
    if (correction_) restore_values(state, kept_);
  }

 private:
  struct Momentum {
    std::vector<float> u, v;
  };
  compression::CodecPtr plain_;  ///< null: the codec has momentum, and `correction_` encodes
  std::optional<compression::MomentumCorrection> correction_;
  std::uint32_t rank_;
  std::size_t ranks_;
  std::vector<float> scratch_;
  std::map<std::size_t, Momentum> kept_;  ///< by the tensor's offset among all elements that are exchanged
};

/// The algorithm of the all-gather: the exchange's own, or ring where that is a selection.
AlgorithmPtr gatherer_of(const ExchangeSpec& spec) {
  const bool is_selection = spec.algorithm->info().backend == Backend::selection;
  return is_selection ? find_algorithm("ring") : spec.algorithm;
}

/// The most bytes that a tensor, encoded on its own, takes beyond its share of the whole buffer's encoding: for
/// rounded-up counts, the scale of a last bucket, and two paddings.
constexpr std::size_t most_bytes_beyond_share = 64;

std::size_t all_wire_bytes(const ExchangeSpec& spec) { return Encoder(spec, 0).codec().wire_bytes(spec.max_floats()); }
std::size_t slot_bytes(const ExchangeSpec& spec) {
  return all_wire_bytes(spec) + most_tensors_in_pack(spec) * most_bytes_beyond_share;
}
std::size_t all_slot_bytes(const ExchangeSpec& spec) { return spec.shape.ranks * slot_bytes(spec); }
std::size_t lengths_bytes(const ExchangeSpec& spec) {
  return spec.shape.ranks * most_tensors_in_pack(spec) * sizeof(std::int64_t);
}

/// True where all encodings together, p · wire bytes, are at least as long as what a ring of fp32 sends, 2 · 4n bytes.
bool sum_is_dense(const ExchangeSpec& spec) {
  const bool sparse = spec.codec->info->name == "topk" || spec.codec->info->name == "dgc";
  return sparse && spec.shape.ranks * all_wire_bytes(spec) >= 2 * spec.max_bytes;
}

class Gathered final : public CollectiveSequence {
 public:
  Gathered(const ExchangeSpec& spec, const GroupConnection& connection)
      : CollectiveSequence(gatherer_of(spec)->name, spec.queue),
        encoder_(spec, static_cast<std::uint32_t>(connection.transport.rank())),
        codec_(encoder_.codec()),
        rank_(static_cast<std::size_t>(connection.transport.rank())),
        ranks_(spec.shape.ranks),
        slots_(connection.network.arena().take(all_slot_bytes(spec))),
        lengths_(connection.network.arena().take(lengths_bytes(spec))),
        gather_(add_part(gatherer_of(spec)->bind(
            connection, spec.inner_call_spec(std::max(all_slot_bytes(spec), lengths_bytes(spec))),
            CollectiveKind::all_gather))) {}
  CodecState take_state() override { return encoder_.take_state(); }
  void restore_state(const CodecState& state) override { encoder_.restore_state(state); }

 private:
  /// One tensor of the pack: its call, and where its encoding lies.
  struct Member {
    const Call* call;
    std::size_t encoded_at = 0, encoded = 0;  ///< this rank's encoding, before it is moved to its slot [bytes]
    std::size_t slot_at = 0, slot = 0;        ///< in each rank's slots; length of the tensor's longest encoding [bytes]
  };

  void begin(const Call& call) override {
    tensors_.assign(call);
    members_.clear();
    std::size_t most_bytes = 0;
    for (const Call& c : tensors_.calls()) {
      members_.push_back({.call = &c});
      most_bytes += compression::padded(codec_.wire_bytes(c.count()));
    }
    if (ranks_ * most_bytes > slots_.size() || members_.size() * ranks_ * sizeof(std::int64_t) > lengths_.size()) {
      throw std::logic_error(fmt::format("{} tensors of a call with {} exceed its memory", members_.size(), name()));
    }
  }

  SequenceStep next(std::size_t number) override {
    // The number of the inner call that gathers encodings; lengths that vary are gathered before.
    const std::size_t encodings_call = codec_.variable() ? 1 : 0;
    if (number == 0) {
      // Encodings go to the beginning of the slots first, since their final places depend on the longest lengths.
      run_encoding([this] { encode(); });
      record_differences(tensors_, [this] { record_own_difference(); });
      if (codec_.variable()) return gather_lengths();
    }
    if (number == encodings_call) return gather_bytes();
    run_decoding([this] {
      for (const Member& m : members_) add_all(m);
    });
    return {};
  }

  void encode() {
    std::size_t at = 0;
    for (Member& m : members_) {
      m.encoded_at = at;
      m.encoded = encoder_.encode(*m.call, slots_.data() + at);
      at += m.encoded;
    }
  }

  void record_own_difference() {
    for (const Member& m : members_) {
      std::vector<float> sent(m.call->count());
      codec_.decode({slots_.data() + m.encoded_at, m.encoded}, sent);
      record_difference(*m.call, static_cast<float>(ranks_), sent);
    }
  }

  SequenceStep gather_lengths() {
    const std::size_t bytes = members_.size() * sizeof(std::int64_t);
    run_local("length", [this, bytes] {
      std::byte* to = lengths_.data() + rank_ * bytes;
      for (const Member& m : members_) {
        const auto mine = static_cast<std::int64_t>(m.encoded);
        std::memcpy(to, &mine, sizeof mine);
        to += sizeof mine;
      }
    });
    return {&gather_, in_place(core::Element::i64, lengths_.first(ranks_ * bytes))};
  }

  SequenceStep gather_bytes() {
    std::size_t at = 0;
    for (std::size_t i = 0; i < members_.size(); ++i) {
      members_[i].slot_at = at;
      members_[i].slot = slot_bytes_of(i);
      at += members_[i].slot;
    }
    rank_bytes_ = at;
    run_local("place", [this] { place(); });
    return {&gather_, in_place(core::Element::i8, slots_.first(ranks_ * rank_bytes_))};
  }

  std::size_t slot_bytes_of(std::size_t tensor) const {
    if (!codec_.variable()) return codec_.wire_bytes(members_[tensor].call->count());
    std::size_t longest = 0;
    for (std::size_t r = 0; r < ranks_; ++r) longest = std::max(longest, length_of(r, tensor));
    return compression::padded(longest);
  }

  /// Moves encodings to their slots, the last one first: none moves towards the beginning, so none overwrites another
  /// that is still to be moved.
  void place() {
    for (std::size_t i = members_.size(); i-- > 0;) {
      const Member& m = members_[i];
      std::memmove(slots_.data() + rank_ * rank_bytes_ + m.slot_at, slots_.data() + m.encoded_at, m.encoded);
    }
  }

  std::size_t length_of(std::size_t rank, std::size_t tensor) const {
    if (!codec_.variable()) return members_[tensor].slot;
    std::int64_t n;
    std::memcpy(&n, lengths_.data() + (rank * members_.size() + tensor) * sizeof n, sizeof n);
    return static_cast<std::size_t>(n);
  }

  void add_all(const Member& m) {
    const auto tensor = static_cast<std::size_t>(&m - members_.data());
    const std::span<float> out = m.call->out.values<float>();
    const auto wire_of = [&](std::size_t r) {
      return std::span<const std::byte>(slots_.data() + r * rank_bytes_ + m.slot_at, length_of(r, tensor));
    };
    codec_.decode(wire_of(0), out);
    for (std::size_t r = 1; r < ranks_; ++r) codec_.decode_add(wire_of(r), out, out);
    if (m.call->op != Op::average) return;
    const float share = 1.0f / static_cast<float>(ranks_);
    for (float& x : out) x *= share;
  }

  Encoder encoder_;
  const compression::Codec& codec_;
  std::size_t rank_, ranks_;
  std::span<std::byte> slots_, lengths_;
  Collective& gather_;
  TensorCalls tensors_;
  std::vector<Member> members_;
  std::size_t rank_bytes_ = 0;  ///< the bytes of all slots of one rank
};

/// Serves sparse gradients of so many ranks that their sum is dense: each rank decodes its own encodings, and an
/// all-reduce sums the decoded numbers.
class SummedDensely final : public CollectiveSequence {
 public:
  SummedDensely(const ExchangeSpec& spec, const GroupConnection& connection)
      : CollectiveSequence(spec.algorithm->name, spec.queue),
        encoder_(spec, static_cast<std::uint32_t>(connection.transport.rank())),
        ranks_(static_cast<float>(spec.shape.ranks)),
        wires_(slot_bytes(spec)),
        values_(connection.network.arena().take(spec.max_bytes)),
        sum_(add_part(spec.algorithm->bind(connection, spec.inner_call_spec(spec.max_bytes)))) {}
  CodecState take_state() override { return encoder_.take_state(); }
  void restore_state(const CodecState& state) override { encoder_.restore_state(state); }

 private:
  void begin(const Call& call) override {
    tensors_.assign(call);
    count_ = 0;
    for (const Call& c : tensors_.calls()) count_ += c.count();
  }
  SequenceStep next(std::size_t number) override {
    if (number > 0) {
      run_local("copy", [this] { for_each_tensor(&SummedDensely::copy); });
      return {};
    }
    run_encoding([this] { encode(); });
    run_decoding([this] { decode(); });
    record_differences(tensors_, [this] { for_each_tensor(&SummedDensely::record_own_difference); });
    return {&sum_, in_place(core::Element::f32, values_.first(count_ * sizeof(float)), tensors_.calls().front().op)};
  }

  /// Calls `work` for each tensor with its decoded values.
  void for_each_tensor(void (SummedDensely::*work)(const Call&, std::span<const float>)) {
    std::span<const float> rest = values();
    for (const Call& c : tensors_.calls()) {
      (this->*work)(c, rest.first(c.count()));
      rest = rest.subspan(c.count());
    }
  }
  void encode() {
    lengths_.clear();
    std::byte* to = wires_.data();
    for (const Call& c : tensors_.calls()) {
      lengths_.push_back(encoder_.encode(c, to));
      to += lengths_.back();
    }
  }
  void decode() {
    std::span<float> rest = values();
    const std::byte* from = wires_.data();
    for (std::size_t i = 0; i < lengths_.size(); ++i) {
      const std::size_t count = tensors_.calls()[i].count();
      encoder_.codec().decode({from, lengths_[i]}, rest.first(count));
      from += lengths_[i];
      rest = rest.subspan(count);
    }
  }
  void record_own_difference(const Call& c, std::span<const float> sent) { record_difference(c, ranks_, sent); }
  void copy(const Call& c, std::span<const float> sum) { std::memcpy(c.out.host(), sum.data(), sum.size_bytes()); }
  std::span<float> values() { return {reinterpret_cast<float*>(values_.data()), count_}; }

  Encoder encoder_;
  float ranks_;
  std::vector<std::byte> wires_;  ///< this rank's encodings, one after another
  std::span<std::byte> values_;
  Collective& sum_;
  TensorCalls tensors_;
  std::vector<std::size_t> lengths_;  ///< the bytes of each encoding
  std::size_t count_ = 0;             ///< the elements of all tensors
};

std::string gathered_refusal(const ExchangeSpec& spec) {
  if (sum_is_dense(spec)) return {};
  return gatherer_of(spec)->refusal(spec.shape, CollectiveKind::all_gather, {.element = core::Element::i8});
}

std::size_t gathered_arena_bytes(const ExchangeSpec& spec, std::uint32_t rank) {
  if (sum_is_dense(spec)) {
    return spec.max_bytes + 2 * arena_slack +
           spec.algorithm->arena_bytes(spec.shape, rank, spec.inner_call_spec(spec.max_bytes));
  }
  const std::size_t inner = std::max(all_slot_bytes(spec), lengths_bytes(spec));
  return all_slot_bytes(spec) + lengths_bytes(spec) + 3 * arena_slack +
         gatherer_of(spec)->arena_bytes(spec.shape, rank, spec.inner_call_spec(inner), CollectiveKind::all_gather);
}

InnerCalls gathered_calls(const ExchangeSpec& spec, std::span<const TensorPart> pack) {
  const Encoder encoder(spec, 0);
  const std::size_t ranks = spec.shape.ranks;
  std::size_t elements = 0, total_bytes = 0, padded_bytes = 0;
  for (const TensorPart& t : pack) {
    const std::size_t wire = encoder.codec().wire_bytes(t.count);
    elements += t.count, total_bytes += wire, padded_bytes += compression::padded(wire);
  }
  if (sum_is_dense(spec)) return {{.algorithm = spec.algorithm, .count = elements}};
  const InnerCall bytes{.algorithm = gatherer_of(spec),
                        .collective_kind = CollectiveKind::all_gather,
                        .count = ranks * total_bytes,
                        .element_bytes = 1};
  if (!encoder.codec().variable()) return {bytes};
  InnerCall lengths = bytes, longest = bytes;
  lengths.count = ranks * pack.size(), lengths.element_bytes = sizeof(std::int64_t);
  longest.count = ranks * padded_bytes, longest.upper_bound = true;
  return {lengths, longest};
}

std::unique_ptr<Collective> bind_gathered(const ExchangeSpec& spec, const GroupConnection& connection) {
  if (spec.gpu())
    return gather_on_gpu(spec, connection, *gatherer_of(spec), connection.network.arena().take(all_slot_bytes(spec)));
  if (sum_is_dense(spec)) return std::make_unique<SummedDensely>(spec, connection);
  return std::make_unique<Gathered>(spec, connection);
}

ExchangeSpec with_codec(ExchangeSpec spec, const compression::CodecChoicePtr& codec) {
  spec.codec = codec;
  return spec;
}

/// A gathered exchange whose density decreases over the first calls: one collective for each density (stage).
class WarmingUp final : public CollectiveSequence {
 public:
  WarmingUp(const ExchangeSpec& spec, const GroupConnection& connection)
      : CollectiveSequence(spec.algorithm->name, spec.queue), steps_(compression::warm_up_steps(spec.codec->parsed)) {
    for (const auto& codec : compression::warm_up_stages(*spec.codec)) {
      stages_.push_back(&add_part(bind_gathered(with_codec(spec, codec), connection)));
    }
  }
  CodecState take_state() override {
    progress_.inner = stages_[progress_.stage]->take_state();
    return take_values(progress_);
  }
  void restore_state(const CodecState& state) override {
    restore_values(state, progress_);
    if (progress_.inner) stages_[progress_.stage]->restore_state(progress_.inner);
  }

 private:
  struct Progress {
    std::map<std::size_t, std::uint64_t> calls =
        {};                 ///< by the offset of a pack's first tensor among all elements exchanged
    std::size_t stage = 0;  ///< the index of the stage that holds the codec's state
    CodecState inner = {};  ///< the codec's state; null while the stage has it
  };

  void begin(const Call& call) override {
    call_ = call;
    auto& calls = progress_.calls[call.tensor_layout.offset_in_step + call.tensor_layout.tensors.front().offset];
    const std::size_t stage = compression::warm_up_stage(steps_, stages_.size(), calls++);
    if (stage == progress_.stage) return;
    stages_[stage]->restore_state(stages_[progress_.stage]->take_state());
    progress_.stage = stage;
  }
  SequenceStep next(std::size_t number) override {
    if (number > 0) return {};
    return {stages_[progress_.stage], call_};
  }

  std::uint64_t steps_;
  std::vector<Collective*> stages_;
  Progress progress_;
  Call call_{};
};

std::string warm_up_refusal(const ExchangeSpec& spec) {
  for (const auto& codec : compression::warm_up_stages(*spec.codec)) {
    if (auto why = gathered_refusal(with_codec(spec, codec)); !why.empty()) return why;
  }
  return {};
}

std::size_t warm_up_arena_bytes(const ExchangeSpec& spec, std::uint32_t rank) {
  std::size_t bytes = 0;
  for (const auto& codec : compression::warm_up_stages(*spec.codec)) {
    bytes += gathered_arena_bytes(with_codec(spec, codec), rank);
  }
  return bytes;
}

std::unique_ptr<Collective> bind_warm_up(const ExchangeSpec& spec, const GroupConnection& connection) {
  return std::make_unique<WarmingUp>(spec, connection);
}

InnerCalls warm_up_calls(const ExchangeSpec& spec, std::span<const TensorPart> pack) {
  return gathered_calls(with_codec(spec, compression::warm_up_stages(*spec.codec).back()), pack);
}

}  // namespace

constinit const CodedExchange gathered_exchange{.refusal = gathered_refusal,
                                                .arena_bytes = gathered_arena_bytes,
                                                .bind = bind_gathered,
                                                .inner_calls = gathered_calls};
constinit const CodedExchange warm_up_exchange{
    .refusal = warm_up_refusal, .arena_bytes = warm_up_arena_bytes, .bind = bind_warm_up, .inner_calls = warm_up_calls};

bool gathers_on_gpu(const ExchangeSpec& spec) {
  return !has_momentum(spec) && !spec.codec->codec->variable() && !sum_is_dense(spec);
}

}  // namespace gradmeter::allreduce
