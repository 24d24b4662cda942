// SPDX-License-Identifier: Apache-2.0
// Parameter servers: workers push gradients to servers that hold the weights in shards, and pull weights from them.
//
// A step makes a pass, pushes and pulls. With StrategyOptions.overlap, chunks leave as soon as the backward pass has
// announced their gradients. With push > 1, and where the codec clips gradients, they leave only after the pass.
//   ps-sync    a pull waits for the pushes of all workers, whose mean (summed in rank order) is applied as one step
//   ps-ssp     a pull waits until the slowest worker is at most `staleness` updates behind
//   ps-async   a pull never waits
// push=n: n gradients are summed before they are pushed; in steps without a pull the worker applies its own gradient.
// fetch=n: weights are pulled after every n-th step; with `staleness` also after a push that leaves the worker's
// weights too old for its next step, as in the paper's cache. scale=mean: a push is applied with the step size divided
// by P, so that P pushes move as far as one step of `sync`; scale=sum: with the whole step size, as in Downpour;
// scale=staleness: with the step size divided by the number of updates that the gradient missed. prefetch=1: the
// weights for the next step are requested before this step's pass, so they travel during the pass and lack this step's
// gradient.
#include <algorithm>
#include <numeric>
#include <vector>

#include "compression/codecs/dgc.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "dataparallel/server/service.hpp"
#include "dataparallel/strategy.hpp"

namespace gradmeter::dataparallel {
namespace {

struct PushPullPeriods {
  std::uint64_t push = 1, fetch = 1;
  bool prefetch = false;
  /// True if every step pushes and then pulls, so that the worker never changes its weights itself.
  bool pulls_what_it_pushes() const { return push == 1 && fetch == 1 && !prefetch; }
};

class ParameterServer final : public ServerStrategy {
 public:
  ParameterServer(const ServiceOptions& service, const PushPullPeriods& periods, bool overlap)
      : ServerStrategy(service), periods_(periods), overlap_(overlap), clip_(compression::clip_of(service.codec)) {}

  std::size_t period() const override { return std::lcm(periods_.push, periods_.fetch); }

  std::size_t fabric_bytes(const model::Model& m, int ranks) const override {
    const std::size_t accrued = periods_.push > 1 ? m.element_count() * sizeof(float) + memory_page_bytes : 0;
    return ServerStrategy::fabric_bytes(m, ranks) + accrued;
  }

  void begin(Worker& worker) override {
    ServerStrategy::begin(worker);
    if (periods_.push > 1) accrued_ = worker.fabric().memory(worker.gradients().count());
  }

  model::PendingOutcome step(Worker& worker, const model::Batch& batch, UpdateStep step) override {
    ServerClient& server_client = this->server_client();
    server_client.await_acknowledgements();  // this pass overwrites the gradients that were pushed
    const bool pushes = step.number % periods_.push == 0;
    const std::uint64_t next_clock = server_client.pushed() + (pushes ? 1 : 0);
    const bool pulls = step.number % periods_.fetch == 0 || too_old(next_clock);
    const bool pulls_after_push = pulls && pushes && !periods_.prefetch;
    if (pulls && periods_.prefetch) server_client.request(next_clock, 0);
    // The norm by which gradients are clipped needs all tensors, so nothing can be sent before the last is ready.
    const bool pushes_during_pass = pushes && overlap_ && periods_.push == 1 && clip_ == 0;
    const auto& tensors = worker.model().tensors();
    const auto push = [&](std::size_t i) {
      if (!pushes_during_pass) return;
      if (i == 0) server_client.begin_push(worker.gradients(), step.step_size, pulls_after_push);
      if (i + 1 < tensors.size()) server_client.announce_ready(tensors[i + 1].offset);
    };
    auto outcome = worker.pass(batch, push);
    if (clip_ > 0) worker.clip(clip_, workers(worker.ranks()));
    if (pushes && !pushes_during_pass) server_client.begin_push(accrue(worker), step.step_size, pulls_after_push);
    if (!pushes) accrue(worker);
    if (pushes)
      server_client.finish_push(periods_.pulls_what_it_pushes() ? worker.parameters() : runtime::empty_buffer);
    if (pulls && !pushes && !periods_.prefetch) server_client.request(server_client.pushed(), server_client.pushed());
    if (pulls) {
      server_client.fetch(worker.parameters());
    } else {
      worker.update(step);
    }
    if (pushes && periods_.push > 1) {
      server_client.await_acknowledgements();
      worker.queue().run_and_wait([&] { std::ranges::fill(accrued_.values<float>(), 0.0f); });
    }
    return outcome;
  }

