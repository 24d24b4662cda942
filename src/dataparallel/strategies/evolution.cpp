// SPDX-License-Identifier: Apache-2.0
#include "dataparallel/strategies/evolution.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <stdexcept>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "core/format.hpp"
#include "core/random.hpp"
#include "dataparallel/strategy.hpp"

namespace gradmeter::dataparallel {
namespace {

constexpr std::size_t word_bits = 32;

constexpr std::array<std::uint32_t, word_bits> make_masks() {
  std::array<std::uint32_t, word_bits> masks{};
  for (std::size_t i = 0; i < word_bits; ++i) masks[i] = 1u << i;
  return masks;
}
constexpr auto masks = make_masks();

/// Adds 32 signs. The number is fixed, and the sum is made in a copy, so that compilers can use vector instructions.
void add_word(float* values, std::uint32_t signs, float scale) {
  std::array<float, word_bits> sum;
  std::copy_n(values, word_bits, sum.begin());
  for (std::size_t i = 0; i < word_bits; ++i) sum[i] += (signs & masks[i]) != 0 ? scale : -scale;
  std::copy_n(sum.begin(), word_bits, values);
}

core::PhiloxBlock block(NoiseName n, std::size_t number) {
  // Part of the key, so that signs are independent of core::Random with the same seed, which draws initial weights and
  // batches.
  constexpr std::uint32_t purpose = 0x7369676e;  // "sign"
  const auto low = [](std::uint64_t x) { return static_cast<std::uint32_t>(x); };
  return core::philox4x32({low(number), n.member, low(n.step), low(n.step >> 32)},
                          {low(n.seed) ^ purpose, low(n.seed >> 32)});
}

/// The signs of one noise vector. Keeps the block of random bits that was used last.
class Signs {
 public:
  explicit Signs(NoiseName name) : name_(name) {}

  void add(float* values, std::size_t count, std::size_t first, float scale) {
    for (std::size_t i = 0; i < count;) {
      const std::size_t at = first + i, bit = at % word_bits, n = std::min(word_bits - bit, count - i);
      const std::uint32_t word = word_at(at);
      if (n == word_bits) {
        add_word(values + i, word, scale);
      } else {
        for (std::size_t k = 0; k < n; ++k) values[i + k] += (word & masks[bit + k]) != 0 ? scale : -scale;
      }
      i += n;
    }
  }

 private:
  std::uint32_t word_at(std::size_t place) {
    if (place / block_signs != number_) {
      number_ = place / block_signs;
      block_ = block(name_, number_);
    }
    return block_[place % block_signs / word_bits];
  }

  static constexpr std::size_t block_signs = 128;
  NoiseName name_;
  std::size_t number_ = SIZE_MAX;  ///< number of the block in `block_`
  core::PhiloxBlock block_{};
};

}  // namespace

void add_signs(std::span<float> values, NoiseName name, float scale, std::size_t first) {
  Signs(name).add(values.data(), values.size(), first, scale);
}

std::vector<NoiseRun> noise_runs(std::span<const model::Tensor> tensors, std::size_t longest) {
  std::vector<NoiseRun> runs;
  const auto add = [&](std::size_t at, std::size_t count, std::size_t first) {
    for (std::size_t i = 0; i < count; i += longest) {
      runs.push_back({.at = at + i, .count = std::min(longest, count - i), .first = first + i});
    }
  };
  for (const model::Tensor& t : tensors) {
    const model::WholePlace w = t.whole.columns > 0 ? t.whole : model::WholePlace{t.offset, t.count, t.count};
    if (w.columns == w.stride) {
      add(t.offset, t.count, w.first);
      continue;
    }
    for (std::size_t i = 0, row = 0; i < t.count; i += w.columns, ++row) {
      add(t.offset + i, w.columns, w.first + row * w.stride);
    }
  }
  return runs;
}

void add_signs(std::span<float> values, std::span<const NoiseRun> runs, NoiseName name, float scale) {
  Signs signs(name);
  for (const NoiseRun& r : runs) signs.add(values.data() + r.at, r.count, r.first, scale);
}

namespace {

/// The number of weights that stay in the cache while the noise of all pairs is added to them.
constexpr std::size_t cached_weights = 8192;

class EvolutionStrategies final : public Strategy {
 public:
  EvolutionStrategies(std::size_t pairs, float sigma, std::uint64_t seed) : pairs_(pairs), sigma_(sigma), seed_(seed) {}

