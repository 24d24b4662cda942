#include "allreduce/compressed/power_sgd.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "allreduce/compressed/difference.hpp"
#include "allreduce/compressed/staged.hpp"
#include "allreduce/compressed/state_values.hpp"
#include "allreduce/compressed/tensor_calls.hpp"
#include "compression/codecs/low_rank.hpp"
#include "core/format.hpp"

namespace gradmeter::allreduce {
namespace {

compression::Matrix matrix_of(const TensorPart& t) {
  if (t.rows == 0) return compression::square_matrix(t.count);
  return {.rows = t.rows, .columns = t.columns, .count = t.count};
}

/// What either factors take, at most [bytes]: one side of such a tensor is at most half of its elements over the rank.
std::size_t factor_bytes(const CodedRequest& r) { return std::max<std::size_t>(r.options.max_bytes / 2, 64); }
/// With the dense tensors behind the first factors.
std::size_t memory_bytes(const CodedRequest& r) { return factor_bytes(r) + dense_bytes(r); }

bool is_dense(const TensorPart& t, std::size_t rank) {
  const compression::Matrix m = matrix_of(t);
  return !compression::low_rank_pays(m.rows, m.columns, rank);
}

class PowerSgd final : public Staged {
 public:
  PowerSgd(const CodedRequest& r, const Site& site)
      : Staged(r.algorithm.name, r.options.queue),
        rank_(compression::rank_of(r.codec.parsed)),
        ranks_(static_cast<float>(r.shape.ranks)),
        factor_(site.network.arena().take(memory_bytes(r))),
        sum_(add_part(r.algorithm.bind(site, r.inner(memory_bytes(r))))) {}

  std::unique_ptr<CodecState> take_state() override { return take_values(bases_); }
  void restore_state(std::unique_ptr<CodecState> state) override { restore_values(std::move(state), bases_); }

 private:
  enum class Step : std::uint8_t { p, q, done };

  /// One tensor of the pack: its call, and where its factors begin among all of the pack's.
  struct Member {
    const Call* call;
    compression::Matrix matrix;
    std::size_t p_at, q_at;
  };

  void begin(const Call& call) override {
    tensors_.assign(call);
    members_.clear();
    dense_.clear();
    p_size_ = q_size_ = dense_size_ = 0;
    for (const Call& c : tensors_.calls()) {
      if (is_dense(c.tensor_layout.tensors.front(), rank_)) {
        dense_.push_back(&c);
        dense_size_ += c.count();
        continue;
      }
      const auto m = matrix_of(c.tensor_layout.tensors.front());
      members_.push_back({.call = &c, .matrix = m, .p_at = p_size_, .q_at = q_size_});
      p_size_ += m.p_size(rank_), q_size_ += m.q_size(rank_);
    }
    step_ = Step::p;
  }

  Stage next() override {
    switch (step_) {
      case Step::p:
        step_ = Step::q;
        encoding([this] { each(&PowerSgd::make_p); });
        if (dense_size_ > 0) local("pack", [this] { pack_dense(); });
        return summed(p_size_ + dense_size_);
      case Step::q:
        step_ = Step::done;
        if (dense_size_ > 0) local("unpack", [this] { unpack_dense(); });
        encoding([this] {
          p_.assign(factors().begin(), factors().begin() + static_cast<std::ptrdiff_t>(p_size_));
          each(&PowerSgd::make_q);
        });
        if (tensors_.differences_asked()) {
          local("difference", [this] {
            each(&PowerSgd::note_own);
            tensors_.add_squares();
          });
        }
        return summed(q_size_);
      case Step::done:
        decoding([this] { each(&PowerSgd::rebuild); });
    }
    return {};
  }

  void each(void (PowerSgd::*work)(const Member&)) {
    for (const Member& m : members_) (this->*work)(m);
  }

  void pack_dense() {
    auto to = factors().begin() + static_cast<std::ptrdiff_t>(p_size_);
    for (const Call* c : dense_) to = std::ranges::copy(c->in.values<float>(), to).out;
  }

  void unpack_dense() {
    const std::byte* from = factor_.data() + p_size_ * sizeof(float);
    for (const Call* c : dense_) {
      // The factors' all-reduce is a sum.
      finish(core::Element::f32, c->op, c->out.host(), from, c->count(), static_cast<int>(ranks_));
      from += c->count() * sizeof(float);
    }
  }

  void make_p(const Member& m) {
    const auto p = factors().subspan(m.p_at, m.matrix.p_size(rank_));
    compression::multiply(m.matrix, rank_, gradient(*m.call), basis(m), p);
  }

  void make_q(const Member& m) {
    compression::orthonormalise(m.matrix, rank_, p_of(m));
    compression::multiply_transposed(m.matrix, rank_, delta(*m.call), p_of(m), q_of(m));
  }

