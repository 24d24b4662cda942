// SPDX-License-Identifier: Apache-2.0
// Exchanges whose encodings any all-reduce can sum: random-k, TernGrad with one scale, PowerSGD.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <vector>

#include "allreduce/coded/collective_sequence.hpp"
#include "allreduce/coded/exchanges.hpp"
#include "compression/codecs/low_rank.hpp"
#include "compression/codecs/quantized.hpp"
#include "compression/codecs/sparse.hpp"
#include "core/format.hpp"

namespace gradmeter::allreduce {
namespace {

/// The bytes that a collective takes from the arena if `memory` bytes are its own, which the inner algorithm sums.
std::size_t arena_bytes_of_sum(const ExchangeSpec& spec, std::uint32_t rank, std::size_t memory) {
  return memory + 2 * arena_slack + spec.algorithm->arena_bytes(spec.shape, rank, spec.inner_call_spec(memory));
}

template <class SumOfEncodings>
std::unique_ptr<Collective> bind(const ExchangeSpec& spec, const GroupConnection& connection) {
  return std::make_unique<SumOfEncodings>(spec, connection);
}

std::size_t value_bytes(const ExchangeSpec& spec) {
  // Each tensor's count of kept elements is rounded up, by less than one element.
  return (compression::RandomK(spec.codec->parsed).kept(spec.max_floats()) + most_tensors_in_pack(spec)) *
         sizeof(float);
}

class RandomKSum final : public CollectiveSequence {
 public:
  RandomKSum(const ExchangeSpec& spec, const GroupConnection& connection)
      : CollectiveSequence(spec.algorithm->name, spec.queue),
        codec_(spec.codec->parsed),
        ranks_(static_cast<float>(spec.shape.ranks)),
        values_(connection.network.arena().take(value_bytes(spec))),
        all_reduce_(add_part(spec.algorithm->bind(connection, spec.inner_call_spec(value_bytes(spec))))) {}

 private:
  void begin(const Call& call) override { tensors_.assign(call); }

  SequenceStep next(std::size_t number) override {
    if (number > 0) {
      run_decoding([this] { for_each_tensor(&RandomKSum::write_result); });
      return {};
    }
    std::size_t kept = 0;
    for (const Call& c : tensors_.calls()) kept += codec_.kept(c.count());
    places_.resize(kept);
    run_encoding([this] { for_each_tensor(&RandomKSum::pick); });
    record_differences(tensors_, [this] { for_each_tensor(&RandomKSum::record_own_difference); });
    return {&all_reduce_, in_place(core::Element::f32, values_.first(kept * sizeof(float)))};
  }

  using Places = std::span<std::uint32_t>;
  using Values = std::span<float>;

  /// Calls `work` for each tensor with its places and their values.
  void for_each_tensor(void (RandomKSum::*work)(const Call&, Places, Values)) {
    std::size_t at = 0;
    for (const Call& c : tensors_.calls()) {
      const std::size_t kept = codec_.kept(c.count());
      (this->*work)(c, Places(places_).subspan(at, kept), {reinterpret_cast<float*>(values_.data()) + at, kept});
      at += kept;
    }
  }

  void pick(const Call& c, Places places, Values values) {
    codec_.draw_places(c.encoding.draw, c.count(), places);
    const std::span<const float> x = c.in.values<float>();
    if (!c.encoding.worker_residual) return codec_.gather(x, places, values);
    codec_.take_from_residual(x, places, {c.encoding.worker_residual, x.size()}, values);
  }

  void record_own_difference(const Call& c, Places places, Values values) {
    std::vector<float> sent(c.count());
    compression::RandomK::scatter(values, places, sent);
    record_difference(c, ranks_, sent);
  }

  void write_result(const Call& c, Places places, Values values) {
    if (c.op == Op::average) {
      for (float& v : values) v /= ranks_;
    }
    compression::RandomK::scatter(values, places, c.out.values<float>());
  }