  std::size_t fabric_bytes(const model::Model&, int ranks) const override {
    return all_pairs(ranks) * sizeof(float) + memory_page_bytes;
  }
  /// The bytes of the weights that are perturbed.
  std::size_t bytes_besides_fabric(const model::Model& m, int) const override {
    return m.element_count() * sizeof(float);
  }

  void begin(Worker& worker) override {
    Strategy::begin(worker);
    gains_ = worker.fabric().memory(all_pairs(worker.ranks()));
    center_ = worker.queue().device().allocate(core::Element::f32, worker.model().element_count());
    runs_ = noise_runs(worker.model().tensors(), cached_weights);
  }

  model::PendingOutcome step(Worker& worker, const model::Batch& batch, UpdateStep step) override {
    worker.queue().copy("keep", worker.parameters(), center_.buffer);
    const std::size_t own = gains_.count() / static_cast<std::size_t>(worker.ranks());
    const std::size_t first = own * static_cast<std::size_t>(worker.rank());
    std::vector<Pair> pairs;
    for (std::size_t k = first; k < first + own; ++k)
      pairs.push_back(
          {evaluate_at(worker, batch, noise(step, k), sigma_), evaluate_at(worker, batch, noise(step, k), -sigma_)});
    model::PendingOutcome mean(worker.queue());
    worker.queue().run_and_wait([&] { compare(pairs, gains_.part(first, own).values<float>(), *mean.place()); });
    worker.broadcast_to_replica(gains_.part(first, own));
    if (worker.ranks() > 1) worker.fabric().wait(worker.fabric().all_gather(worker.axis(), gains_));
    apply_estimate(worker, step);
    return mean;
  }

  Forecast predict(const ForecastInput& input) const override {
    return forecast_collective(input, allreduce::CollectiveKind::all_gather, all_pairs(static_cast<int>(input.ranks)))
        .times(input.steps);
  }
  ReplicaWork replica_work(const ForecastInput& input) const override {
    const std::size_t own = all_pairs(static_cast<int>(input.ranks)) / input.ranks;
    return {.training_passes = 0, .forward_only_passes = 2 * own, .replica_floats = own};
  }