  /// Records this rank's own part of the projection, on the basis that all ranks have found together.
  void note_own(const Member& m) {
    std::vector<float> sent(m.call->count());
    compression::reconstruct(m.matrix, rank_, p_of(m), q_of(m), sent);
    note_sent(*m.call, ranks_, sent);
  }

  /// What this call compresses: the gradient plus the residual of earlier calls.
  static std::span<const float> gradient(const Call& call) {
    const std::span<const float> x = call.in.values<float>();
    if (float* residual = call.encoding.worker_residual) {
      for (std::size_t i = 0; i < x.size(); ++i) residual[i] += x[i];
    }
    return delta(call);
  }
  static std::span<const float> delta(const Call& call) {
    const float* residual = call.encoding.worker_residual;
    return residual ? std::span<const float>(residual, call.count()) : call.in.values<float>();
  }

  std::span<float> basis(const Member& m) {
    auto& q = bases_[m.call->tensor_layout.first];
    if (q.size() != m.matrix.q_size(rank_)) {
      q.resize(m.matrix.q_size(rank_));
      compression::draw_first_q(m.matrix, rank_, m.call->encoding.seed, m.call->encoding.tensor, q);
    }
    return q;
  }

  void rebuild(const Member& m) {
    const Call& call = *m.call;
    const std::span<const float> sum = q_of(m);
    const auto q = basis(m);
    // A basis with an infinity or a NaN would never become finite again.
    const bool sound = std::ranges::all_of(sum, [](float x) { return std::isfinite(x); });
    const std::span<float> out = call.out.values<float>();
    std::ranges::copy(sum, q.begin());
    const float share = 1 / ranks_;
    if (call.op == Op::average) {
      for (float& x : q) x *= share;
    }
    compression::reconstruct(m.matrix, rank_, p_of(m), q, out);
    if (float* residual = call.encoding.worker_residual) {
      const float own = call.op == Op::average ? 1 : share;
      for (std::size_t i = 0; i < out.size(); ++i) residual[i] = sound ? residual[i] - own * out[i] : 0;
    }
    if (!sound) bases_.erase(call.tensor_layout.first);
  }

  std::span<float> factors() { return {reinterpret_cast<float*>(factor_.data()), factor_.size() / sizeof(float)}; }
  std::span<float> p_of(const Member& m) { return std::span(p_).subspan(m.p_at, m.matrix.p_size(rank_)); }
  std::span<float> q_of(const Member& m) { return factors().subspan(m.q_at, m.matrix.q_size(rank_)); }
  Stage summed(std::size_t n) { return {&sum_, in_place(core::Element::f32, factor_.first(n * sizeof(float)))}; }

  std::size_t rank_;
  float ranks_;
  std::span<std::byte> factor_;
  Collective& sum_;
  TensorCalls tensors_;
  std::vector<Member> members_;
  std::vector<const Call*> dense_;       ///< they travel with the first factors
  std::size_t p_size_ = 0, q_size_ = 0;  ///< of all members
  std::size_t dense_size_ = 0;
  Step step_ = Step::p;
  std::vector<float> p_;                             ///< all members', summed
  std::map<std::size_t, std::vector<float>> bases_;  ///< Q, by the tensor's place in all that is exchanged
};

}  // namespace

std::string power_sgd_tensor_refusal(const CodedRequest& r, const TensorPart& t) {
  const compression::Matrix m = matrix_of(t);
  const std::size_t rank = compression::rank_of(r.codec.parsed);
  if (auto why = compression::low_rank_refusal(m, rank); !why.empty()) return why;
  if (compression::low_rank_pays(m.rows, m.columns, rank)) return {};
  return fmt::format("rank {} shrinks a matrix of {} x {} less than 2x: it goes dense", rank, m.rows, m.columns);
}

std::size_t power_sgd_arena_bytes(const CodedRequest& r, std::uint32_t rank) {
  return memory_bytes(r) + 2 * arena_slack + r.algorithm.arena_bytes(r.shape, rank, r.inner(memory_bytes(r)));
}

CallParts power_sgd_parts(const CodedRequest& r, std::span<const TensorPart> pack) {
  const std::size_t rank = compression::rank_of(r.codec.parsed);
  std::size_t p = 0, q = 0;
  for (const TensorPart& t : pack) {
    const compression::Matrix m = matrix_of(t);
    const bool dense = is_dense(t, rank);
    p += dense ? t.count : m.p_size(rank);
    q += dense ? 0 : m.q_size(rank);
  }
  return {{.algorithm = r.algorithm_ptr(), .count = p}, {.algorithm = r.algorithm_ptr(), .count = q}};
}

std::unique_ptr<Collective> bind_power_sgd(const CodedRequest& r, const Site& site) {
  return std::make_unique<PowerSgd>(r, site);
}

}  // namespace gradmeter::allreduce
