// SPDX-License-Identifier: Apache-2.0
#include "dataparallel/strategies/local_sgd.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>

#include "core/error.hpp"
#include "core/format.hpp"
#include "dataparallel/optimizers/optimizer.hpp"
#include "dataparallel/strategy.hpp"
#include "kernels/loops.hpp"

namespace gradmeter::dataparallel {
namespace {

/// The rule that says when workers that train apart average: here, after a fixed number of steps. Steps are counted
/// from 1. Each of the first `start` steps is a block of its own; later blocks have `every` steps.
class BlockPeriod {
 public:
  explicit BlockPeriod(std::uint64_t every, std::uint64_t start = 0) : every_(every), start_(start) {}
  virtual ~BlockPeriod() = default;
  std::size_t longest() const { return every_; }  ///< the length of the longest block [steps]
  /// The most bytes that `begin` takes from the fabric.
  virtual std::size_t memory_bytes(int ranks) const { return (void)ranks, 0; }
  virtual std::size_t replica_floats() const { return 0; }  ///< as in ReplicaWork
  virtual void begin(Worker&) {}
  /// Called after each pass, by all ranks of all replicas.
  virtual void take_loss(Worker&, const model::PendingOutcome&, std::uint64_t step) { (void)step; }
  virtual bool ends_with(std::uint64_t step) const { return blocks_ended(step) != blocks_ended(step - 1); }
  /// Called after the exchange that ends a block. All earlier work is done then.
  virtual void end_block(Worker&, std::uint64_t step) { (void)step; }
  /// exchange: the forecast for the exchange at the end of one block.
  virtual Forecast predict(const ForecastInput& input, const Forecast& exchange) const {
    const std::uint64_t before = input.first_step - 1;
    return exchange.times(blocks_ended(before + input.steps) - blocks_ended(before));
  }

 private:
  /// The number of blocks that have ended after step n.
  std::uint64_t blocks_ended(std::uint64_t n) const {
    return std::min(n, start_) + (n > start_ ? (n - start_) / every_ : 0);
  }
  std::uint64_t every_, start_;
};

constexpr std::size_t averaged_floats = 2;  ///< length of the all-reduce of losses when the period may change

/// Blocks that get shorter as the loss falls (AdaComm).
class LossDrivenPeriod final : public BlockPeriod {
 public:
  explicit LossDrivenPeriod(AdaCommRule rule)
      : BlockPeriod(rule.every), rule_(rule), period_(rule.every), end_(rule.every) {}

  std::size_t memory_bytes(int ranks) const override {
    return (averaged_floats + 1 + static_cast<std::size_t>(ranks)) * sizeof(float) + 2 * memory_page_bytes;
  }
  std::size_t replica_floats() const override { return 1; }
  void begin(Worker& worker) override {
    losses_ = worker.fabric().memory(averaged_floats + 1);
    periods_ = worker.fabric().memory(static_cast<std::size_t>(worker.ranks()));
  }

  void take_loss(Worker& worker, const model::PendingOutcome& outcome, std::uint64_t step) override {
    const Buffer last = losses_.part(averaged_floats, 1);
    worker.queue().submit("loss", {}, [last, place = outcome.place()] {
      const auto to = last.values<float>();  // first: this waits for a device to compute the loss
      to[0] = static_cast<float>(place->mean_loss());
    });
    worker.broadcast_to_replica(last);
    worker.queue().submit("loss", {}, [step, losses = losses_] {
      const auto values = losses.values<float>();
      if (step == 1) values[0] = values[averaged_floats];
      values[1] += values[averaged_floats];
    });
  }

  bool ends_with(std::uint64_t step) const override { return step == end_; }

  void end_block(Worker& worker, std::uint64_t step) override {
    if (step - changed_ >= rule_.interval) change(worker, step);
    end_ = step + period_;
  }

