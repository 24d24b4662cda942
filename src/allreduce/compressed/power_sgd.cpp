#include "allreduce/compressed/power_sgd.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include "allreduce/compressed/difference.hpp"
#include "allreduce/compressed/staged.hpp"
#include "allreduce/compressed/state_values.hpp"
#include "compression/codecs/low_rank.hpp"
#include "core/format.hpp"

namespace gradmeter::allreduce {
namespace {

compression::Matrix matrix_of(const TensorPart& t) {
  if (t.rows == 0) return compression::square_matrix(t.count);
  return {.rows = t.rows, .columns = t.columns, .count = t.count};
}

/// What either factor takes, at most [bytes]: one side of such a tensor is at most half of its elements over the rank.
std::size_t factor_bytes(const CodedRequest& r) { return std::max<std::size_t>(r.options.max_bytes / 2, 64); }

class PowerSgd final : public Staged {
 public:
  PowerSgd(const CodedRequest& r, const Site& site)
      : Staged(r.algorithm.name, r.options.queue),
        rank_(compression::rank_of(r.codec.parsed)),
        ranks_(static_cast<float>(r.shape.ranks)),
        factor_(site.network.arena().take(factor_bytes(r))),
        sum_(add_part(r.algorithm.bind(site, r.inner(factor_bytes(r))))) {}

  std::unique_ptr<CodecState> take_state() override { return take_values(bases_); }
  void restore_state(std::unique_ptr<CodecState> state) override { restore_values(std::move(state), bases_); }

 private:
  enum class Step : std::uint8_t { p, q, done };

  void begin(const Call& call) override {
    call_ = call;
    matrix_ = matrix_of(call.tensor_layout.tensors.front());
    step_ = Step::p;
  }

  Stage next() override {
    switch (step_) {
      case Step::p:
        step_ = Step::q;
        encoding([this] { compression::multiply(matrix_, rank_, gradient(), basis(), values(matrix_.p_size(rank_))); });
        return summed(matrix_.p_size(rank_));
      case Step::q:
        step_ = Step::done;
        encoding([this] {
          const auto p = values(matrix_.p_size(rank_));
          compression::orthonormalise(matrix_, rank_, p);
          p_.assign(p.begin(), p.end());
          compression::multiply_transposed(matrix_, rank_, delta(), p_, values(matrix_.q_size(rank_)));
        });
        if (call_.tensor_layout.difference) local("difference", [this] { note_own(); });
        return summed(matrix_.q_size(rank_));
      case Step::done:
        decoding([this] { rebuild(); });
    }
    return {};
  }

  /// Records this rank's own part of the projection, on the basis that all ranks have found together.
  void note_own() {
    std::vector<float> sent(call_.count());
    compression::reconstruct(matrix_, rank_, p_, values(matrix_.q_size(rank_)), sent);
    note_sent(call_, ranks_, sent);
  }

  /// What this call compresses: the gradient plus the residual of earlier calls.
  std::span<const float> gradient() {
    const std::span<const float> x = call_.in.values<float>();
    if (float* residual = call_.encoding.worker_residual) {
      for (std::size_t i = 0; i < x.size(); ++i) residual[i] += x[i];
    }
    return delta();
  }
  std::span<const float> delta() const {
    const float* residual = call_.encoding.worker_residual;
    return residual ? std::span<const float>(residual, call_.count()) : call_.in.values<float>();
  }

  std::span<float> basis() {
    auto& q = bases_[call_.tensor_layout.first];
    if (q.size() != matrix_.q_size(rank_)) {
      q.resize(matrix_.q_size(rank_));
      compression::draw_first_q(matrix_, rank_, call_.encoding.seed, call_.encoding.tensor, q);
    }
    return q;
  }

  void rebuild() {
    const std::span<const float> sum = values(matrix_.q_size(rank_));
    const auto q = basis();
    // A basis with an infinity or a NaN would never become finite again.
    const bool sound = std::ranges::all_of(sum, [](float x) { return std::isfinite(x); });
    const std::span<float> out = call_.out.values<float>();
    std::ranges::copy(sum, q.begin());
    const float share = 1 / ranks_;
    if (call_.op == Op::average) {
      for (float& x : q) x *= share;
    }
    compression::reconstruct(matrix_, rank_, p_, q, out);
    if (float* residual = call_.encoding.worker_residual) {
      const float own = call_.op == Op::average ? 1 : share;
      for (std::size_t i = 0; i < out.size(); ++i) residual[i] = sound ? residual[i] - own * out[i] : 0;
    }
    if (!sound) bases_.erase(call_.tensor_layout.first);
  }

  std::span<float> values(std::size_t n) { return {reinterpret_cast<float*>(factor_.data()), n}; }
  Stage summed(std::size_t n) { return {&sum_, in_place(core::Element::f32, factor_.first(n * sizeof(float)))}; }

  std::size_t rank_;
  float ranks_;
  std::span<std::byte> factor_;
  Collective& sum_;
  Call call_{};
  compression::Matrix matrix_;
  Step step_ = Step::p;
  std::vector<float> p_;
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
  return factor_bytes(r) + 2 * arena_slack + r.algorithm.arena_bytes(r.shape, rank, r.inner(factor_bytes(r)));
}

CallParts power_sgd_parts(const CodedRequest& r, const TensorPart& t) {
  const compression::Matrix m = matrix_of(t);
  const std::size_t rank = compression::rank_of(r.codec.parsed);
  return {{.algorithm = r.algorithm_ptr(), .count = m.p_size(rank)},
          {.algorithm = r.algorithm_ptr(), .count = m.q_size(rank)}};
}

std::unique_ptr<Collective> bind_power_sgd(const CodedRequest& r, const Site& site) {
  return std::make_unique<PowerSgd>(r, site);
}

}  // namespace gradmeter::allreduce