  compression::RandomK codec_;
  float ranks_;
  std::span<std::byte> values_;
  Collective& all_reduce_;
  TensorCalls tensors_;
  std::vector<std::uint32_t> places_;  ///< the indices of all kept elements, tensor by tensor
};

InnerCalls random_k_calls(const ExchangeSpec& spec, std::span<const TensorPart> pack) {
  const compression::RandomK codec(spec.codec->parsed);
  std::size_t kept = 0;
  for (const TensorPart& t : pack) kept += codec.kept(t.count);
  return {{.algorithm = spec.algorithm, .count = kept}};
}

}  // namespace

constinit const CodedExchange random_k_exchange{
    .refusal = nullptr,
    .arena_bytes = [](const ExchangeSpec& spec,
                      std::uint32_t rank) { return arena_bytes_of_sum(spec, rank, value_bytes(spec)); },
    .bind = bind<RandomKSum>,
    .inner_calls = random_k_calls};

namespace {

std::size_t tern_grad_memory_bytes(const ExchangeSpec& spec) {
  return std::max<std::size_t>({spec.max_floats(), most_tensors_in_pack(spec) * sizeof(float), 64});
}

class TernGradSum final : public CollectiveSequence {
 public:
  TernGradSum(const ExchangeSpec& spec, const GroupConnection& connection)
      : CollectiveSequence(spec.algorithm->name, spec.queue),
        clip_(compression::ternary_clip(spec.codec->parsed)),
        rank_(static_cast<std::uint32_t>(connection.transport.rank())),
        ranks_(static_cast<float>(spec.shape.ranks)),
        memory_(connection.network.arena().take(tern_grad_memory_bytes(spec))),
        all_reduce_(add_part(spec.algorithm->bind(connection, spec.inner_call_spec(tern_grad_memory_bytes(spec))))) {}

 private:
  void begin(const Call& call) override {
    tensors_.assign(call);
    scales_.resize(tensors_.calls().size());
  }

  SequenceStep next(std::size_t number) override {
    if (number == 0) {
      run_encoding([this] { find_scales(); });
      return {&all_reduce_, in_place(core::Element::f32, memory_.first(scales_.size() * sizeof(float)), Op::max)};
    }
    if (number == 1) return sum_codes();
    run_decoding([this] { for_each_tensor(&TernGradSum::decode); });
    return {};
  }

  SequenceStep sum_codes() {
    run_local("scale", [this] {
      std::memcpy(scales_.data(), memory_.data(), scales_.size() * sizeof(float));
      for (float& s : scales_) {
        if (!std::isfinite(s)) s = std::numeric_limits<float>::quiet_NaN();
      }
    });
    run_encoding([this] { for_each_tensor(&TernGradSum::quantise); });
    record_differences(tensors_, [this] { for_each_tensor(&TernGradSum::record_own_difference); });
    std::size_t codes = 0;
    for (const Call& c : tensors_.calls()) codes += c.count();
    return {&all_reduce_, in_place(core::Element::i8, memory_.first(codes))};
  }

  void find_scales() {
    std::byte* to = memory_.data();
    for (const Call& c : tensors_.calls()) {
      // Not every MPI's maximum keeps a NaN, so infinity is sent instead.
      const float scale = compression::ternary_scale(c.in.values<float>(), clip_);
      const float mine = std::isfinite(scale) ? scale : std::numeric_limits<float>::infinity();
      std::memcpy(to, &mine, sizeof mine);
      to += sizeof mine;
    }
  }

  using Codes = std::span<std::int8_t>;

  /// Calls `work` for each tensor with its codes and its scale.
  void for_each_tensor(void (TernGradSum::*work)(const Call&, Codes, float)) {
    auto* codes = reinterpret_cast<std::int8_t*>(memory_.data());
    for (std::size_t i = 0; i < scales_.size(); ++i) {
      const Call& c = tensors_.calls()[i];
      (this->*work)(c, {codes, c.count()}, scales_[i]);
      codes += c.count();
    }
  }

  void quantise(const Call& c, Codes codes, float scale) {
    compression::RandomDraw draw = c.encoding.draw;
    draw.rank = rank_;
    compression::ternary_quantise(c.in.values<float>(), scale, codes, draw);
  }