  /// Exact as long as the period cannot have changed; after that an upper bound, with blocks of one step.
  Forecast predict(const ForecastInput& input, const Forecast& exchange) const override {
    const std::uint64_t exact_steps = (rule_.interval + rule_.every - 1) / rule_.every * rule_.every;
    const auto blocks = [&](std::uint64_t n) {
      return std::min(n, exact_steps) / rule_.every + (n > exact_steps ? n - exact_steps : 0);
    };
    const auto changes = [&](std::uint64_t n) { return n < exact_steps ? 0 : 1 + n - exact_steps; };
    const std::uint64_t before = input.first_step - 1, last = before + input.steps;
    Forecast forecast = exchange.times(blocks(last) - blocks(before));
    Forecast change = forecast_collective(input, allreduce::CollectiveKind::all_reduce, averaged_floats);
    change += forecast_collective(input, allreduce::CollectiveKind::all_gather, input.ranks);
    forecast += change.times(changes(last) - changes(before));
    if (input.ranks < 2 || last <= exact_steps) return forecast;
    const Forecast least = exchange.times(input.steps / rule_.every);
    forecast.least = least.least, forecast.least_of_one = least.least_of_one,
    forecast.least_between_nodes = least.least_between_nodes;
    forecast.upper_bound = forecast.bounds_from_above();
    forecast.exact = false;
    return forecast;
  }

 private:
  void change(Worker& worker, std::uint64_t step) {
    const Buffer means = losses_.part(0, averaged_floats);
    if (worker.ranks() > 1)
      worker.fabric().wait(worker.fabric().all_reduce(worker.axis(), means, allreduce::Op::average));
    worker.queue().run_and_wait([&] {
      const auto values = means.values<float>();
      period_ =
          rule_.next_block_steps(period_, double{values[0]}, double{values[1]} / static_cast<double>(step - changed_));
      values[1] = 0;
    });
    if (worker.ranks() > 1) compare_periods(worker, step);
    changed_ = step;
  }

  /// Ends the job if ranks have found different periods. Otherwise they would wait for ever, in exchanges that other
  /// ranks do not begin. Errors: WrongResult.
  void compare_periods(Worker& worker, std::uint64_t step) {
    const auto rank = static_cast<std::size_t>(worker.rank());
    worker.queue().run_and_wait([&] { periods_.part(rank, 1).values<float>()[0] = as_float(period_); });
    worker.fabric().wait(worker.fabric().all_gather(worker.axis(), periods_));
    std::size_t other = rank;
    worker.queue().run_and_wait([&] {
      const auto periods = periods_.values<float>();
      const auto found = std::ranges::find_if(periods, [&](float p) {
        return std::bit_cast<std::uint32_t>(p) != std::bit_cast<std::uint32_t>(as_float(period_));
      });
      if (found != periods.end()) other = static_cast<std::size_t>(found - periods.begin());
    });
    if (other == rank) return;
    throw core::WrongResult(fmt::format(
        "adacomm: after step {} ranks {} and {} have not found the same period, since an exchange gave them "
        "different mean losses or periods",
        step, rank, other));
  }

  /// The bits of a period (below 2^31) as a float, since collectives move floats.
  static float as_float(std::uint64_t period) { return std::bit_cast<float>(static_cast<std::uint32_t>(period)); }