  Forecast predict(const ForecastInput& input) const override {
    const std::uint64_t both = input.multiples_of(std::lcm(periods_.push, periods_.fetch));
    RequestCounts request_counts{.pushes = input.multiples_of(periods_.push),
                                 .pulls = input.multiples_of(periods_.fetch)};
    request_counts.separate_pulls = periods_.prefetch ? request_counts.pulls : request_counts.pulls - both;
    const std::uint64_t pushes_without_pull = request_counts.pushes - both;  // after which the weights may be too old
    if (options().staleness == Admission::unbounded || pushes_without_pull == 0) return forecast(input, request_counts);
    const Forecast fewest_pulls = forecast(input, request_counts);
    request_counts.pulls += pushes_without_pull;
    if (periods_.prefetch) request_counts.separate_pulls += pushes_without_pull;
    const Forecast most_pulls = forecast(input, request_counts);
    if (options().staleness == 0) return most_pulls;  // every push is followed by a pull
    Forecast between = fewest_pulls;                  // its lower bounds and its time are those of the fewest pulls
    between.bytes = most_pulls.bytes;
    between.messages = most_pulls.messages;
    between.upper_bound = most_pulls.bounds_from_above();
    between.exact = false;
    return between;
  }

 private:
  /// Returns the change to push: the gradient, or, with push=n, the sum of the gradients since the last push, to which
  /// it adds this one.
  ConstBuffer accrue(Worker& worker) {
    if (periods_.push == 1) return worker.gradients();
    const auto n = static_cast<double>(worker.gradients().count());
    worker.queue().submit("accrue", {n, 12 * n}, [to = accrued_, gradients = worker.gradients()] {
      const auto g = gradients.values<float>(), sum = to.values<float>();
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += g[i];
    });
    return accrued_;
  }

