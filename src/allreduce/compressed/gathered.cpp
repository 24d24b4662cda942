#include "allreduce/compressed/gathered.hpp"

#include <algorithm>
#include <cstring>
#include <map>

#include "allreduce/compressed/difference.hpp"
#include "allreduce/compressed/staged.hpp"
#include "allreduce/compressed/state_values.hpp"
#include "compression/momentum_correction.hpp"
#include "core/format.hpp"

namespace gradmeter::allreduce {
namespace {

/// Encodes one rank's gradients, with what it keeps from call to call.
class Encoder {
 public:
  virtual ~Encoder() = default;
  virtual const compression::Codec& codec() const = 0;
  /// Returns the bytes written.
  virtual std::size_t encode(const Call&, std::byte* wire) = 0;
  /// As Collective's.
  virtual std::unique_ptr<CodecState> take_state() { return nullptr; }
  virtual void restore_state(std::unique_ptr<CodecState>) {}
};

class PlainEncoder final : public Encoder {
 public:
  PlainEncoder(compression::CodecPtr codec, std::uint32_t rank) : codec_(std::move(codec)), rank_(rank) {}
  const compression::Codec& codec() const override { return *codec_; }
  std::size_t encode(const Call& call, std::byte* wire) override {
    const Encoding& e = call.encoding;
    const compression::Draw draw{.seed = e.seed, .step = e.step, .tensor = e.tensor, .rank = rank_};
    const std::span<const float> x = call.in.values<float>();
    if (!e.worker_residual) return codec_->encode(x, wire, draw);
    if (scratch_.size() < x.size()) scratch_.resize(x.size());
    return compression::encode_with_feedback(*codec_, x, {e.worker_residual, x.size()}, scratch_, wire, draw);
  }

 private:
  compression::CodecPtr codec_;
  std::uint32_t rank_;
  std::vector<float> scratch_;
};

/// Keeps u and v by the tensor's place; v is what is called residual elsewhere.
class DgcEncoder final : public Encoder {
 public:
  DgcEncoder(const core::ParsedName& name, std::size_t ranks) : correction_(name), ranks_(ranks) {}
  const compression::Codec& codec() const override { return correction_.encoding(); }
  std::size_t encode(const Call& call, std::byte* wire) override {
    auto& kept = kept_[call.tensor_layout.first];
    kept.u.resize(call.count());
    kept.v.resize(call.count());
    return correction_.encode(call.in.values<float>(), ranks_, kept.u, kept.v, wire);
  }
  std::unique_ptr<CodecState> take_state() override { return take_values(kept_); }
  void restore_state(std::unique_ptr<CodecState> state) override { restore_values(std::move(state), kept_); }

 private:
  struct Momentum {
    std::vector<float> u, v;
  };
  compression::MomentumCorrection correction_;
  std::size_t ranks_;
  std::map<std::size_t, Momentum> kept_;
};

bool has_momentum(const CodedRequest& r) { return !r.codec.codec; }

std::unique_ptr<Encoder> make_encoder(const CodedRequest& r, std::uint32_t rank) {
  if (has_momentum(r)) return std::make_unique<DgcEncoder>(r.codec.parsed, r.shape.ranks);
  return std::make_unique<PlainEncoder>(r.codec.codec, rank);
}

AlgorithmPtr gatherer_of(const CodedRequest& r) {
  const bool chosen = r.algorithm.info().backend == Backend::selection;
  return chosen ? find_algorithm("ring") : find_algorithm(r.algorithm.name);
}

std::size_t slot_bytes(const CodedRequest& r) { return make_encoder(r, 0)->codec().wire_bytes(r.max_elements()); }
std::size_t all_slots(const CodedRequest& r) { return r.shape.ranks * slot_bytes(r); }
std::size_t lengths_bytes(const CodedRequest& r) { return r.shape.ranks * sizeof(std::int64_t); }

/// Would all ranks together send more than a ring of fp32? Then p · wire >= 2 · 4n.
bool sum_is_dense(const CodedRequest& r) {
  const bool sparse = r.codec.info->name == "topk" || r.codec.info->name == "dgc";
  return sparse && all_slots(r) >= 2 * r.options.max_bytes;
}

class Gathered final : public Staged {
 public:
  Gathered(const CodedRequest& r, const Site& site)
      : Staged(gatherer_of(r)->name, r.options.queue),
        encoder_(make_encoder(r, static_cast<std::uint32_t>(site.transport.rank()))),
        codec_(encoder_->codec()),
        rank_(static_cast<std::size_t>(site.transport.rank())),
        ranks_(r.shape.ranks),
        slots_(site.network.arena().take(all_slots(r))),
        lengths_(site.network.arena().take(lengths_bytes(r))),
        gather_(add_part(gatherer_of(r)->bind(site, r.inner(std::max(all_slots(r), lengths_bytes(r))),
                                              CollectiveKind::all_gather))) {}
  std::unique_ptr<CodecState> take_state() override { return encoder_->take_state(); }
  void restore_state(std::unique_ptr<CodecState> state) override { encoder_->restore_state(std::move(state)); }