  AdaCommRule rule_;
  std::uint64_t period_, end_;
  std::uint64_t changed_ = 0;  ///< the step after which the period was last chosen
  Buffer losses_ =
      runtime::empty_buffer;  ///< the loss of step 1; the sum of losses since `changed_`; the last step's loss
  Buffer periods_ = runtime::empty_buffer;  ///< the period of each rank
};

}  // namespace

std::uint64_t AdaCommRule::next_block_steps(std::uint64_t now, double first_loss, double loss) const {
  const double wanted = std::ceil(std::sqrt(loss / first_loss) * static_cast<double>(every));
  const double smaller = wanted < static_cast<double>(now) ? wanted : gamma * static_cast<double>(now);
  return std::max<std::uint64_t>(1, static_cast<std::uint64_t>(smaller));
}

namespace {

/// The treatment of the state of the run's optimizer when a block ends.
enum class InnerState : std::uint8_t { maintain, average, reset };

InnerState inner_state_of(const core::ParsedName& name) {
  const std::string& text = name.parameters.at("buffers");
  if (text == "maintain") return InnerState::maintain;
  if (text == "average") return InnerState::average;
  if (text == "reset") return InnerState::reset;
  throw core::UsageError(fmt::format("{}: buffers is '{}'; it must be maintain, average or reset", name.base, text));
}

class BlockAveraging final : public Strategy {
 public:
  /// outer: empty: the next block begins with the mean of the weights, without state or a further pass over memory.
  /// outer.mu below 0 means 1 - 1/P.
  BlockAveraging(const StrategyOptions& o, std::unique_ptr<BlockPeriod> period, std::optional<OuterMomentum> outer,
                 InnerState inner = InnerState::maintain)
      : Strategy(o.bucket_bytes),
        period_(std::move(period)),
        outer_(outer),
        inner_(inner),
        averaged_buffers_(inner == InnerState::average ? make_optimizer(o.optimizer, {})->state().size() : 0) {}

  std::size_t period() const override { return period_->longest(); }
  std::size_t fabric_bytes(const model::Model&, int ranks) const override { return period_->memory_bytes(ranks); }
  /// The anchor and the outer optimizer's velocity.
  std::size_t bytes_besides_fabric(const model::Model& m, int) const override {
    return outer_ ? 2 * m.element_count() * sizeof(float) : 0;
  }

  void begin(Worker& worker) override {
    Strategy::begin(worker);
    period_->begin(worker);
    if (!outer_) return;
    anchor_ = worker.queue().device().allocate(core::Element::f32, worker.parameters().count());
    worker.queue().run_and_wait(
        [&] { std::ranges::copy(worker.parameters().values<float>(), anchor_.buffer.values<float>().begin()); });
    OuterMomentum o = *outer_;
    if (o.mu < 0) o.mu = 1.0f - 1.0f / static_cast<float>(worker.ranks());
    optimizer_ = make_outer_momentum({.elements = worker.parameters().count(), .device = worker.queue().device()}, o);
  }

  model::PendingOutcome step(Worker& worker, const model::Batch& batch, UpdateStep step) override {
    auto outcome = worker.pass(batch);
    period_->take_loss(worker, outcome, step.number);
    UpdateStep local = step;
    if (inner_ == InnerState::reset) local.number -= last_end_;
    update_by_buckets(worker, local);
    diverged_ = !period_->ends_with(step.number);
    if (!diverged_) average_weights(worker, step);
    return outcome;
  }

  void evaluation_weights(Worker& worker, Buffer to) override {
    // Equal weights are not averaged, since their sum, divided again, would round.
    diverged_ ? mean_weights(worker, to) : Strategy::evaluation_weights(worker, to);
  }

  Forecast predict(const ForecastInput& input) const override {
    return period_->predict(
        input,
        forecast_collective(input, allreduce::CollectiveKind::all_reduce, input.elements).times(1 + averaged_buffers_));
  }
  ReplicaWork replica_work(const ForecastInput& input) const override {
    return {.replica_floats = period_->replica_floats(), .updates = buckets(input)};
  }

 private:
  void average_weights(Worker& worker, UpdateStep step) {
    worker.average(worker.parameters());
    if (optimizer_) apply_outer(worker, step);
    for (const Buffer& b : worker.optimizer().state()) handle_optimizer_state(worker, b);
    period_->end_block(worker, step.number);
    last_end_ = step.number;
  }