  PushPullPeriods periods_;
  bool overlap_;
  double clip_;                             ///< norm to which gradients are clipped; 0: they are not clipped
  Buffer accrued_ = runtime::empty_buffer;  ///< the sum of the gradients since the last push
};

constexpr core::CountRange period_range{1, 1'000'000};

PushPullPeriods periods_of(const core::ParsedName& name) {
  return {.push = count_parameter(name, "push", period_range),
          .fetch = count_parameter(name, "fetch", period_range),
          .prefetch = count_parameter(name, "prefetch", {0, 1}) == 1};
}

ChangeScale scale_of(const core::ParsedName& name) {
  const std::string& scale = name.parameters.at("scale");
  if (scale == "mean") return ChangeScale::mean;
  if (scale == "sum") return ChangeScale::sum;
  if (scale == "staleness") return ChangeScale::staleness;
  throw core::UsageError(fmt::format("{}: scale is '{}'; it must be mean, sum or staleness", name.base, scale));
}

ServiceOptions service_options(const StrategyOptions& o, std::uint64_t staleness, const StepRule& rule) {
  return {.servers = o.servers,
          .staleness = staleness,
          .optimizer = o.optimizer,
          .rule = rule,
          .codec = o.codec,
          .seed = o.seed};
}

std::unique_ptr<Strategy> make(const StrategyOptions& o, std::uint64_t staleness, const StepRule& rule,
                               const PushPullPeriods& periods = {}) {
  return std::make_unique<ParameterServer>(service_options(o, staleness, rule), periods, o.overlap);
}

}  // namespace

/// The strategies ps-*, and dc-asgd.
/// Bytes: M up with every push, M down with every pull; none between a worker and the server on its own rank. Time: at
/// least max(M/B, P·M/(S·B)) a step with S dedicated servers on links of bandwidth B, 2(P-1)M/(P·B) with servers on all
/// ranks. Memory: that of a server; of a worker M for weights that come while it computes, M with push > 1, and with
/// error feedback M, or 2M with `dgc`, which keeps momentum as well.
/// Source: Dean et al. (DistBelief, Downpour), NIPS 2012; Li et al., OSDI 2014; SSP: Ho et al., NIPS 2013;
/// scale=staleness and n-softsync: Zhang et al., "Staleness-aware Async-SGD", IJCAI 2016; backup workers: Chen et al.,
/// "Revisiting distributed synchronous SGD", 2016; DC-ASGD: Zheng et al., ICML 2017.
extern constinit const StrategyInfo ps_sync_strategy{
    .name = "ps-sync",
    .parameters = "servers=0",
    .rule = "servers apply the mean of all workers' gradients, whose pulls wait for it",
    .bytes_text = "M up, M down",
    .source = "Li et al., OSDI 2014",
    .communication = CommunicationPattern::client_server,
    .only_optimizer_changes_weights = true,
    .keeps_workers_equal = true,
    .make = [](const core::ParsedName&, const StrategyOptions& o) -> std::unique_ptr<Strategy> {
      return make(o, 0, {});
    }};

extern constinit const StrategyInfo ps_async_strategy{
    .name = "ps-async",
    .parameters = "fetch=1,prefetch=0,push=1,scale=mean,servers=0",
    .rule = "servers apply every worker's gradient when it comes; nobody waits",
    .bytes_text = "M/push up, M/fetch down",
    .source = "Dean et al., NIPS 2012",
    .communication = CommunicationPattern::client_server,
    .only_optimizer_changes_weights = true,
    .optimizer = "sgd",
    .step_size = 0.05f,
    .make = [](const core::ParsedName& name, const StrategyOptions& o) -> std::unique_ptr<Strategy> {
      return make(o, Admission::unbounded, {.scale = scale_of(name)}, periods_of(name));
    }};

extern constinit const StrategyInfo ps_ssp_strategy{
    .name = "ps-ssp",
    .parameters = "fetch=1,prefetch=0,push=1,scale=mean,servers=0,staleness=2",
    .rule = "as ps-async, but no step is on weights that lack updates older than `staleness`",
    .bytes_text = "M/push up, M/fetch down",
    .source = "Ho et al., NIPS 2013",
    .communication = CommunicationPattern::client_server,
    .only_optimizer_changes_weights = true,
    .optimizer = "sgd",
    .step_size = 0.05f,
    .make = [](const core::ParsedName& name, const StrategyOptions& o) -> std::unique_ptr<Strategy> {
      const std::uint64_t staleness = count_parameter(name, "staleness", {0, 1'000'000});
      return make(o, staleness, {.scale = scale_of(name)}, periods_of(name));
    }};

extern constinit const StrategyInfo ps_softsync_strategy{
    .name = "ps-softsync",
    .parameters = "n=1,servers=0",
    .rule = "as ps-async, but P/n gradients that come in turn make one step of their mean, of size 1/n",
    .bytes_text = "M up, M down",
    .source = "Zhang et al., IJCAI 2016",
    .communication = CommunicationPattern::client_server,
    .only_optimizer_changes_weights = true,
    .optimizer = "sgd",
    .step_size = 0.05f,
    .make = [](const core::ParsedName& name, const StrategyOptions& o) -> std::unique_ptr<Strategy> {
      return make(o, Admission::unbounded, {.softsync = static_cast<int>(count_parameter(name, "n", {1, 1'000'000}))});
    }};

extern constinit const StrategyInfo ps_backup_strategy{
    .name = "ps-backup",
    .parameters = "backups=1,servers=0",
    .rule = "as ps-sync, but the first P - backups gradients make a step and late ones are dropped",
    .bytes_text = "M up, M down",
    .source = "Chen et al. 2016",
    .communication = CommunicationPattern::client_server,
    .only_optimizer_changes_weights = true,
    .optimizer = "sgd",
    .step_size = 0.05f,
    .make = [](const core::ParsedName& name, const StrategyOptions& o) -> std::unique_ptr<Strategy> {
      return make(o, Admission::unbounded,
                  {.fresh_only = true, .backups = static_cast<int>(count_parameter(name, "backups", {0, 1'000'000}))});
    }};

extern constinit const StrategyInfo dc_asgd_strategy{
    .name = "dc-asgd",
    .parameters = "adaptive=0,decay=0.95,lambda=0.04,scale=mean,servers=0",
    .rule =
        "as ps-async, with gradients estimated at the servers' weights: g + lambda*g*g*(w - w read); adaptive=1 "
        "divides lambda by the root of g*g's running mean, and keeps its default of the constant form",
    .bytes_text = "M up, M down",
    .source = "Zheng et al., ICML 2017",
    .communication = CommunicationPattern::client_server,
    .only_optimizer_changes_weights = true,
    .optimizer = "sgd",
    .step_size = 0.05f,
    .make = [](const core::ParsedName& name, const StrategyOptions& o) -> std::unique_ptr<Strategy> {
      const CompensationPlan plan{.lambda = static_cast<float>(number_parameter(name, "lambda", {0, 1e6})),
                                  .adaptive = count_parameter(name, "adaptive", {0, 1}) == 1,
                                  .decay = static_cast<float>(number_parameter(name, "decay", {0, 1}))};
      return make(o, Admission::unbounded, {.scale = scale_of(name), .compensation = plan});
    }};

namespace {

class Easgd final : public ServerStrategy {
 public:
  Easgd(const ServiceOptions& service, std::uint64_t every, float beta)
      : ServerStrategy(service), every_(every), beta_(beta) {}

