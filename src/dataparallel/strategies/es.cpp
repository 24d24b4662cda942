#include "dataparallel/strategies/es.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "dataparallel/signs.hpp"

namespace gradmeter::dataparallel {
namespace {

/// A block of weights that stays in the cache while all pairs are added to it.
constexpr std::size_t stretch = 8192;

class EvolutionStrategy final : public Strategy {
 public:
  EvolutionStrategy(std::size_t pairs, float sigma, std::uint64_t seed) : pairs_(pairs), sigma_(sigma), seed_(seed) {}

  std::size_t memory_bytes(const model::Model&, int ranks) const override {
    return all_pairs(ranks) * sizeof(float) + memory_page_bytes;
  }
  /// The weights around which pairs are tried.
  std::size_t own_bytes(const model::Model& m, int) const override { return m.element_count() * sizeof(float); }

  void begin(Worker& w) override {
    Strategy::begin(w);
    gains_ = w.fabric().memory(all_pairs(w.ranks()));
    center_ = w.queue().device().allocate(core::Element::f32, w.model().element_count());
    runs_ = noise_runs(w.model().tensors(), stretch);
  }

  model::PendingOutcome step(Worker& w, const model::Batch& batch, UpdateStep step) override {
    w.queue().copy("keep", w.parameters(), center_.buffer);
    const std::size_t own = gains_.count() / static_cast<std::size_t>(w.ranks());
    const std::size_t first = own * static_cast<std::size_t>(w.rank());
    std::vector<Pair> pairs;
    for (std::size_t k = first; k < first + own; ++k)
      pairs.push_back({at(w, batch, noise(step, k), sigma_), at(w, batch, noise(step, k), -sigma_)});
    model::PendingOutcome mean(w.queue());
    w.queue().at_once([&] { compare(pairs, gains_.part(first, own).values<float>(), *mean.place()); });
    w.tell_replica(gains_.part(first, own));
    if (w.ranks() > 1) w.fabric().wait(w.fabric().all_gather(w.axis(), gains_));
    climb(w, step);
    return mean;
  }

  Forecast predict(const ForecastInput& s) const override {
    return forecast_collective(s, allreduce::CollectiveKind::all_gather, all_pairs(static_cast<int>(s.ranks)))
        .times(s.steps);
  }
  ReplicaWork replica_work(const ForecastInput& s) const override {
    const std::size_t own = all_pairs(static_cast<int>(s.ranks)) / s.ranks;
    return {.passes = 0, .forwards = 2 * own, .replica_floats = own};
  }

 private:
  /// At the weights plus and minus a draw of noise.
  struct Pair {
    model::PendingOutcome plus, minus;
  };
  /// The gain of each, and the mean of all outcomes.
  static void compare(std::span<const Pair> pairs, std::span<float> gains, model::Outcome& mean) {
    double loss = 0, correct = 0;
    for (std::size_t k = 0; k < pairs.size(); ++k) {
      const model::Outcome &plus = *pairs[k].plus.place(), &minus = *pairs[k].minus.place();
      gains[k] = static_cast<float>(minus.mean_loss() - plus.mean_loss());
      loss += plus.loss_sum + minus.loss_sum;
      correct += static_cast<double>(plus.correct + minus.correct);
      mean.samples = plus.samples;
    }
    const double evaluated = 2.0 * static_cast<double>(pairs.size());
    mean.loss_sum = loss / evaluated;
    mean.correct = static_cast<std::size_t>(std::lround(correct / evaluated));
  }

  std::size_t all_pairs(int ranks) const {
    const auto p = static_cast<std::size_t>(ranks);
    return (pairs_ + p - 1) / p * p;
  }
  NoiseName noise(UpdateStep step, std::size_t pair) const {
    return {.seed = seed_, .step = step.number, .member = static_cast<std::uint32_t>(pair)};
  }

  model::PendingOutcome at(Worker& w, const model::Batch& batch, NoiseName name, float distance) {
    const double n = static_cast<double>(w.parameters().count());
    w.queue().submit("disturb", {.flops = n, .bytes = 16.0 * n}, [this, name, distance, to = w.parameters()] {
      const auto p = to.values<float>();
      std::ranges::copy(center_.buffer.values<float>(), p.begin());
      add_signs(p, runs_, name, distance);
    });
    return w.model().forward(w.queue(), w.buffers(), batch);
  }

  void climb(Worker& w, UpdateStep step) {
    const double n = static_cast<double>(gains_.count()), elements = static_cast<double>(w.parameters().count());
    const float scale = step.size / (2.0f * static_cast<float>(n) * sigma_);
    w.queue().submit("update", {.flops = n * elements, .bytes = 12.0 * elements}, [=, this, to = w.parameters()] {
      const auto p = to.values<float>(), gains = gains_.values<float>();
      std::ranges::copy(center_.buffer.values<float>(), p.begin());
      for (std::size_t begin = 0, end = 0; begin < runs_.size(); begin = end) {
        for (std::size_t weights = 0; end < runs_.size() && weights < stretch; ++end) weights += runs_[end].count;
        const auto some = std::span<const NoiseRun>(runs_).subspan(begin, end - begin);
        for (std::size_t k = 0; k < gains.size(); ++k) add_signs(p, some, noise(step, k), scale * gains[k]);
      }
    });
  }

  std::size_t pairs_;
  float sigma_;
  std::uint64_t seed_;
  Buffer gains_ = runtime::no_floats;  ///< F+ - F- by pair, rank by rank
  runtime::OwnedBuffer center_;        ///< the weights that are perturbed
  std::vector<NoiseRun> runs_;         ///< and their places in the whole model, by which noise is drawn
};

}  // namespace

std::unique_ptr<Strategy> make_es(const core::ParsedName& n, const StrategyOptions& o) {
  const auto pairs = static_cast<std::size_t>(core::count_parameter(n, "pairs", {1, 1u << 20}));
  return std::make_unique<EvolutionStrategy>(pairs, static_cast<float>(core::number_parameter(n, "sigma", {1e-6, 100})),
                                             o.seed);
}

}  // namespace gradmeter::dataparallel