  void apply_outer(Worker& worker, UpdateStep step) {
    const std::size_t n = worker.parameters().count();
    runtime::Cost cost = optimizer_->cost(n);
    cost.flops += double(n);
    cost.bytes += 20.0 * double(n);
    worker.queue().submit("outer", cost, [this, step, parameters = worker.parameters()] {
      const auto p = parameters.values<float>();
      const auto anchor = runtime::ConstBuffer(anchor_.buffer).values<float>();
      for (std::size_t i = 0; i < p.size(); ++i) p[i] -= anchor[i];
      optimizer_->apply(anchor_.buffer, parameters, 0, step);
      // Not through `p`, a host view that may be older than a device's update.
      kernels::loops().copy(anchor_.buffer, parameters);
    });
  }

  /// b: one buffer of the state of the run's optimizer.
  void handle_optimizer_state(Worker& worker, const Buffer& b) const {
    if (inner_ == InnerState::reset) {
      worker.queue().submit("outer.reset", {.flops = 0, .bytes = double(b.bytes())},
                            [b] { std::ranges::fill(b.values<float>(), 0.0f); });
    }
    if (inner_ != InnerState::average || worker.ranks() == 1) return;
    worker.queue().copy("outer.buffer", b,
                        worker.gradients());  // the gradients are not needed any more, and lie in the fabric's memory
    worker.average(worker.gradients());
    worker.queue().copy("outer.buffer", worker.gradients(), b);
  }