 private:
  enum class Step : std::uint8_t { encode, gather, add };

  void begin(const Call& call) override {
    call_ = call;
    step_ = Step::encode;
  }

  Stage next() override {
    switch (step_) {
      case Step::encode:
        // To the beginning of the slots: its final place is known once the longest length is.
        encoding([this] { length_ = encoder_->encode(call_, slots_.data()); });
        if (call_.tensor_layout.difference) local("difference", [this] { note_own(); });
        step_ = Step::gather;
        if (codec_.variable()) return gather_lengths();
        most_ = codec_.wire_bytes(call_.count());
        [[fallthrough]];
      case Step::gather:
        step_ = Step::add;
        return gather_bytes();
      case Step::add:
        decoding([this] { add_all(); });
    }
    return {};
  }

  void note_own() {
    std::vector<float> sent(call_.count());
    codec_.decode({slots_.data(), length_}, sent);
    note_sent(call_, static_cast<float>(ranks_), sent);
  }

  Stage gather_lengths() {
    local("length", [this] {
      const auto mine = static_cast<std::int64_t>(length_);
      std::memcpy(lengths_.data() + rank_ * sizeof mine, &mine, sizeof mine);
    });
    return {&gather_, in_place(core::Element::i64, lengths_)};
  }

  Stage gather_bytes() {
    if (codec_.variable()) {
      most_ = 0;
      for (std::size_t r = 0; r < ranks_; ++r) most_ = std::max(most_, length_of(r));
      most_ = compression::padded(most_);
    }
    if (rank_ * most_ > 0)
      local("place", [this] { std::memmove(slots_.data() + rank_ * most_, slots_.data(), length_); });
    return {&gather_, in_place(core::Element::i8, slots_.first(ranks_ * most_))};
  }

  std::size_t length_of(std::size_t rank) const {
    if (!codec_.variable()) return most_;
    std::int64_t n;
    std::memcpy(&n, lengths_.data() + rank * sizeof n, sizeof n);
    return static_cast<std::size_t>(n);
  }

  void add_all() {
    const std::span<float> out = call_.out.values<float>();
    codec_.decode({slots_.data(), length_of(0)}, out);
    for (std::size_t r = 1; r < ranks_; ++r) codec_.decode_add({slots_.data() + r * most_, length_of(r)}, out, out);
    if (call_.op != Op::average) return;
    const float share = 1.0f / static_cast<float>(ranks_);
    for (float& x : out) x *= share;
  }