  std::size_t period() const override { return every_; }

  /// In addition, the fetched centre or the difference (`difference_`).
  std::size_t bytes_besides_fabric(const model::Model& m, int ranks) const override {
    return ServerStrategy::bytes_besides_fabric(m, ranks) + m.element_count() * sizeof(float);
  }

  void begin(Worker& worker) override {
    ServerStrategy::begin(worker);
    difference_.resize(worker.parameters().count());
  }

  model::PendingOutcome step(Worker& worker, const model::Batch& batch, UpdateStep step) override {
    const bool visits = step.number % every_ == 0;
    ServerClient& server_client = this->server_client();
    if (visits)
      server_client.request(server_client.pushed(), server_client.pushed());  // the centre travels during the pass
    auto outcome = worker.pass(batch);
    if (visits) attract(worker);
    worker.update(step);
    if (visits) push(server_client);
    return outcome;
  }

  Forecast predict(const ForecastInput& input) const override {
    const std::uint64_t visits = input.multiples_of(every_);
    return forecast(input, {.pushes = visits, .pulls = visits, .separate_pulls = visits});
  }

 private:
  /// Computes x -= d. The gradient, which was computed at x before this, is applied afterwards.
  void attract(Worker& worker) {
    server_client().await_acknowledgements();  // `difference_` still holds the last d, which was pushed
    server_client().fetch(difference_);
    const float alpha = beta_ / static_cast<float>(workers(worker.ranks()));
    const auto n = static_cast<double>(difference_.size());
    worker.queue().submit("easgd", {3 * n, 16 * n}, [this, alpha, parameters = worker.parameters()] {
      const auto x = parameters.values<float>();
      for (std::size_t i = 0; i < difference_.size(); ++i) {
        difference_[i] = alpha * (x[i] - difference_[i]);
        x[i] -= difference_[i];
      }
    });
  }

  void push(ServerClient& server_client) {
    server_client.begin_push(difference_, 1, false);
    server_client.finish_push();
  }

  std::uint64_t every_;
  float beta_;
  std::vector<float> difference_;  ///< the fetched centre c, then d
};

}  // namespace

/// Elastic averaging: workers train by themselves; their weights and a centre on the servers attract each other. In
/// every `every`-th step a worker pulls the centre c while it computes its gradient g(x). Then x <- x - d - step g(x)
/// with d = alpha (x - c) and alpha = beta/P, both terms computed at the old x; the servers add d to the centre. No
/// worker waits for another (the asynchronous form).
/// Bytes: 2M / every a step. Memory: that of a server, and 2M of a worker.
/// Source: Zhang, Choromanska and LeCun, "Deep learning with elastic averaging SGD", NIPS 2015, algorithm 1.
extern constinit const StrategyInfo easgd_strategy{
    .name = "easgd",
    .parameters = "beta=0.9,every=4,servers=0",
    .rule = "alone, every so many steps drawn to a centre: x -= d + step*g(x), c += d, d = beta/P (x - c)",
    .bytes_text = "2M/every",
    .source = "Zhang et al., NIPS 2015",
    .communication = CommunicationPattern::client_server,
    .make = [](const core::ParsedName& name, const StrategyOptions& o) -> std::unique_ptr<Strategy> {
      const ServiceOptions service{.servers = o.servers,
                                   .optimizer = "add",
                                   .rule = {.scale = ChangeScale::sum},
                                   .codec = o.codec,
                                   .seed = o.seed};
      return std::make_unique<Easgd>(service, count_parameter(name, "every", {1, 1'000'000}),
                                     static_cast<float>(number_parameter(name, "beta", {0, 1e6})));
    }};

}  // namespace gradmeter::dataparallel