 private:
  /// The outcomes of the model at the weights plus and minus a draw of noise.
  struct Pair {
    model::PendingOutcome plus, minus;
  };
  /// Computes F+ - F- of each pair (F is minus the mean loss), and the mean of all outcomes.
  static void compare(std::span<const Pair> pairs, std::span<float> gains, model::Outcome& mean) {
    double loss = 0, correct = 0;
    for (std::size_t k = 0; k < pairs.size(); ++k) {
      const model::Outcome &plus = *pairs[k].plus.place(), &minus = *pairs[k].minus.place();
      gains[k] = static_cast<float>(minus.mean_loss() - plus.mean_loss());
      loss += plus.loss_sum + minus.loss_sum;
      correct += static_cast<double>(plus.correct + minus.correct);
      mean.labels = plus.labels;
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

  model::PendingOutcome evaluate_at(Worker& worker, const model::Batch& batch, NoiseName name, float distance) {
    const double n = static_cast<double>(worker.parameters().count());
    worker.queue().submit("disturb", {.flops = n, .bytes = 16.0 * n}, [this, name, distance, to = worker.parameters()] {
      const auto p = to.values<float>();
      std::ranges::copy(center_.buffer.values<float>(), p.begin());
      add_signs(p, runs_, name, distance);
    });
    return worker.model().forward(worker.queue(), worker.buffers(), batch);
  }

  void apply_estimate(Worker& worker, UpdateStep step) {
    const double n = static_cast<double>(gains_.count()), elements = static_cast<double>(worker.parameters().count());
    const float scale = step.step_size / (2.0f * static_cast<float>(n) * sigma_);
    worker.queue().submit("update", {.flops = n * elements, .bytes = 12.0 * elements},
                          [=, this, to = worker.parameters()] {
                            const auto p = to.values<float>(), gains = gains_.values<float>();
                            std::ranges::copy(center_.buffer.values<float>(), p.begin());
                            for (std::size_t begin = 0, end = 0; begin < runs_.size(); begin = end) {
                              for (std::size_t weights = 0; end < runs_.size() && weights < cached_weights; ++end)
                                weights += runs_[end].count;
                              const auto block_runs = std::span<const NoiseRun>(runs_).subspan(begin, end - begin);
                              for (std::size_t k = 0; k < gains.size(); ++k)
                                add_signs(p, block_runs, noise(step, k), scale * gains[k]);
                            }
                          });
  }

  std::size_t pairs_;
  float sigma_;
  std::uint64_t seed_;
  Buffer gains_ = runtime::empty_buffer;  ///< F+ - F- of all pairs, rank by rank
  runtime::OwnedBuffer center_;           ///< the weights that are perturbed
  std::vector<NoiseRun> runs_;            ///< the weights' places in the whole model, by which noise is drawn
};

}  // namespace

/// Evolution strategies: a gradient is estimated from the losses at perturbed weights, and only scalars are sent.
/// Each rank evaluates its share of n pairs of models θ ± σε on its batch. F is minus the mean loss; F+ and F- are
/// those of a pair. The differences F+ - F- are gathered. Every rank draws all ε again and applies θ += a/(2nσ) Σ (F+ -
/// F-) ε in the order of the pairs, so all ranks hold equal bits; a is the step size. `pairs`: n, for all ranks
/// together, rounded up to a multiple of the ranks.
/// `step` returns the mean outcome of the perturbed models.
/// If a replica is on several ranks, one of them has the losses, and sends its share of the differences to the others.
/// Each rank draws ε by the places of its weights in the whole model, so the search is the same as with a replica on
/// one rank.
/// Bytes: those of an all-gather of n floats, and n/P floats to each other rank of a replica. Compute: 2n/P forward
/// passes a rank, and noise for n·M. The estimate's relative error is sqrt((d - 1)/n), with d weights, so step sizes
/// must be small. Source: Salimans et al., "Evolution strategies as a scalable alternative to reinforcement learning",
/// 2017, algorithm 2; antithetic pairs: section 2.1. For signs as noise see add_signs.
extern constinit const StrategyInfo es_strategy{
    .name = "es",
    .parameters = "pairs=8,sigma=0.02",
    .rule =
        "theta += a/(2 n sigma) sum (F+ - F-) eps, F as it is, without the paper's rank shaping; only "
        "scalars travel",
    .bytes_text = "(P-1)/P 4n for n pairs",
    .source = "Salimans et al. 2017",
    .communication = CommunicationPattern::collectives,
    .computes_other_work = true,
    .keeps_workers_equal = true,
    .optimizer = "",
    .step_size = 0.001f,
    .make = [](const core::ParsedName& name, const StrategyOptions& o) -> std::unique_ptr<Strategy> {
      const auto pairs = static_cast<std::size_t>(core::count_parameter(name, "pairs", {1, 1u << 20}));
      return std::make_unique<EvolutionStrategies>(
          pairs, static_cast<float>(core::number_parameter(name, "sigma", {1e-6, 100})), o.seed);
    }};

namespace {

constexpr std::size_t longest_run = 1 << 16;  // any length will do here

/// The parameters of `population`.
struct Search {
  std::size_t size = 0, survivors = 0;
  double mutation = 0, decay = 1;
  bool breeding = true;
  std::uint64_t seed = 1;
};

class Population final : public Strategy {
 public:
  explicit Population(const Search& s) : search_(s) {}

  std::size_t fabric_bytes(const model::Model& m, int ranks) const override {
    const std::size_t models = models_per_rank(ranks) + (ranks > 1 ? search_.survivors : 0);
    return models * (m.element_count() * sizeof(float) + memory_page_bytes) +
           (all_members(ranks) + ranking_floats()) * sizeof(float) + 2 * memory_page_bytes;
  }

  void begin(Worker& worker) override {
    const std::size_t own = models_per_rank(worker.ranks()), n = worker.model().element_count();
    first_ = own * static_cast<std::size_t>(worker.rank());
    losses_ = worker.fabric().memory(all_members(worker.ranks()));
    ranking_buffer_ = worker.fabric().memory(ranking_floats());
    runs_ = noise_runs(worker.model().tensors(), longest_run);
    const auto draw = [&](const Buffer& weights, std::size_t slot) {
      const std::uint64_t seed = core::Random(search_.seed, slot).bits(0);
      worker.model().initialise(worker.queue(), {.parameters = weights, .gradients = worker.gradients()}, seed);
    };
    for (std::size_t k = 0; k < own; ++k) draw(members_.emplace_back(worker.fabric().memory(n)), first_ + k);
    for (std::size_t k = 0; worker.ranks() > 1 && k < search_.survivors; ++k)
      remote_survivors_.push_back(worker.fabric().memory(n));
    ranking_ = {0};
    if (!owns(0)) draw(remote_survivors_.front(), 0);
    load_parameters(worker, members_.front());
  }