  std::unique_ptr<BlockPeriod> period_;
  std::optional<OuterMomentum> outer_;
  InnerState inner_;
  std::size_t averaged_buffers_;
  std::uint64_t last_end_ = 0;  ///< number of the step that ended the last block
  std::unique_ptr<Optimizer> optimizer_;
  runtime::OwnedBuffer anchor_;  ///< the weights with which the block began
  bool diverged_ = false;        ///< true: workers have made steps since their weights were equal
};

std::uint64_t every_of(const core::ParsedName& name) { return core::count_parameter(name, "every", {1, 1u << 30}); }
float float_parameter(const core::ParsedName& name, std::string_view key, double least, double below) {
  return static_cast<float>(core::number_parameter(name, key, {least, below}));
}

}  // namespace

/// After every `every` local steps, w = mean(w). The first `start` steps are each a block of their own, as in
/// post-local SGD; for optimizers that are linear in the gradient that equals `sync`.
/// Bytes, also of bmuf and slowmo: those of an all-reduce over all weights, divided by `every`: 2(P-1)/P · M / every
/// for the ring. The evaluation weights, also of adacomm, bmuf and slowmo: the mean of the workers' current weights,
/// also within a block.
/// Source: McDonald et al., NAACL 2010; Su & Chen, "Experiments on parallel training of deep neural network using model
/// averaging", 2015; post-local: Lin et al., "Don't use large mini-batches, use local SGD", ICLR 2020.
extern constinit const StrategyInfo model_averaging_strategy{
    .name = "model-averaging",
    .parameters = "every=16,start=0",
    .rule = "w = mean(w) after every so many local steps; before `start` after each",
    .bytes_text = "2(P-1)/P M / every",
    .source = "McDonald et al. 2010; Su & Chen 2015; Lin et al., ICLR 2020",
    .communication = CommunicationPattern::collectives,
    .make = [](const core::ParsedName& name, const StrategyOptions& o) -> std::unique_ptr<Strategy> {
      const std::uint64_t start = core::count_parameter(name, "start", {0, std::uint64_t{1} << 40});
      return std::make_unique<BlockAveraging>(o, std::make_unique<BlockPeriod>(every_of(name), start), std::nullopt);
    }};

/// model-averaging whose blocks get shorter as the loss F falls. At the first end of a block at least `interval` steps
/// after the last change, the length of blocks becomes ceil(sqrt(F/F0)·every) steps if that is less than the present
/// length, otherwise gamma times the present length, but at least one step. F is the mean loss of all ranks' steps
/// since the last change, and F0 that of the first step, so all ranks have the same periods. The paper counts the time
/// between changes in seconds and takes the loss at that moment; here steps are counted, so that runs repeat. Step
/// sizes do not enter.
/// Bytes: at least those of model-averaging with the same `every`; once the period may have changed, `predict` gives an
/// upper bound, with blocks of one step. With each change 2 floats are averaged, and one float of each rank is
/// gathered: the period, which must be equal on all ranks. In each step, the rank of a replica that has the loss sends
/// it to the replica's other ranks. Source: Wang & Joshi, "Adaptive communication strategies to achieve the best
/// error-runtime trade-off in local-update SGD", MLSys 2019.
extern constinit const StrategyInfo adacomm_strategy{
    .name = "adacomm",
    .parameters = "every=16,gamma=0.5,interval=100",
    .rule =
        "model-averaging; `every` becomes ceil(sqrt(F/F0)*every), or gamma times it, as the loss F "
        "falls, after every "
        "`interval` steps (the paper's are seconds), with F the mean since the last change",
    .bytes_text = "2(P-1)/P M / period, which falls from `every` to 1",
    .source = "Wang & Joshi, MLSys 2019",
    .communication = CommunicationPattern::collectives,
    .make = [](const core::ParsedName& name, const StrategyOptions& o) -> std::unique_ptr<Strategy> {
      const AdaCommRule rule{.every = every_of(name),
                             .interval = core::count_parameter(name, "interval", {1, 1u << 30}),
                             .gamma = core::number_parameter(name, "gamma", {0.01, 1})};
      return std::make_unique<BlockAveraging>(o, std::make_unique<LossDrivenPeriod>(rule), std::nullopt);
    }};

/// Block-wise model update filtering: Δ = mean(w) - w0; v = mu·v + zeta·Δ; w = w0 + v, where w0 are the weights at the
/// beginning of the block. nesterov=1: w = w0 + zeta·Δ + mu·v, see make_outer_momentum. mu=auto: 1 - 1/P, the paper's
/// choice. Memory: 2M. Source: Chen & Huo, ICASSP 2016.
extern constinit const StrategyInfo bmuf_strategy{
    .name = "bmuf",
    .parameters = "every=16,mu=auto,nesterov=0,zeta=1",
    .rule = "d = mean(w) - w0; v = mu*v + zeta*d; w = w0 + v",
    .bytes_text = "2(P-1)/P M / every",
    .source = "Chen & Huo, ICASSP 2016",
    .communication = CommunicationPattern::collectives,
    .make = [](const core::ParsedName& name, const StrategyOptions& o) -> std::unique_ptr<Strategy> {
      const OuterMomentum outer{.step = float_parameter(name, "zeta", 1e-6, 10),
                                .mu = name.parameters.at("mu") == "auto" ? -1.0f : float_parameter(name, "mu", 0, 1),
                                .nesterov = core::count_parameter(name, "nesterov", {0, 1}) == 1};
      return std::make_unique<BlockAveraging>(o, std::make_unique<BlockPeriod>(every_of(name)), outer);
    }};

/// Slow momentum: u = beta·u + (w0 - x)/step; w = w0 - alpha·step·u, where x is the mean of the workers' weights and w0
/// the weights at the beginning of the block. `step` is the step size of the block's last step: if it changes between
/// blocks, u stays the same, and its share in w changes; if it changes within a block, the whole block counts as made
/// with the last one. buffers: what becomes of the optimizer's state (such as momentum) when a block ends, as in the
/// paper: each worker keeps its own (maintain), all workers take the mean (average, at the cost of an all-reduce for
/// each buffer), or the state is set to zero, and Adam's count of steps with it (reset). Memory: 2M. Source: Wang,
/// Tantia, Ballas & Rabbat, "SlowMo: improving communication-efficient distributed SGD with slow momentum", ICLR 2020,
/// algorithm 1.
extern constinit const StrategyInfo slowmo_strategy{
    .name = "slowmo",
    .parameters = "alpha=1,beta=0.6,buffers=maintain,every=16",
    .rule = "x = mean(w); u = beta*u + (w0 - x)/step; w = w0 - alpha*step*u",
    .bytes_text = "2(P-1)/P M / every, with buffers=average of its buffers too",
    .source = "Wang et al., ICLR 2020",
    .communication = CommunicationPattern::collectives,
    .make = [](const core::ParsedName& name, const StrategyOptions& o) -> std::unique_ptr<Strategy> {
      const OuterMomentum outer{.step = float_parameter(name, "alpha", 1e-6, 10),
                                .mu = float_parameter(name, "beta", 0, 1),
                                .follows_step_size = true};
      return std::make_unique<BlockAveraging>(o, std::make_unique<BlockPeriod>(every_of(name)), outer,
                                              inner_state_of(name));
    }};

namespace {

struct DilocoRule {
  std::uint64_t every = 1, fragments = 1, overlap = 0;
  float mix = 0;
  OuterMomentum outer = {};
};

/// A part of the weights that is exchanged at once.
struct Fragment {
  std::size_t offset = 0, count = 0;   ///< elements
  std::uint64_t first = 0, every = 1;  ///< its first block ends with step `first`, later ones every `every` steps
  /// The tensors, or parts of tensors, in the fragment, with offsets from the fragment's beginning.
  std::vector<allreduce::TensorPart> parts = {};
  allreduce::TensorLayout tensor_layout() const { return {.offset_in_step = offset, .tensors = parts}; }
  /// The number of blocks that have ended after step n.
  std::uint64_t blocks_ended(std::uint64_t n) const { return n < first ? 0 : 1 + (n - first) / every; }
  bool ends_with(std::uint64_t n) const { return n >= first && (n - first) % every == 0; }
};

/// Cuts the weights into fragments. A tensor that is cut is no longer taken as a matrix (for codecs).
std::vector<Fragment> fragments_of(std::span<const model::Tensor> tensors, std::size_t elements,
                                   const DilocoRule& rule) {
  std::vector<Fragment> out;
  for (std::uint64_t f = 0; f < rule.fragments; ++f) {
    const std::size_t begin = elements * f / rule.fragments, end = elements * (f + 1) / rule.fragments;
    out.push_back({.offset = begin,
                   .count = end - begin,
                   .first = rule.every - rule.every * f / rule.fragments,
                   .every = rule.every});
    for (const Bucket& bucket : make_buckets(tensors, elements, 0)) {
      for (const allreduce::TensorPart& t : bucket.parts) {
        const std::size_t at = std::max(t.offset, begin), last = std::min(t.offset + t.count, end);
        if (at >= last) continue;
        const bool whole = last - at == t.count;
        out.back().parts.push_back(
            {.offset = at - begin, .count = last - at, .rows = whole ? t.rows : 0, .columns = whole ? t.columns : 0});
      }
    }
  }
  return out;
}

class Diloco final : public Strategy {
 public:
  Diloco(const StrategyOptions& o, const DilocoRule& rule) : Strategy(o.bucket_bytes), codec_(o.codec), rule_(rule) {}

