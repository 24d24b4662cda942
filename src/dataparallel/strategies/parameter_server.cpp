#include "dataparallel/strategies/parameter_server.hpp"

#include <algorithm>
#include <numeric>
#include <vector>

#include "compression/momentum_correction.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "dataparallel/server/strategy.hpp"

namespace gradmeter::dataparallel {
namespace {

struct PushPullPeriods {
  std::uint64_t push = 1, fetch = 1;
  bool prefetch = false;
  /// The worker itself never changes its weights.
  bool pulls_what_it_pushes() const { return push == 1 && fetch == 1 && !prefetch; }
};

class ParameterServer final : public ServerStrategy {
 public:
  ParameterServer(const ServiceOptions& service, const PushPullPeriods& h, bool overlap)
      : ServerStrategy(service), periods_(h), overlap_(overlap), clip_(compression::clip_of(service.codec)) {}

  std::size_t period() const override { return std::lcm(periods_.push, periods_.fetch); }

  std::size_t memory_bytes(const model::Model& m, int ranks) const override {
    const std::size_t accrued = periods_.push > 1 ? m.element_count() * sizeof(float) + memory_page_bytes : 0;
    return ServerStrategy::memory_bytes(m, ranks) + accrued;
  }

  void begin(Worker& w) override {
    ServerStrategy::begin(w);
    if (periods_.push > 1) accrued_ = w.fabric().memory(w.gradients().count());
  }

  model::PendingOutcome step(Worker& w, const model::Batch& batch, UpdateStep step) override {
    ServerClient& server_client = service_.server_client();
    server_client.await_acknowledgements();  // of the gradients that this pass writes over
    const bool pushes = step.number % periods_.push == 0;
    const std::uint64_t next_clock = server_client.pushed() + (pushes ? 1 : 0);
    const bool pulls = step.number % periods_.fetch == 0 || service_.too_old(next_clock);
    const bool pulls_after_push = pulls && pushes && !periods_.prefetch;
    if (pulls && periods_.prefetch) server_client.request(next_clock, 0);
    // The norm that clips is of all tensors: nothing can be sent before the last.
    const bool early = pushes && overlap_ && periods_.push == 1 && clip_ == 0;
    const auto& tensors = w.model().tensors();
    const auto push = [&](std::size_t i) {
      if (!early) return;
      if (i == 0) server_client.begin_push(w.gradients(), step.size, pulls_after_push);
      if (i + 1 < tensors.size()) server_client.ready(tensors[i + 1].offset);
    };
    auto outcome = w.pass(batch, push);
    if (clip_ > 0) clip(w);
    if (pushes && !early) server_client.begin_push(gathered(w), step.size, pulls_after_push);
    if (!pushes) gathered(w);
    if (pushes) server_client.finish_push(periods_.pulls_what_it_pushes() ? w.parameters() : runtime::no_floats);
    if (pulls && !pushes && !periods_.prefetch) server_client.request(server_client.pushed(), server_client.pushed());
    if (pulls) {
      server_client.fetch(w.parameters());
    } else {
      w.update(step);
    }
    if (pushes && periods_.push > 1) {
      server_client.await_acknowledgements();
      w.queue().at_once([&] { std::ranges::fill(accrued_.values<float>(), 0.0f); });
    }
    return outcome;
  }

  Forecast predict(const ForecastInput& s) const override {
    const std::uint64_t both = s.multiples_of(std::lcm(periods_.push, periods_.fetch));
    RequestCounts v{.pushes = s.multiples_of(periods_.push), .pulls = s.multiples_of(periods_.fetch)};
    v.requests = periods_.prefetch ? v.pulls : v.pulls - both;
    const std::uint64_t between = v.pushes - both;  // after which the weights may be too old
    if (service_.staleness() == Admission::unbounded || between == 0) return service_.forecast(s, v);
    Forecast seldom = service_.forecast(s, v);
    v.pulls += between;
    if (periods_.prefetch) v.requests += between;
    const Forecast often = service_.forecast(s, v);
    if (service_.staleness() == 0) return often;  // after every push
    seldom.bytes = often.bytes;
    seldom.messages = often.messages;
    seldom.most = often.bounds();
    seldom.known = false;
    return seldom;
  }

 private:
  void clip(Worker& w) {
    const auto n = static_cast<double>(w.gradients().count());
    w.queue().submit(
        "clip", {3 * n, 12 * n},
        [clip = clip_, gradients = w.gradients(), workers = static_cast<std::size_t>(service_.workers(w.ranks()))] {
          compression::clip_gradient(gradients.values<float>(), clip, workers);
        });
  }

  /// What is to be pushed: the gradient, or the sum of those since the last push.
  ConstBuffer gathered(Worker& w) {
    if (periods_.push == 1) return w.gradients();
    const auto n = static_cast<double>(w.gradients().count());
    w.queue().submit("accrue", {n, 12 * n}, [to = accrued_, gradients = w.gradients()] {
      const auto g = gradients.values<float>(), sum = to.values<float>();
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += g[i];
    });
    return accrued_;
  }

  PushPullPeriods periods_;
  bool overlap_;
  double clip_;                          ///< 0: none
  Buffer accrued_ = runtime::no_floats;  ///< gradients since the last push
};

constexpr core::CountRange counts{1, 1'000'000};

PushPullPeriods periods_of(const core::ParsedName& name) {
  return {.push = count_parameter(name, "push", counts),
          .fetch = count_parameter(name, "fetch", counts),
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

std::unique_ptr<Strategy> make_ps_sync(const core::ParsedName&, const StrategyOptions& o) { return make(o, 0, {}); }

std::unique_ptr<Strategy> make_ps_async(const core::ParsedName& name, const StrategyOptions& o) {
  return make(o, Admission::unbounded, {.scale = scale_of(name)}, periods_of(name));
}

std::unique_ptr<Strategy> make_ps_ssp(const core::ParsedName& name, const StrategyOptions& o) {
  const std::uint64_t staleness = count_parameter(name, "staleness", {0, 1'000'000});
  return make(o, staleness, {.scale = scale_of(name)}, periods_of(name));
}

std::unique_ptr<Strategy> make_ps_softsync(const core::ParsedName& name, const StrategyOptions& o) {
  return make(o, Admission::unbounded, {.softsync = static_cast<int>(count_parameter(name, "n", {1, 1'000'000}))});
}

std::unique_ptr<Strategy> make_ps_backup(const core::ParsedName& name, const StrategyOptions& o) {
  return make(o, Admission::unbounded,
              {.fresh_only = true, .backups = static_cast<int>(count_parameter(name, "backups", {0, 1'000'000}))});
}

std::unique_ptr<Strategy> make_dc_asgd(const core::ParsedName& name, const StrategyOptions& o) {
  const CompensationPlan plan{.lambda = static_cast<float>(number_parameter(name, "lambda", {0, 1e6})),
                              .adaptive = count_parameter(name, "adaptive", {0, 1}) == 1,
                              .decay = static_cast<float>(number_parameter(name, "decay", {0, 1}))};
  return make(o, Admission::unbounded, {.scale = scale_of(name), .compensation = plan});
}

}  // namespace gradmeter::dataparallel