  model::PendingOutcome step(Worker& worker, const model::Batch& batch, UpdateStep step) override {
    const std::size_t shared_model = ranking_.front();
    std::vector<model::PendingOutcome> outcomes;
    for (const Buffer& m : members_) outcomes.push_back(evaluate(worker, batch, m));
    const auto shared = owns(shared_model) ? outcomes[shared_model - first_] : evaluate(worker, batch, survivor(0));
    const double shared_loss = shared.get().mean_loss();
    model::PendingOutcome best = outcomes.front();
    for (const auto& o : outcomes) {
      if (o.get().loss_sum < best.get().loss_sum) best = o;
    }
    const Buffer own = losses_.part(first_, members_.size());
    worker.queue().run_and_wait([&] {
      const auto losses = own.values<float>();
      for (std::size_t k = 0; k < losses.size(); ++k)
        losses[k] = static_cast<float>(outcomes[k].place()->mean_loss() - shared_loss);
    });
    worker.broadcast_to_replica(own);
    if (worker.ranks() > 1) worker.fabric().wait(worker.fabric().all_gather(worker.axis(), losses_));
    worker.queue().run_and_wait([&] { select(losses_.values<float>()); });
    broadcast_ranking(worker);
    fetch(worker, step.number);
    for (std::size_t k = 0; k < members_.size(); ++k) {
      if (!survives(first_ + k)) breed(worker, first_ + k, step.number);
    }
    return best;
  }

  void evaluation_weights(Worker& worker, Buffer to) override {
    const std::size_t best = ranking_.front();
    if (owns(best)) worker.queue().run_and_wait([&] { copy_values(members_[best - first_], to); });
    const int root = static_cast<int>(best / members_.size());
    if (worker.ranks() > 1) worker.fabric().wait(worker.fabric().broadcast(worker.axis(), to, root));
  }

  std::vector<WeightsInPlace> held_weights(const Worker&) const override {
    const std::size_t best = ranking_.front();
    if (!owns(best)) return {};
    return {{.first = 0, .values = members_[best - first_].values<float>()}};
  }

  Forecast predict(const ForecastInput& input) const override {
    if (input.ranks < 2) return {};
    const auto ranks = static_cast<int>(input.ranks);
    Forecast step = forecast_collective(input, allreduce::CollectiveKind::all_gather, all_members(ranks));
    step += forecast_collective(input, allreduce::CollectiveKind::broadcast, ranking_floats());
    // At most, each survivor is sent to every other rank; how many are sent depends on which ranks own them.
    const std::uint64_t models = search_.survivors * (input.ranks - 1), bytes = input.elements * sizeof(float);
    step += {.bytes = models * bytes,
             .messages = models,
             .seconds = wire_seconds(input, static_cast<double>(search_.survivors * bytes)),
             .exact = false,
             .upper_bound = true};
    return step.times(input.steps);
  }
  /// The passes of a rank that does not own the shared model; the owner does not evaluate it a second time.
  ReplicaWork replica_work(const ForecastInput& input) const override {
    const std::size_t own = models_per_rank(static_cast<int>(input.ranks));
    return {.training_passes = 0,
            .forward_only_passes = own + (input.ranks > 1 ? 1 : 0),
            .replica_floats = own + ranking_floats()};
  }

 private:
  static constexpr std::size_t ranking_copies = 3;  ///< number of copies of the ranking in one message
  std::size_t ranking_floats() const { return ranking_copies * search_.survivors; }
  std::size_t models_per_rank(int ranks) const {
    const auto p = static_cast<std::size_t>(ranks);
    return (search_.size + p - 1) / p;
  }
  std::size_t all_members(int ranks) const { return models_per_rank(ranks) * static_cast<std::size_t>(ranks); }
  bool owns(std::size_t slot) const { return slot >= first_ && slot < first_ + members_.size(); }
  bool survives(std::size_t slot) const { return std::find(ranking_.begin(), ranking_.end(), slot) != ranking_.end(); }

  static void copy_values(const Buffer& from, const Buffer& to) {
    std::ranges::copy(from.values<float>(), to.values<float>().begin());
  }

  static model::PendingOutcome evaluate(Worker& worker, const model::Batch& batch, const Buffer& member) {
    load_parameters(worker, member);
    return worker.model().forward(worker.queue(), worker.buffers(), batch);
  }

  static void load_parameters(Worker& worker, const Buffer& member) {
    worker.queue().copy("show", member, worker.parameters());
  }