  std::string refusal(const Optimizer&, int) const override {
    if (codec_ && codec_->info->name == "dgc")
      return "codec dgc gathers gradients with their momentum, and changes of weights are none; use topk";
    if (codec_ && codec_->info->name == "powersgd" && rule_.fragments > 1)
      return "codec powersgd takes whole matrices, and fragments cut them; use fragments=1 or another codec";
    return {};
  }

  std::size_t period() const override { return rule_.every; }
  std::size_t fabric_bytes(const model::Model& m, int) const override {
    return rule_.overlap > 0 ? m.element_count() * sizeof(float) + memory_page_bytes : 0;
  }
  /// The anchor and the outer optimizer's velocity.
  std::size_t bytes_besides_fabric(const model::Model& m, int) const override {
    return 2 * m.element_count() * sizeof(float);
  }

  void begin(Worker& worker) override {
    Strategy::begin(worker);
    const std::size_t n = worker.parameters().count();
    runtime::Device& device = worker.queue().device();
    anchor_ = device.allocate(core::Element::f32, n);
    worker.queue().copy("outer.anchor", worker.parameters(), anchor_.buffer);
    optimizer_ = make_outer_momentum({.elements = n, .device = device}, rule_.outer);
    fragments_ = fragments_of(worker.model().tensors(), n, rule_);
    tickets_.resize(fragments_.size());
    // Without overlap the buffer of gradients can hold the changes, since the gradients of the step are used up.
    changes_ = rule_.overlap > 0 ? worker.fabric().memory(n) : worker.gradients();
  }