  void record_own_difference(const Call& c, Codes codes, float scale) {
    std::vector<float> sent(c.count());
    compression::ternary_decode(codes, scale, sent);
    record_difference(c, ranks_, sent);
  }

  void decode(const Call& c, Codes codes, float scale) {
    compression::ternary_decode(codes, c.op == Op::average ? scale / ranks_ : scale, c.out.values<float>());
  }

  double clip_;
  std::uint32_t rank_;
  float ranks_;
  std::span<std::byte> memory_;  ///< the scales, one after another; after their maximum is known, the codes
  Collective& all_reduce_;
  TensorCalls tensors_;
  std::vector<float> scales_;
};

std::string tern_grad_refusal(const ExchangeSpec& spec) {
  constexpr std::uint32_t most = 127;
  if (spec.shape.ranks <= most) return {};
  return fmt::format("codec {} sums codes of -1, 0 and 1 in int8, which holds {} ranks, not {}; take {}:exchange=sra",
                     spec.codec->info->name, most, spec.shape.ranks, spec.codec->info->name);
}

InnerCalls tern_grad_calls(const ExchangeSpec& spec, std::span<const TensorPart> pack) {
  std::size_t codes = 0;
  for (const TensorPart& t : pack) codes += t.count;
  return {{.algorithm = spec.algorithm, .count = pack.size()},
          {.algorithm = spec.algorithm, .count = codes, .element_bytes = 1}};
}

}  // namespace

constinit const CodedExchange tern_grad_exchange{
    .refusal = tern_grad_refusal,
    .arena_bytes = [](const ExchangeSpec& spec,
                      std::uint32_t rank) { return arena_bytes_of_sum(spec, rank, tern_grad_memory_bytes(spec)); },
    .bind = bind<TernGradSum>,
    .inner_calls = tern_grad_calls};

namespace {

compression::MatrixShape matrix_of(const TensorPart& t) {
  if (t.rows == 0) return compression::square_matrix(t.count);
  return {.rows = t.rows, .columns = t.columns, .count = t.count};
}

/// The most bytes of the factors P of all tensors, or of the factors Q. A tensor is only factorised where both factors
/// together have at most half of its elements.
std::size_t factor_bytes(const ExchangeSpec& spec) { return std::max<std::size_t>(spec.max_bytes / 2, 64); }
/// The bytes of the collective's own memory: the factors P or Q of all tensors, and behind them the tensors that are
/// not factorised.
std::size_t memory_bytes(const ExchangeSpec& spec) { return factor_bytes(spec) + dense_bytes(spec); }

bool is_dense(const TensorPart& t, std::size_t factor_rank) {
  const compression::MatrixShape m = matrix_of(t);
  return !compression::low_rank_pays(m.rows, m.columns, factor_rank);
}

class PowerSgd final : public CollectiveSequence {
 public:
  PowerSgd(const ExchangeSpec& spec, const GroupConnection& connection)
      : CollectiveSequence(spec.algorithm->name, spec.queue),
        factor_rank_(compression::rank_of(spec.codec->parsed)),
        ranks_(static_cast<float>(spec.shape.ranks)),
        memory_(connection.network.arena().take(memory_bytes(spec))),
        all_reduce_(add_part(spec.algorithm->bind(connection, spec.inner_call_spec(memory_bytes(spec))))) {}

  CodecState take_state() override { return take_values(last_q_); }
  void restore_state(const CodecState& state) override { restore_values(state, last_q_); }

 private:
  /// A tensor of the pack that is factorised: its call, and the offsets of its factors P and Q among those of all such
  /// tensors [elements].
  struct FactorisedTensor {
    const Call* call;
    compression::MatrixShape matrix;
    std::size_t p_at, q_at;
  };