  std::unique_ptr<Encoder> encoder_;
  const compression::Codec& codec_;
  std::size_t rank_, ranks_;
  std::span<std::byte> slots_, lengths_;
  Collective& gather_;
  Call call_{};
  Step step_ = Step::encode;
  std::size_t length_ = 0, most_ = 0;  ///< own, and of every slot [bytes]
};

/// For sparse gradients of so many ranks that their sum is dense: each rank decodes its own, and the numbers are
/// summed.
class SummedDensely final : public Staged {
 public:
  SummedDensely(const CodedRequest& r, const Site& site)
      : Staged(r.algorithm.name, r.options.queue),
        encoder_(make_encoder(r, static_cast<std::uint32_t>(site.transport.rank()))),
        ranks_(static_cast<float>(r.shape.ranks)),
        wire_(slot_bytes(r)),
        values_(site.network.arena().take(r.options.max_bytes)),
        sum_(add_part(r.algorithm.bind(site, r.inner(r.options.max_bytes)))) {}
  std::unique_ptr<CodecState> take_state() override { return encoder_->take_state(); }
  void restore_state(std::unique_ptr<CodecState> state) override { encoder_->restore_state(std::move(state)); }

 private:
  void begin(const Call& call) override {
    call_ = call;
    summed_ = false;
  }
  Stage next() override {
    if (summed_) {
      local("copy", [this] { std::memcpy(call_.out.host(), values_.data(), call_.out.bytes()); });
      return {};
    }
    summed_ = true;
    encoding([this] { length_ = encoder_->encode(call_, wire_.data()); });
    decoding([this] { encoder_->codec().decode({wire_.data(), length_}, values()); });
    if (call_.tensor_layout.difference) local("difference", [this] { note_sent(call_, ranks_, values()); });
    return {&sum_, in_place(core::Element::f32, values_.first(call_.out.bytes()), call_.op)};
  }
  std::span<float> values() { return {reinterpret_cast<float*>(values_.data()), call_.count()}; }

  std::unique_ptr<Encoder> encoder_;
  float ranks_;
  std::vector<std::byte> wire_;
  std::span<std::byte> values_;
  Collective& sum_;
  Call call_{};
  bool summed_ = false;
  std::size_t length_ = 0;  ///< as encoded [bytes]
};

}  // namespace

std::string gathered_refusal(const CodedRequest& r) {
  if (sum_is_dense(r)) return {};
  return gatherer_of(r)->refusal(r.shape, CollectiveKind::all_gather, {.element = core::Element::i8});
}

std::size_t gathered_arena_bytes(const CodedRequest& r, std::uint32_t rank) {
  if (sum_is_dense(r)) {
    return r.options.max_bytes + 2 * arena_slack + r.algorithm.arena_bytes(r.shape, rank, r.inner(r.options.max_bytes));
  }
  const std::size_t inner = std::max(all_slots(r), lengths_bytes(r));
  return all_slots(r) + lengths_bytes(r) + 3 * arena_slack +
         gatherer_of(r)->arena_bytes(r.shape, rank, r.inner(inner), CollectiveKind::all_gather);
}

CallParts gathered_parts(const CodedRequest& r, const TensorPart& t) {
  if (sum_is_dense(r)) return {{.algorithm = r.algorithm_ptr(), .count = t.count}};
  const auto encoder = make_encoder(r, 0);
  const std::size_t ranks = r.shape.ranks, wire = encoder->codec().wire_bytes(t.count);
  const CallPart bytes{.algorithm = gatherer_of(r),
                       .collective_kind = CollectiveKind::all_gather,
                       .count = ranks * wire,
                       .element_bytes = 1};
  if (!encoder->codec().variable()) return {bytes};
  CallPart lengths = bytes, longest = bytes;
  lengths.count = ranks, lengths.element_bytes = sizeof(std::int64_t);
  longest.count = ranks * compression::padded(wire), longest.most = true;
  return {lengths, longest};
}

std::unique_ptr<Collective> bind_gathered(const CodedRequest& r, const Site& site) {
  if (sum_is_dense(r)) return std::make_unique<SummedDensely>(r, site);
  return std::make_unique<Gathered>(r, site);
}

}  // namespace gradmeter::allreduce