  model::PendingOutcome step(Worker& worker, const model::Batch& batch, UpdateStep step) override {
    auto outcome = worker.pass(batch);
    update_by_buckets(worker, step);
    for (std::size_t index = 0; index < fragments_.size(); ++index) {
      if (fragments_[index].ends_with(step.number)) exchange(worker, index);
    }
    for (std::size_t index = 0; index < fragments_.size(); ++index) {
      if (step.number > rule_.overlap && fragments_[index].ends_with(step.number - rule_.overlap))
        apply(worker, index, step);
    }
    diverged_ = rule_.fragments > 1 || rule_.overlap > 0 || !fragments_.front().ends_with(step.number);
    return outcome;
  }

  /// Waits for exchanges. Their results are applied when they are due, whether or not `settle` was called.
  void settle(Worker& worker) override {
    for (const Ticket& t : tickets_) {
      if (t) worker.fabric().wait(t);
    }
  }
  void end(Worker& worker) override { settle(worker); }

  void evaluation_weights(Worker& worker, Buffer to) override {
    // Equal weights are not averaged, since their sum, divided again, would round.
    diverged_ ? mean_weights(worker, to) : Strategy::evaluation_weights(worker, to);
  }

  Forecast predict(const ForecastInput& input) const override {
    const std::uint64_t before = input.first_step - 1;
    Forecast forecast;
    for (const Fragment& f : fragments_of(input.tensors, input.elements, rule_)) {
      forecast += forecast_all_reduce(input, f.count, f.tensor_layout())
                      .times(f.blocks_ended(before + input.steps) - f.blocks_ended(before));
    }
    return forecast;
  }

 private:
  void exchange(Worker& worker, std::size_t index) {
    const Fragment& part = fragments_[index];
    const auto n = static_cast<double>(part.count);
    const Buffer change = changes_.part(part.offset, part.count);
    worker.queue().submit("outer.change", {.flops = n, .bytes = 12 * n},
                          [change, weights = worker.parameters().part(part.offset, part.count),
                           anchor = anchor_.buffer.part(part.offset, part.count)] {
                            const auto d = change.values<float>(), x = weights.values<float>(),
                                       a = anchor.values<float>();
                            for (std::size_t i = 0; i < d.size(); ++i) d[i] = x[i] - a[i];
                          });
    if (worker.ranks() == 1) return;
    tickets_[index] = worker.fabric().all_reduce(worker.axis(), change, allreduce::Op::average,
                                                 worker.fabric().record(), part.tensor_layout());
  }

  void apply(Worker& worker, std::size_t index, UpdateStep step) {
    if (tickets_[index]) worker.fabric().wait(tickets_[index]);
    tickets_[index] = nullptr;
    const Fragment& part = fragments_[index];
    runtime::Cost cost = optimizer_->cost(part.count);
    cost.flops += 3 * static_cast<double>(part.count);
    cost.bytes += 12 * static_cast<double>(part.count);
    const float mix = rule_.overlap > 0 ? rule_.mix : 0;
    worker.queue().submit("outer", cost,
                          [this, step, mix, offset = part.offset, change = changes_.part(part.offset, part.count),
                           weights = worker.parameters().part(part.offset, part.count),
                           anchor = anchor_.buffer.part(part.offset, part.count)] {
                            optimizer_->apply(anchor, change, offset, step);
                            const auto x = weights.values<float>(), a = anchor.values<float>();
                            // With mix = 0 the weights are the anchor bit by bit, so all workers are equal.
                            for (std::size_t i = 0; i < x.size(); ++i)
                              x[i] = mix > 0 ? mix * x[i] + (1 - mix) * a[i] : a[i];
                          });
  }