  void begin(const Call& call) override {
    tensors_.assign(call);
    factorised_.clear();
    dense_.clear();
    p_size_ = q_size_ = dense_size_ = 0;
    for (const Call& c : tensors_.calls()) {
      if (is_dense(c.tensor_layout.tensors.front(), factor_rank_)) {
        dense_.push_back(&c);
        dense_size_ += c.count();
        continue;
      }
      const auto m = matrix_of(c.tensor_layout.tensors.front());
      factorised_.push_back({.call = &c, .matrix = m, .p_at = p_size_, .q_at = q_size_});
      p_size_ += m.p_size(factor_rank_), q_size_ += m.q_size(factor_rank_);
    }
  }

  SequenceStep next(std::size_t number) override {
    if (number == 0) {
      run_encoding([this] { for_each_factorised(&PowerSgd::make_p); });
      if (dense_size_ > 0) run_local("pack", [this] { pack_dense(); });
      return sum_first(p_size_ + dense_size_);
    }
    if (number == 1) return sum_q();
    run_decoding([this] { for_each_factorised(&PowerSgd::rebuild); });
    return {};
  }

  SequenceStep sum_q() {
    if (dense_size_ > 0) run_local("unpack", [this] { unpack_dense(); });
    run_encoding([this] {
      p_.assign(numbers().begin(), numbers().begin() + static_cast<std::ptrdiff_t>(p_size_));
      for_each_factorised(&PowerSgd::make_q);
    });
    record_differences(tensors_, [this] { for_each_factorised(&PowerSgd::record_own_difference); });
    return sum_first(q_size_);
  }

  void for_each_factorised(void (PowerSgd::*work)(const FactorisedTensor&)) {
    for (const FactorisedTensor& m : factorised_) (this->*work)(m);
  }

  void pack_dense() {
    auto to = numbers().begin() + static_cast<std::ptrdiff_t>(p_size_);
    for (const Call* c : dense_) to = std::ranges::copy(c->in.values<float>(), to).out;
  }

  void unpack_dense() {
    const std::byte* from = memory_.data() + p_size_ * sizeof(float);
    for (const Call* c : dense_) {
      // The all-reduce has summed, so an average still has to be divided.
      finish(core::Element::f32, c->op, c->out.host(), from, c->count(), static_cast<int>(ranks_));
      from += c->count() * sizeof(float);
    }
  }

  void make_p(const FactorisedTensor& m) {
    const auto p = numbers().subspan(m.p_at, m.matrix.p_size(factor_rank_));
    compression::multiply(m.matrix, factor_rank_, add_to_residual(*m.call), last_q(m), p);
  }

  void make_q(const FactorisedTensor& m) {
    compression::orthonormalise(m.matrix, factor_rank_, p_of(m));
    compression::multiply_transposed(m.matrix, factor_rank_, compressed_input(*m.call), p_of(m), q_of(m));
  }

  /// Records what this rank contributed: the projection of its own gradient and residual on the orthonormal P
  /// that all ranks share.
  void record_own_difference(const FactorisedTensor& m) {
    std::vector<float> sent(m.call->count());
    compression::reconstruct(m.matrix, factor_rank_, p_of(m), q_of(m), sent);
    record_difference(*m.call, ranks_, sent);
  }

  /// Adds the gradient to the residual of earlier calls, if there is one. Returns the numbers that this call
  /// compresses.
  static std::span<const float> add_to_residual(const Call& call) {
    const std::span<const float> x = call.in.values<float>();
    if (float* residual = call.encoding.worker_residual) {
      for (std::size_t i = 0; i < x.size(); ++i) residual[i] += x[i];
    }
    return compressed_input(call);
  }
  static std::span<const float> compressed_input(const Call& call) {
    const float* residual = call.encoding.worker_residual;
    return residual ? std::span<const float>(residual, call.count()) : call.in.values<float>();
  }

  std::span<float> last_q(const FactorisedTensor& m) {
    auto& q = last_q_[m.call->tensor_layout.offset_in_step];
    if (q.size() != m.matrix.q_size(factor_rank_)) {
      q.resize(m.matrix.q_size(factor_rank_));
      compression::draw_first_q(m.matrix, factor_rank_, m.call->encoding.draw.seed, m.call->encoding.draw.tensor, q);
    }
    return q;
  }