  void select(std::span<const float> losses) {
    ranking_.resize(losses.size());
    std::iota(ranking_.begin(), ranking_.end(), std::size_t{0});
    const auto fitter = [&](std::size_t a, std::size_t b) {
      // a NaN counts as the worst loss, since comparisons with it give no order
      const float x = std::isnan(losses[a]) ? INFINITY : losses[a], y = std::isnan(losses[b]) ? INFINITY : losses[b];
      return x < y || (x == y && a < b);
    };
    std::sort(ranking_.begin(), ranking_.end(), fitter);
    ranking_.resize(search_.survivors);
  }

  /// Rank 0's ranking is used by all ranks. All have the same losses unless something is wrong. Ranks with different
  /// rankings would wait for different peers for ever, and the fault would not be reported. For the same reason the
  /// ranking is sent three times over, so that a majority corrects one wrong number.
  void broadcast_ranking(Worker& worker) {
    worker.queue().run_and_wait([&] { write_ranking(); });
    if (worker.ranks() > 1) worker.fabric().wait(worker.fabric().broadcast(worker.axis(), ranking_buffer_, 0));
    worker.queue().run_and_wait([&] {
      read_ranking();
      write_ranking();
    });
    worker.broadcast_to_replica(ranking_buffer_);
    worker.queue().run_and_wait([&] { read_ranking(); });
  }

  void write_ranking() {
    const auto slots_as_floats = ranking_buffer_.values<float>();
    for (std::size_t i = 0; i < slots_as_floats.size(); ++i)
      slots_as_floats[i] = static_cast<float>(ranking_[i % search_.survivors]);
  }
  void read_ranking() {
    const auto slots = static_cast<float>(losses_.count());
    const auto slots_as_floats = ranking_buffer_.values<float>();
    for (std::size_t i = 0; i < search_.survivors; ++i) {
      const float a = slots_as_floats[i], b = slots_as_floats[i + search_.survivors],
                  c = slots_as_floats[i + 2 * search_.survivors];
      const float majority = a == b || a == c ? a : b;
      ranking_[i] = majority >= 0 && majority < slots ? static_cast<std::size_t>(majority) : 0;
    }
  }

  /// The two parents of the child in a slot, as places among the survivors (best first). Without breeding both are the
  /// same.
  std::pair<std::size_t, std::size_t> parents(std::size_t slot, std::uint64_t step) const {
    const core::Random draw(search_.seed ^ 0x706172656e7473, step);  // a stream of its own, not that of initial weights
    const auto first = static_cast<std::size_t>(draw.below(2 * slot, search_.survivors));
    if (!search_.breeding) return {first, first};
    return {first, static_cast<std::size_t>(draw.below(2 * slot + 1, search_.survivors))};
  }

  /// True if that rank needs the survivor: to make a child from it, or because it is the best.
  bool needs_survivor(std::size_t survivor, std::size_t rank, std::uint64_t step) const {
    if (survivor == 0) return true;  // the next step's shared model
    const std::size_t own = members_.size();
    for (std::size_t slot = rank * own; slot < (rank + 1) * own; ++slot) {
      if (survives(slot)) continue;
      const auto [first, second] = parents(slot, step);
      if (first == survivor || second == survivor) return true;
    }
    return false;
  }

  /// Sends each survivor once to each rank that needs it. Survivors do not change meanwhile, and no work on them is
  /// under way, since the ranking has been waited for.
  void fetch(Worker& worker, std::uint64_t step) {
    const auto rank = static_cast<std::size_t>(worker.rank()), ranks = static_cast<std::size_t>(worker.ranks());
    std::vector<Ticket> tickets;
    for (std::size_t s = 0; s < ranking_.size() && ranks > 1; ++s) {
      const std::size_t owner = ranking_[s] / members_.size();
      if (owner != rank) {
        if (needs_survivor(s, rank, step)) {
          tickets.push_back(worker.fabric().receive(worker.axis(), static_cast<int>(owner), remote_survivors_[s]));
        }
        continue;
      }
      for (std::size_t to = 0; to < ranks; ++to) {
        if (to == rank || !needs_survivor(s, to, step)) continue;
        tickets.push_back(worker.fabric().send(worker.axis(), static_cast<int>(to), members_[ranking_[s] - first_]));
      }
    }
    for (const Ticket& t : tickets) worker.fabric().wait(t);
  }

  const Buffer& survivor(std::size_t s) const {
    return owns(ranking_[s]) ? members_[ranking_[s] - first_] : remote_survivors_[s];
  }