  compression::CodecChoicePtr codec_;
  DilocoRule rule_;
  std::unique_ptr<Optimizer> optimizer_;
  runtime::OwnedBuffer anchor_;  ///< the weights with which the blocks of the fragments began
  std::vector<Fragment> fragments_;
  std::vector<Ticket> tickets_;             ///< by fragment: the exchange of its changes; null: none is under way
  Buffer changes_ = runtime::empty_buffer;  ///< the changes since the anchor; after the exchange, their mean
  bool diverged_ = false;                   ///< true: workers may have different weights
};

}  // namespace

/// Workers exchange the changes of their weights, part by part, and may train on during the exchange. The anchor a
/// holds the weights at the beginning of a block. When a block of `every` steps ends, the workers' changes w - a are
/// averaged, outer SGD with Nesterov momentum applies their mean to a, and w = a.
///
/// fragments=n: the weights are cut into n parts of equally many elements, whose blocks end every/n steps apart, so
/// that no step exchanges more than one part. The first blocks are shorter.
/// overlap=k, less than `every`: the changes are those at the end of the block, but their exchange may take the next k
/// steps. After these, a is updated and w = mix·w + (1 - mix)·a, which keeps the share `mix` of what the worker has
/// learned meanwhile. With k = 0, mix has no effect. With n and k this is algorithm 2 of Streaming DiLoCo.
/// The codec encodes the changes; what it loses is added to the next block's changes, by the codec's own error
/// feedback. Codec dgc is refused, because its momentum is that of gradients; so is powersgd with fragments, because
/// they cut its matrices.
///
/// Bytes: those of an all-reduce over all weights, with the codec, divided by `every`.
/// The evaluation weights: the mean of the workers' current weights.
/// Memory: 2M, with overlap 3M.
/// Source: Douillard et al., "DiLoCo: distributed low-communication training of language models", 2023; "Streaming
/// DiLoCo with overlapping communication", 2025.
extern constinit const StrategyInfo diloco_strategy{
    .name = "diloco",
    .parameters = "every=32,fragments=1,mix=0.5,mu=0.9,overlap=0,step=0.7",
    .rule = "inner steps alone, then outer Nesterov on the mean change, in `fragments` parts, `overlap` steps later",
    .bytes_text = "2(P-1)/P M / every",
    .source = "Douillard et al. 2023 and 2025",
    .communication = CommunicationPattern::changes,
    .optimizer = "adamw",
    .step_size = 0.001f,
    .make = [](const core::ParsedName& name, const StrategyOptions& o) -> std::unique_ptr<Strategy> {
      const auto number = [&](std::string_view key, core::NumberRange range) {
        return static_cast<float>(core::number_parameter(name, key, range));
      };
      const DilocoRule rule{
          .every = core::count_parameter(name, "every", {1, 1u << 30}),
          .fragments = core::count_parameter(name, "fragments", {1, 1024}),
          .overlap = core::count_parameter(name, "overlap", {0, 1u << 30}),
          .mix = number("mix", {0, 1}),
          .outer = {.step = number("step", {1e-6, 10}), .mu = number("mu", {0, 1}), .nesterov = true}};
      if (rule.overlap >= rule.every) {
        throw core::UsageError(
            fmt::format("{}: overlap is {}; a change must have come before the next block ends: take "
                        "less than every={}",
                        name.base, rule.overlap, rule.every));
      }
      return std::make_unique<Diloco>(o, rule);
    }};

}  // namespace gradmeter::dataparallel
