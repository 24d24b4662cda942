#include "dataparallel/strategies/block_averaging.hpp"

#include <algorithm>
#include <optional>

#include "core/error.hpp"
#include "core/format.hpp"
#include "dataparallel/buckets.hpp"
#include "dataparallel/optimizers/outer.hpp"
#include "dataparallel/strategies/block_period.hpp"
#include "kernels/loops.hpp"

namespace gradmeter::dataparallel {
namespace {

/// What becomes of the state of the run's optimizer when a block ends.
enum class InnerState : std::uint8_t { maintain, average, reset };

InnerState inner_state_of(const core::ParsedName& n) {
  const std::string& text = n.parameters.at("buffers");
  if (text == "maintain") return InnerState::maintain;
  if (text == "average") return InnerState::average;
  if (text == "reset") return InnerState::reset;
  throw core::UsageError(fmt::format("{}: buffers is '{}'; it must be maintain, average or reset", n.base, text));
}

class BlockAveraging final : public Strategy {
 public:
  /// Without an outer optimizer the next block begins with the mean: no state, no further pass over memory. Its mu
  /// below 0: 1 - 1/P.
  BlockAveraging(const StrategyOptions& o, std::unique_ptr<BlockPeriod> period, std::optional<OuterMomentum> outer,
                 InnerState inner = InnerState::maintain)
      : bucket_bytes_(o.bucket_bytes),
        period_(std::move(period)),
        outer_(outer),
        inner_(inner),
        averaged_buffers_(inner == InnerState::average ? make_optimizer(o.optimizer, {})->state().size() : 0) {}

  std::size_t period() const override { return period_->longest(); }
  std::size_t memory_bytes(const model::Model&, int) const override { return period_->memory_bytes(); }
  /// The anchor and the outer optimizer's velocity.
  std::size_t own_bytes(const model::Model& m, int) const override {
    return outer_ ? 2 * m.element_count() * sizeof(float) : 0;
  }

  void begin(Worker& w) override {
    Strategy::begin(w);
    period_->begin(w);
    if (!outer_) return;
    anchor_ = w.queue().device().allocate(core::Element::f32, w.parameters().count());
    w.queue().at_once(
        [&] { std::ranges::copy(w.parameters().values<float>(), anchor_.buffer.values<float>().begin()); });
    OuterMomentum o = *outer_;
    if (o.mu < 0) o.mu = 1.0f - 1.0f / static_cast<float>(w.ranks());
    optimizer_ = make_outer_momentum({.elements = w.parameters().count(), .device = w.queue().device()}, o);
  }

  model::PendingOutcome step(Worker& w, const model::Batch& batch, UpdateStep step) override {
    auto outcome = w.pass(batch);
    period_->take_loss(w, outcome, step.number);
    UpdateStep local = step;
    if (inner_ == InnerState::reset) local.number -= last_end_;
    // By the buckets of the control, so that only the exchange differs.
    for (const Bucket& b : make_buckets(w.model().tensors(), w.model().element_count(), bucket_bytes_)) {
      w.update(b.offset, b.count, local);
    }
    apart_ = !period_->ends_with(step.number);
    if (!apart_) come_together(w, step);
    return outcome;
  }

  void evaluation_weights(Worker& w, Buffer to) override {
    Strategy::evaluation_weights(w, to);
    // Not where weights are equal: their sum, divided again, would round.
    if (apart_ && w.ranks() > 1) w.fabric().wait(w.fabric().all_reduce(w.axis(), to, allreduce::Op::average));
  }

  Forecast predict(const ForecastInput& s) const override {
    return period_->predict(
        s, forecast_collective(s, allreduce::CollectiveKind::all_reduce, s.elements).times(1 + averaged_buffers_));
  }
  ReplicaWork replica_work(const ForecastInput& s) const override {
    return {.replica_floats = period_->replica_floats(), .updates = make_buckets(s.tensors, s.elements, bucket_bytes_)};
  }

 private:
  void come_together(Worker& w, UpdateStep step) {
    average(w, w.parameters());
    if (optimizer_) apply_outer(w, step);
    for (const Buffer& b : w.optimizer().state()) treat(w, b);
    period_->end_block(w, step.number);
    last_end_ = step.number;
  }

