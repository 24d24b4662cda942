#include "allreduce/compressed/gathered.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <stdexcept>
#include <vector>

#include "allreduce/compressed/difference.hpp"
#include "allreduce/compressed/gathered_on_gpu.hpp"
#include "allreduce/compressed/staged.hpp"
#include "allreduce/compressed/state_values.hpp"
#include "allreduce/compressed/tensor_calls.hpp"
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

/// A tensor's own encoding is at most so much longer than its share of the whole buffer's [bytes]: rounded-up counts,
/// a last bucket's scale, two paddings.
constexpr std::size_t own_bytes = 64;

std::size_t wire_of_all(const CodedRequest& r) { return make_encoder(r, 0)->codec().wire_bytes(r.max_elements()); }
std::size_t slot_bytes(const CodedRequest& r) { return wire_of_all(r) + most_packed(r) * own_bytes; }
std::size_t all_slots(const CodedRequest& r) { return r.shape.ranks * slot_bytes(r); }
std::size_t lengths_bytes(const CodedRequest& r) { return r.shape.ranks * most_packed(r) * sizeof(std::int64_t); }

/// Would all ranks together send more than a ring of fp32? Then p · wire >= 2 · 4n.
bool sum_is_dense(const CodedRequest& r) {
  const bool sparse = r.codec.info->name == "topk" || r.codec.info->name == "dgc";
  return sparse && r.shape.ranks * wire_of_all(r) >= 2 * r.options.max_bytes;
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

  /// One tensor of the pack: its call, and where its encoding lies.
  struct Member {
    const Call* call;
    std::size_t encoded_at = 0, encoded = 0;  ///< own encoding, before it is placed [bytes]
    std::size_t slot_at = 0, slot = 0;        ///< within every rank's slots: as long as the longest encoding [bytes]
  };

  void begin(const Call& call) override {
    tensors_.assign(call);
    members_.clear();
    std::size_t most = 0;
    for (const Call& c : tensors_.calls()) {
      members_.push_back({.call = &c});
      most += compression::padded(codec_.wire_bytes(c.count()));
    }
    if (ranks_ * most > slots_.size() || members_.size() * ranks_ * sizeof(std::int64_t) > lengths_.size()) {
      throw std::logic_error(fmt::format("{} tensors of a call with {} exceed its memory", members_.size(), name()));
    }
    step_ = Step::encode;
  }

  Stage next() override {
    switch (step_) {
      case Step::encode:
        // To the beginning of the slots: the final places are known once the longest lengths are.
        encoding([this] { encode(); });
        if (tensors_.differences_asked()) local("difference", [this] { note_own(); });
        step_ = Step::gather;
        if (codec_.variable()) return gather_lengths();
        [[fallthrough]];
      case Step::gather:
        step_ = Step::add;
        return gather_bytes();
      case Step::add:
        decoding([this] {
          for (const Member& m : members_) add_all(m);
        });
    }
    return {};
  }

  void encode() {
    std::size_t at = 0;
    for (Member& m : members_) {
      m.encoded_at = at;
      m.encoded = encoder_->encode(*m.call, slots_.data() + at);
      at += m.encoded;
    }
  }

  void note_own() {
    for (const Member& m : members_) {
      std::vector<float> sent(m.call->count());
      codec_.decode({slots_.data() + m.encoded_at, m.encoded}, sent);
      note_sent(*m.call, static_cast<float>(ranks_), sent);
    }
    tensors_.add_squares();
  }

  Stage gather_lengths() {
    const std::size_t bytes = members_.size() * sizeof(std::int64_t);
    local("length", [this, bytes] {
      std::byte* to = lengths_.data() + rank_ * bytes;
      for (const Member& m : members_) {
        const auto mine = static_cast<std::int64_t>(m.encoded);
        std::memcpy(to, &mine, sizeof mine);
        to += sizeof mine;
      }
    });
    return {&gather_, in_place(core::Element::i64, lengths_.first(ranks_ * bytes))};
  }

  Stage gather_bytes() {
    std::size_t at = 0;
    for (std::size_t i = 0; i < members_.size(); ++i) {
      members_[i].slot_at = at;
      members_[i].slot = slot_of(i);
      at += members_[i].slot;
    }
    most_ = at;
    local("place", [this] { place(); });
    return {&gather_, in_place(core::Element::i8, slots_.first(ranks_ * most_))};
  }

  std::size_t slot_of(std::size_t tensor) const {
    if (!codec_.variable()) return codec_.wire_bytes(members_[tensor].call->count());
    std::size_t longest = 0;
    for (std::size_t r = 0; r < ranks_; ++r) longest = std::max(longest, length_of(r, tensor));
    return compression::padded(longest);
  }

  /// The last first, since no encoding moves towards the beginning.
  void place() {
    for (std::size_t i = members_.size(); i-- > 0;) {
      const Member& m = members_[i];
      std::memmove(slots_.data() + rank_ * most_ + m.slot_at, slots_.data() + m.encoded_at, m.encoded);
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
      return std::span<const std::byte>(slots_.data() + r * most_ + m.slot_at, length_of(r, tensor));
    };
    codec_.decode(wire_of(0), out);
    for (std::size_t r = 1; r < ranks_; ++r) codec_.decode_add(wire_of(r), out, out);
    if (m.call->op != Op::average) return;
    const float share = 1.0f / static_cast<float>(ranks_);
    for (float& x : out) x *= share;
  }

  std::unique_ptr<Encoder> encoder_;
  const compression::Codec& codec_;
  std::size_t rank_, ranks_;
  std::span<std::byte> slots_, lengths_;
  Collective& gather_;
  TensorCalls tensors_;
  std::vector<Member> members_;
  Step step_ = Step::encode;
  std::size_t most_ = 0;  ///< of a rank's slots together [bytes]
};