  void rebuild(const FactorisedTensor& m) {
    const Call& call = *m.call;
    const std::span<const float> sum = q_of(m);
    const auto q = last_q(m);
    // A factor with an infinity or a NaN would never become finite again.
    const bool finite = std::ranges::all_of(sum, [](float x) { return std::isfinite(x); });
    const std::span<float> out = call.out.values<float>();
    std::ranges::copy(sum, q.begin());
    const float share = 1 / ranks_;
    if (call.op == Op::average) {
      for (float& x : q) x *= share;
    }
    compression::reconstruct(m.matrix, factor_rank_, p_of(m), q, out);
    if (float* residual = call.encoding.worker_residual) {
      const float own_share_of_out = call.op == Op::average ? 1 : share;
      for (std::size_t i = 0; i < out.size(); ++i) residual[i] = finite ? residual[i] - own_share_of_out * out[i] : 0;
    }
    if (!finite) last_q_.erase(call.tensor_layout.offset_in_step);
  }

  std::span<float> numbers() { return {reinterpret_cast<float*>(memory_.data()), memory_.size() / sizeof(float)}; }
  std::span<float> p_of(const FactorisedTensor& m) {
    return std::span(p_).subspan(m.p_at, m.matrix.p_size(factor_rank_));
  }
  std::span<float> q_of(const FactorisedTensor& m) { return numbers().subspan(m.q_at, m.matrix.q_size(factor_rank_)); }
  SequenceStep sum_first(std::size_t n) {
    return {&all_reduce_, in_place(core::Element::f32, memory_.first(n * sizeof(float)))};
  }

  std::size_t factor_rank_;
  float ranks_;
  std::span<std::byte> memory_;
  Collective& all_reduce_;
  TensorCalls tensors_;
  std::vector<FactorisedTensor> factorised_;
  std::vector<const Call*> dense_;       ///< the tensors that are not factorised; they travel with the factors P
  std::size_t p_size_ = 0, q_size_ = 0;  ///< the elements of all factors
  std::size_t dense_size_ = 0;
  std::vector<float> p_;  ///< all factors P, summed over the ranks
  /// The factors Q of the last call, by the tensor's offset among all elements that are exchanged.
  std::map<std::size_t, std::vector<float>> last_q_;
};

std::string power_sgd_tensor_refusal(const ExchangeSpec& spec, const TensorPart& t) {
  const compression::MatrixShape m = matrix_of(t);
  const std::size_t factor_rank = compression::rank_of(spec.codec->parsed);
  if (auto why = compression::low_rank_refusal(m, factor_rank); !why.empty()) return why;
  if (compression::low_rank_pays(m.rows, m.columns, factor_rank)) return {};
  return fmt::format("rank {} shrinks a matrix of {} x {} less than 2x: it goes dense", factor_rank, m.rows, m.columns);
}

InnerCalls power_sgd_calls(const ExchangeSpec& spec, std::span<const TensorPart> pack) {
  const std::size_t factor_rank = compression::rank_of(spec.codec->parsed);
  std::size_t p = 0, q = 0;
  for (const TensorPart& t : pack) {
    const compression::MatrixShape m = matrix_of(t);
    const bool dense = is_dense(t, factor_rank);
    p += dense ? t.count : m.p_size(factor_rank);
    q += dense ? 0 : m.q_size(factor_rank);
  }
  return {{.algorithm = spec.algorithm, .count = p}, {.algorithm = spec.algorithm, .count = q}};
}

}  // namespace

constinit const CodedExchange power_sgd_exchange{
    .refusal = nullptr,
    .arena_bytes = [](const ExchangeSpec& spec,
                      std::uint32_t rank) { return arena_bytes_of_sum(spec, rank, memory_bytes(spec)); },
    .bind = bind<PowerSgd>,
    .inner_calls = power_sgd_calls,
    .tensor_refusal = power_sgd_tensor_refusal,
    .packs_take_uncoded = true};

}  // namespace gradmeter::allreduce