  static void average(Worker& w, const Buffer& values) {
    if (w.ranks() == 1) return;
    w.fabric().wait(w.fabric().all_reduce(w.axis(), values, allreduce::Op::average, w.fabric().record()));
  }

  void apply_outer(Worker& w, UpdateStep step) {
    const std::size_t n = w.parameters().count();
    runtime::Cost cost = optimizer_->cost(n);
    cost.flops += double(n);
    cost.bytes += 20.0 * double(n);
    w.queue().submit("outer", cost, [this, step, parameters = w.parameters()] {
      const auto p = parameters.values<float>();
      const auto anchor = runtime::ConstBuffer(anchor_.buffer).values<float>();
      for (std::size_t i = 0; i < p.size(); ++i) p[i] -= anchor[i];
      optimizer_->apply(anchor_.buffer, parameters, 0, step);
      kernels::loops().copy(anchor_.buffer, parameters);  // what the host saw of them is older than a device's update
    });
  }

  /// A buffer of the run's optimizer.
  void treat(Worker& w, const Buffer& b) const {
    if (inner_ == InnerState::reset) {
      w.queue().submit("outer.reset", {.flops = 0, .bytes = double(b.bytes())},
                       [b] { std::ranges::fill(b.values<float>(), 0.0f); });
    }
    if (inner_ != InnerState::average || w.ranks() == 1) return;
    w.queue().copy("outer.buffer", b, w.gradients());  // which are not needed any more, and in the fabric's memory
    average(w, w.gradients());
    w.queue().copy("outer.buffer", w.gradients(), b);
  }

  std::size_t bucket_bytes_;
  std::unique_ptr<BlockPeriod> period_;
  std::optional<OuterMomentum> outer_;
  InnerState inner_;
  std::size_t averaged_buffers_;
  std::uint64_t last_end_ = 0;  ///< the number of the last block's last step
  std::unique_ptr<Optimizer> optimizer_;
  runtime::OwnedBuffer anchor_;  ///< what the block began with
  bool apart_ = false;           ///< steps have been made since the workers were equal
};

std::uint64_t every_of(const core::ParsedName& n) { return core::count_parameter(n, "every", {1, 1u << 30}); }
float fraction(const core::ParsedName& n, std::string_view key, double least, double below) {
  return static_cast<float>(core::number_parameter(n, key, {least, below}));
}

}  // namespace

std::unique_ptr<Strategy> make_model_averaging(const core::ParsedName& n, const StrategyOptions& o) {
  const std::uint64_t start = core::count_parameter(n, "start", {0, std::uint64_t{1} << 40});
  return std::make_unique<BlockAveraging>(o, make_fixed_period(every_of(n), start), std::nullopt);
}

std::unique_ptr<Strategy> make_adacomm(const core::ParsedName& n, const StrategyOptions& o) {
  const LossPeriod rule{.every = every_of(n),
                        .interval = core::count_parameter(n, "interval", {1, 1u << 30}),
                        .gamma = core::number_parameter(n, "gamma", {0.01, 1})};
  return std::make_unique<BlockAveraging>(o, make_loss_period(rule), std::nullopt);
}

std::unique_ptr<Strategy> make_bmuf(const core::ParsedName& n, const StrategyOptions& o) {
  const OuterMomentum outer{.step = fraction(n, "zeta", 1e-6, 10),
                            .mu = n.parameters.at("mu") == "auto" ? -1.0f : fraction(n, "mu", 0, 1),
                            .nesterov = core::count_parameter(n, "nesterov", {0, 1}) == 1};
  return std::make_unique<BlockAveraging>(o, make_fixed_period(every_of(n)), outer);
}

std::unique_ptr<Strategy> make_slowmo(const core::ParsedName& n, const StrategyOptions& o) {
  const OuterMomentum outer{
      .step = fraction(n, "alpha", 1e-6, 10), .mu = fraction(n, "beta", 0, 1), .follows_step_size = true};
  return std::make_unique<BlockAveraging>(o, make_fixed_period(every_of(n)), outer, inner_state_of(n));
}

}  // namespace gradmeter::dataparallel