/// For sparse gradients of so many ranks that their sum is dense: each rank decodes its own, and the numbers are
/// summed.
class SummedDensely final : public Staged {
 public:
  SummedDensely(const CodedRequest& r, const Site& site)
      : Staged(r.algorithm.name, r.options.queue),
        encoder_(make_encoder(r, static_cast<std::uint32_t>(site.transport.rank()))),
        ranks_(static_cast<float>(r.shape.ranks)),
        wires_(slot_bytes(r)),
        values_(site.network.arena().take(r.options.max_bytes)),
        sum_(add_part(r.algorithm.bind(site, r.inner(r.options.max_bytes)))) {}
  std::unique_ptr<CodecState> take_state() override { return encoder_->take_state(); }
  void restore_state(std::unique_ptr<CodecState> state) override { encoder_->restore_state(std::move(state)); }

 private:
  void begin(const Call& call) override {
    tensors_.assign(call);
    count_ = 0;
    for (const Call& c : tensors_.calls()) count_ += c.count();
    summed_ = false;
  }
  Stage next() override {
    if (summed_) {
      local("copy", [this] { each(&SummedDensely::copy); });
      return {};
    }
    summed_ = true;
    encoding([this] { encode(); });
    decoding([this] { decode(); });
    if (tensors_.differences_asked()) {
      local("difference", [this] {
        each(&SummedDensely::note_own);
        tensors_.add_squares();
      });
    }
    return {&sum_, in_place(core::Element::f32, values_.first(count_ * sizeof(float)), tensors_.calls().front().op)};
  }

  /// `work` on each tensor, with its values.
  void each(void (SummedDensely::*work)(const Call&, std::span<const float>)) {
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
      lengths_.push_back(encoder_->encode(c, to));
      to += lengths_.back();
    }
  }
  void decode() {
    std::span<float> rest = values();
    const std::byte* from = wires_.data();
    for (std::size_t i = 0; i < lengths_.size(); ++i) {
      const std::size_t count = tensors_.calls()[i].count();
      encoder_->codec().decode({from, lengths_[i]}, rest.first(count));
      from += lengths_[i];
      rest = rest.subspan(count);
    }
  }
  void note_own(const Call& c, std::span<const float> sent) { note_sent(c, ranks_, sent); }
  void copy(const Call& c, std::span<const float> sum) { std::memcpy(c.out.host(), sum.data(), sum.size_bytes()); }
  std::span<float> values() { return {reinterpret_cast<float*>(values_.data()), count_}; }

  std::unique_ptr<Encoder> encoder_;
  float ranks_;
  std::vector<std::byte> wires_;  ///< own encodings, one after another
  std::span<std::byte> values_;
  Collective& sum_;
  TensorCalls tensors_;
  std::vector<std::size_t> lengths_;  ///< as encoded [bytes]
  std::size_t count_ = 0;             ///< elements
  bool summed_ = false;
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

CallParts gathered_parts(const CodedRequest& r, std::span<const TensorPart> pack) {
  const auto encoder = make_encoder(r, 0);
  const std::size_t ranks = r.shape.ranks;
  std::size_t elements = 0, wires = 0, longest_wires = 0;
  for (const TensorPart& t : pack) {
    const std::size_t wire = encoder->codec().wire_bytes(t.count);
    elements += t.count, wires += wire, longest_wires += compression::padded(wire);
  }
  if (sum_is_dense(r)) return {{.algorithm = r.algorithm_ptr(), .count = elements}};
  const CallPart bytes{.algorithm = gatherer_of(r),
                       .collective_kind = CollectiveKind::all_gather,
                       .count = ranks * wires,
                       .element_bytes = 1};
  if (!encoder->codec().variable()) return {bytes};
  CallPart lengths = bytes, longest = bytes;
  lengths.count = ranks * pack.size(), lengths.element_bytes = sizeof(std::int64_t);
  longest.count = ranks * longest_wires, longest.most = true;
  return {lengths, longest};
}

bool gathers_on_gpu(const CodedRequest& r) {
  return !has_momentum(r) && !r.codec.codec->variable() && !sum_is_dense(r);
}

std::unique_ptr<Collective> bind_gathered(const CodedRequest& r, const Site& site) {
  if (r.gpu()) return gather_on_gpu(r, site, *gatherer_of(r), site.network.arena().take(all_slots(r)));
  if (sum_is_dense(r)) return std::make_unique<SummedDensely>(r, site);
  return std::make_unique<Gathered>(r, site);
}

}  // namespace gradmeter::allreduce
