#include "dataparallel/strategies/ad_psgd.hpp"

#include <array>
#include <utility>

#include "dataparallel/strategies/pairs.hpp"

namespace gradmeter::dataparallel {
namespace {

constexpr std::size_t word_floats = 16;  ///< of an all-reduce that only synchronises

class AdPsgd final : public Strategy {
 public:
  AdPsgd(std::uint64_t seed, bool overlap) : seed_(seed), overlap_(overlap) {}

  std::size_t memory_bytes(const model::Model& m, int ranks) const override {
    if (ranks == 1) return 0;
    const PairPlan plan(m.element_count(), ranks);
    return port_memory_bytes(plan.port_options(), ranks) + (plan.passive_elements() + word_floats) * sizeof(float) +
           2 * memory_page_bytes;
  }

  void begin(Worker& w) override {
    Strategy::begin(w);
    if (w.ranks() == 1) return;
    const PairPlan plan(w.parameters().count(), w.ranks());
    Ports ports = w.fabric().open(w.axis(), plan.port_options());
    word_ = w.fabric().memory(word_floats);
    if (is_active(w.rank())) {
      theirs_ = w.fabric().memory(plan.elements());
      active_ = std::make_unique<ActiveSide>(w.fabric(), std::move(ports.worker), plan, theirs_);
    } else {
      passive_ =
          std::make_shared<PassiveSide>(plan, std::move(ports.server), w, w.fabric().memory(plan.passive_elements()));
      background_task_ = w.fabric().launch([passive = passive_](ExecutionContext& f) { passive->run(f); });
    }
  }

  model::PendingOutcome step(Worker& w, const model::Batch& batch, UpdateStep step) override {
    ++updates_;
    if (active_) return active_step(w, batch, step);
    auto outcome = w.pass(batch);
    if (passive_) {
      passive_->update(w, step);
    } else {
      w.update(step);
    }
    return outcome;
  }

  /// Waits for all to call it, since only then no average is under way. No event: an average is done when its answer is
  /// sent, and the rank's own work comes first in its queue.
  void evaluation_weights(Worker& w, Buffer to) override {
    if (w.ranks() == 1) return Strategy::evaluation_weights(w, to);
    w.fabric().wait(w.fabric().all_reduce(w.axis(), word_, allreduce::Op::sum));
    if (passive_) {
      passive_->read(w, to);
    } else {
      Strategy::evaluation_weights(w, to);
    }
    w.fabric().wait(w.fabric().all_reduce(w.axis(), to, allreduce::Op::average));
  }

  /// Of an average that is under way only the passive rank has its part.
  std::vector<WeightsInPlace> held_weights(const Worker& w) const override {
    if (!passive_) return Strategy::held_weights(w);
    return {{.first = 0, .values = passive_->weights()}};
  }

  void end(Worker& w) override {
    if (active_) active_->disconnect();
    active_.reset();  // returns the memory of the last message to its sender
    if (!background_task_) return;
    background_task_->join();
    background_task_.reset();
    passive_->read(w, w.parameters());
  }

  Observations observed() const override {
    Observations o = passive_ ? passive_->observed() : Observations{};
    if (active_ || !passive_) o.staleness = {staleness_.begin(), staleness_.end()};
    o.updates = updates_;
    return o;
  }

  /// Passive ranks have answers for all active ones, of which there may be one more; how many each has is drawn.
  Forecast predict(const ForecastInput& s) const override {
    if (s.ranks < 2) return {};
    const auto ranks = static_cast<int>(s.ranks);
    const auto active = static_cast<std::uint32_t>(active_ranks(ranks)), passive = s.ranks - active;
    const std::uint64_t sent = s.steps * s.elements * sizeof(float);
    Forecast f = forecast_messages(s, 2 * active, s.steps * PairPlan(s.elements, ranks).chunks(), sent);
    f.least_of_one = active * sent / passive;
    f.seconds = wire_seconds(s, static_cast<double>(f.least_of_one));
    return f;
  }

 private:
  model::PendingOutcome active_step(Worker& w, const model::Batch& batch, UpdateStep step) {
    const int passive = drawn_passive(w.rank(), w.ranks(), step.number, seed_);
    if (overlap_) active_->begin(passive, updates_ - 1, w.parameters());
    auto outcome = w.pass(batch, [this](std::size_t) {
      if (overlap_) active_->poll();
    });
    if (!overlap_) active_->begin(passive, updates_ - 1, w.parameters());
    const bool averages = active_->finish();
    if (averages) average(w);
    ++staleness_[averages ? 1 : 0];
    w.update(step);
    return outcome;
  }

  void average(Worker& w) const {
    const auto n = static_cast<double>(w.parameters().count());
    w.queue().submit("mix", {.flops = 2 * n, .bytes = 12 * n}, [own = w.parameters(), theirs = theirs_] {
      const auto x = own.values<float>(), other = theirs.values<float>();
      for (std::size_t i = 0; i < x.size(); ++i) x[i] = (x[i] + other[i]) * 0.5f;
    });
  }

  std::uint64_t seed_;
  bool overlap_;
  std::uint64_t updates_ = 0;
  std::array<std::uint64_t, 2> staleness_{};  ///< of an active rank: updates with so many averages
  Buffer word_ = runtime::no_floats;
  Buffer theirs_ = runtime::no_floats;  ///< of an active rank: the other's weights
  std::unique_ptr<ActiveSide> active_;  ///< neither side: there is one rank
  std::shared_ptr<PassiveSide> passive_;
  std::unique_ptr<BackgroundTask> background_task_;  ///< destroyed first, which ends its task
};

}  // namespace

std::unique_ptr<Strategy> make_ad_psgd(const core::ParsedName&, const StrategyOptions& o) {
  return std::make_unique<AdPsgd>(o.seed, o.overlap);
}

}  // namespace gradmeter::dataparallel