  void breed(Worker& worker, std::size_t slot, std::uint64_t step) {
    const Buffer& child = members_[slot - first_];
    const auto [first_parent, second_parent] = parents(slot, step);
    const auto distance = static_cast<float>(search_.mutation * std::pow(search_.decay, static_cast<double>(step - 1)));
    const NoiseName noise{.seed = search_.seed, .step = step, .member = static_cast<std::uint32_t>(slot)};
    const double n = static_cast<double>(child.count());
    worker.queue().submit(
        "breed", {.flops = 3.0 * n, .bytes = 20.0 * n},
        [this, noise, distance, child, first = survivor(first_parent), second = survivor(second_parent)] {
          const auto to = child.values<float>(), a = first.values<float>(), b = second.values<float>();
          for (std::size_t i = 0; i < to.size(); ++i) to[i] = 0.5f * (a[i] + b[i]);
          add_signs(to, runs_, noise, distance);
        });
  }

  Search search_;
  std::size_t first_ = 0;                 ///< this rank's slots are first_, first_ + 1, …
  std::vector<Buffer> members_;           ///< the models of this rank's slots
  std::vector<Buffer> remote_survivors_;  ///< by place among the survivors: copies of other ranks' models
  std::vector<NoiseRun> runs_;            ///< the weights' places in the whole model, by which noise is drawn
  /// The ranking in the form that is sent: slots as floats, in several copies.
  Buffer ranking_buffer_ = runtime::empty_buffer;
  Buffer losses_ =
      runtime::empty_buffer;  ///< by slot: the loss in the last step, minus the shared model's on the same samples
  std::vector<std::size_t> ranking_;  ///< slots of the survivors, best first; before the first step slot 0 alone
};

}  // namespace

/// Population search: the best of many models stay, and the others are replaced by children of the best.
/// `size` models (rounded up to a multiple of the ranks), equally many on each rank, begin with different random
/// weights. A step evaluates each model on its own rank's part of the batch. Ranks have different samples, whose
/// difficulty differs by more than models do. So each rank also evaluates one shared model (the best of the last step),
/// and models are compared by their loss minus the shared model's loss on the same samples. The `survivors` best models
/// stay where they are, by rank 0's ranking, which is sent to all ranks. Every other slot gets a child of survivors
/// that all ranks draw alike from the seed: with breeding=1 the mean of two survivors, otherwise a copy of one; in step
/// t (from 1) every weight of the child is perturbed by mutation·decay^(t-1) (add_signs). A survivor is sent once to
/// each rank that needs it, the best to all. Optimizer and step size are not used. `step` returns the outcome of this
/// rank's best model. The evaluation weights are the best model of the last step. If a replica is on several ranks, one
/// of them has the losses and sends them to the others; weights and noise are drawn by places in the whole model, and
/// each part of a survivor is sent among the ranks that hold this part. Bytes: those of an all-gather of `size` floats
/// and a broadcast of 3 · survivors floats, as many within replicas, and at most survivors · (P-1) · M for all ranks
/// together. Memory: (size/P + survivors) · M a rank. Source: truncation selection: Such et al., "Deep neuroevolution",
/// 2017, algorithm 1; intermediate recombination: Beyer & Schwefel, "Evolution strategies", Natural Computing 2002.
extern constinit const StrategyInfo population_strategy{
    .name = "population",
    .parameters = "breeding=1,decay=0.9998,mutation=0.005,size=16,survivors=4",
    .rule = "the best models of a set stay, mutated children of them take the others' places",
    .bytes_text = "(P-1)/P 4 size, and at most survivors M",
    .source = "Such et al. 2017; Beyer & Schwefel 2002",
    .communication = CommunicationPattern::collectives,
    .computes_other_work = true,
    .optimizer = "",
    .make = [](const core::ParsedName& name, const StrategyOptions& o) -> std::unique_ptr<Strategy> {
      const Search s{.size = core::count_parameter(name, "size", {2, 1u << 20}),
                     .survivors = core::count_parameter(name, "survivors", {1, 1u << 20}),
                     .mutation = core::number_parameter(name, "mutation", {1e-9, 100}),
                     .decay = core::number_parameter(name, "decay", {1e-3, 1.0000001}),
                     .breeding = core::count_parameter(name, "breeding", {0, 1}) == 1,
                     .seed = o.seed};
      if (s.survivors >= s.size) {
        throw core::UsageError(fmt::format(
            "population: {} survivors of {} leave no place for a child; take fewer survivors", s.survivors, s.size));
      }
      return std::make_unique<Population>(s);
    }};

}  // namespace gradmeter::dataparallel
