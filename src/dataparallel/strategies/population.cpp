#include "dataparallel/strategies/population.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>

#include "core/error.hpp"
#include "core/format.hpp"
#include "core/random.hpp"
#include "dataparallel/signs.hpp"

namespace gradmeter::dataparallel {
namespace {

constexpr std::size_t longest_run = 1 << 16;  // any: runs are of no size that matters here

struct Search {
  std::size_t size = 0, survivors = 0;
  double mutation = 0, decay = 1;
  bool breeding = true;
  std::uint64_t seed = 1;
};

/// Places among the survivors, best first. Without breeding both are the same.
struct Parents {
  std::size_t first, second;
};

class Population final : public Strategy {
 public:
  explicit Population(const Search& s) : s_(s) {}

  std::size_t memory_bytes(const model::Model& m, int ranks) const override {
    const std::size_t models = per_rank(ranks) + (ranks > 1 ? s_.survivors : 0);
    return models * (m.element_count() * sizeof(float) + memory_page_bytes) +
           (all_members(ranks) + words()) * sizeof(float) + 2 * memory_page_bytes;
  }

  void begin(Worker& w) override {
    const std::size_t own = per_rank(w.ranks()), n = w.model().element_count();
    first_ = own * static_cast<std::size_t>(w.rank());
    losses_ = w.fabric().memory(all_members(w.ranks()));
    words_ = w.fabric().memory(words());
    runs_ = noise_runs(w.model().tensors(), longest_run);
    const auto draw = [&](const Buffer& weights, std::size_t slot) {
      const std::uint64_t seed = core::Random(s_.seed, slot).bits(0);
      w.model().initialise(w.queue(), {.parameters = weights, .gradients = w.gradients()}, seed);
    };
    for (std::size_t k = 0; k < own; ++k) draw(members_.emplace_back(w.fabric().memory(n)), first_ + k);
    for (std::size_t k = 0; w.ranks() > 1 && k < s_.survivors; ++k) remote_survivors_.push_back(w.fabric().memory(n));
    ranking_ = {0};
    if (!owns(0)) draw(remote_survivors_.front(), 0);
    show(w, members_.front());
  }

  model::PendingOutcome step(Worker& w, const model::Batch& batch, UpdateStep step) override {
    const std::size_t shared_model = ranking_.front();
    std::vector<model::PendingOutcome> outcomes;
    for (const Buffer& m : members_) outcomes.push_back(evaluate(w, batch, m));
    const auto shared = owns(shared_model) ? outcomes[shared_model - first_] : evaluate(w, batch, survivor(0));
    const double par = shared.get().mean_loss();
    model::PendingOutcome best = outcomes.front();
    for (const auto& o : outcomes) {
      if (o.get().loss_sum < best.get().loss_sum) best = o;
    }
    const Buffer own = losses_.part(first_, members_.size());
    w.queue().at_once([&] {
      const auto losses = own.values<float>();
      for (std::size_t k = 0; k < losses.size(); ++k)
        losses[k] = static_cast<float>(outcomes[k].place()->mean_loss() - par);
    });
    w.tell_replica(own);
    if (w.ranks() > 1) w.fabric().wait(w.fabric().all_gather(w.axis(), losses_));
    w.queue().at_once([&] { select(losses_.values<float>()); });
    agree(w);
    fetch(w, step.number);
    for (std::size_t k = 0; k < members_.size(); ++k) {
      if (!survives(first_ + k)) breed(w, first_ + k, step.number);
    }
    return best;
  }

  void evaluation_weights(Worker& w, Buffer to) override {
    const std::size_t best = ranking_.front();
    if (owns(best)) w.queue().at_once([&] { copy_values(members_[best - first_], to); });
    const int root = static_cast<int>(best / members_.size());
    if (w.ranks() > 1) w.fabric().wait(w.fabric().broadcast(w.axis(), to, root));
  }

  std::vector<WeightsInPlace> held_weights(const Worker&) const override {
    const std::size_t best = ranking_.front();
    if (!owns(best)) return {};
    return {{.first = 0, .values = members_[best - first_].values<float>()}};
  }

  Forecast predict(const ForecastInput& s) const override {
    if (s.ranks < 2) return {};
    const auto ranks = static_cast<int>(s.ranks);
    Forecast step = forecast_collective(s, allreduce::CollectiveKind::all_gather, all_members(ranks));
    step += forecast_collective(s, allreduce::CollectiveKind::broadcast, words());
    // At most each survivor to every other rank; how many depends on where they are.
    const std::uint64_t models = s_.survivors * (s.ranks - 1), bytes = s.elements * sizeof(float);
    step += {.bytes = models * bytes,
             .messages = models,
             .seconds = wire_seconds(s, static_cast<double>(s_.survivors * bytes)),
             .known = false,
             .most = true};
    return step.times(s.steps);
  }
  /// With the shared model, which the rank that owns it evaluates only once.
  ReplicaWork replica_work(const ForecastInput& s) const override {
    const std::size_t own = per_rank(static_cast<int>(s.ranks));
    return {.passes = 0, .forwards = own + (s.ranks > 1 ? 1 : 0), .replica_floats = own + words()};
  }

 private:
  static constexpr std::size_t copies = 3;  ///< of the ranking, when it travels
  std::size_t words() const { return copies * s_.survivors; }
  std::size_t per_rank(int ranks) const {
    const auto p = static_cast<std::size_t>(ranks);
    return (s_.size + p - 1) / p;
  }
  std::size_t all_members(int ranks) const { return per_rank(ranks) * static_cast<std::size_t>(ranks); }
  bool owns(std::size_t slot) const { return slot >= first_ && slot < first_ + members_.size(); }
  bool survives(std::size_t slot) const { return std::find(ranking_.begin(), ranking_.end(), slot) != ranking_.end(); }

  static void copy_values(const Buffer& from, const Buffer& to) {
    std::ranges::copy(from.values<float>(), to.values<float>().begin());
  }

  static model::PendingOutcome evaluate(Worker& w, const model::Batch& batch, const Buffer& member) {
    show(w, member);
    return w.model().forward(w.queue(), w.buffers(), batch);
  }

  static void show(Worker& w, const Buffer& member) { w.queue().copy("show", member, w.parameters()); }

  void select(std::span<const float> losses) {
    ranking_.resize(losses.size());
    std::iota(ranking_.begin(), ranking_.end(), std::size_t{0});
    const auto fitter = [&](std::size_t a, std::size_t b) {
      // A NaN must not break the order.
      const float x = std::isnan(losses[a]) ? INFINITY : losses[a], y = std::isnan(losses[b]) ? INFINITY : losses[b];
      return x < y || (x == y && a < b);
    };
    std::sort(ranking_.begin(), ranking_.end(), fitter);
    ranking_.resize(s_.survivors);
  }

  /// Rank 0's ranking is used by all ranks. All have the same losses unless something is wrong. Ranks with different
  /// rankings would wait for different peers for ever, and the fault would not be reported. For the same reason the
  /// ranking is sent three times over, so that a majority corrects one wrong number.
  void agree(Worker& w) {
    w.queue().at_once([&] { write_ranking(); });
    if (w.ranks() > 1) w.fabric().wait(w.fabric().broadcast(w.axis(), words_, 0));
    w.queue().at_once([&] {
      read_ranking();
      write_ranking();
    });
    w.tell_replica(words_);
    w.queue().at_once([&] { read_ranking(); });
  }

  void write_ranking() {
    const auto words = words_.values<float>();
    for (std::size_t i = 0; i < words.size(); ++i) words[i] = static_cast<float>(ranking_[i % s_.survivors]);
  }
  void read_ranking() {
    const auto slots = static_cast<float>(losses_.count());
    const auto words = words_.values<float>();
    for (std::size_t i = 0; i < s_.survivors; ++i) {
      const float a = words[i], b = words[i + s_.survivors], c = words[i + 2 * s_.survivors];
      const float most = a == b || a == c ? a : b;
      ranking_[i] = most >= 0 && most < slots ? static_cast<std::size_t>(most) : 0;
    }
  }

  Parents parents(std::size_t slot, std::uint64_t step) const {
    const core::Random draw(s_.seed ^ 0x706172656e7473, step);  // apart from the streams of initial weights
    const auto first = static_cast<std::size_t>(draw.below(2 * slot, s_.survivors));
    if (!s_.breeding) return {first, first};
    return {first, static_cast<std::size_t>(draw.below(2 * slot + 1, s_.survivors))};
  }

  /// Does that rank need this survivor, to make a child of it?
  bool wanted(std::size_t survivor, std::size_t rank, std::uint64_t step) const {
    if (survivor == 0) return true;  // the next step's shared model
    const std::size_t own = members_.size();
    for (std::size_t slot = rank * own; slot < (rank + 1) * own; ++slot) {
      if (survives(slot)) continue;
      const Parents p = parents(slot, step);
      if (p.first == survivor || p.second == survivor) return true;
    }
    return false;
  }

  /// Survivors are sent once to each rank that wants them. They do not change meanwhile. No work is under way: the
  /// ranking has been waited for.
  void fetch(Worker& w, std::uint64_t step) {
    const auto rank = static_cast<std::size_t>(w.rank()), ranks = static_cast<std::size_t>(w.ranks());
    std::vector<Ticket> tickets;
    for (std::size_t s = 0; s < ranking_.size() && ranks > 1; ++s) {
      const std::size_t owner = ranking_[s] / members_.size();
      if (owner != rank) {
        if (wanted(s, rank, step)) {
          tickets.push_back(w.fabric().receive(w.axis(), static_cast<int>(owner), remote_survivors_[s]));
        }
        continue;
      }
      for (std::size_t to = 0; to < ranks; ++to) {
        if (to == rank || !wanted(s, to, step)) continue;
        tickets.push_back(w.fabric().send(w.axis(), static_cast<int>(to), members_[ranking_[s] - first_]));
      }
    }
    for (const Ticket& t : tickets) w.fabric().wait(t);
  }

  const Buffer& survivor(std::size_t s) const {
    return owns(ranking_[s]) ? members_[ranking_[s] - first_] : remote_survivors_[s];
  }

  void breed(Worker& w, std::size_t slot, std::uint64_t step) {
    const Buffer& child = members_[slot - first_];
    const Parents p = parents(slot, step);
    const auto distance = static_cast<float>(s_.mutation * std::pow(s_.decay, static_cast<double>(step - 1)));
    const NoiseName noise{.seed = s_.seed, .step = step, .member = static_cast<std::uint32_t>(slot)};
    const double n = static_cast<double>(child.count());
    w.queue().submit("breed", {.flops = 3.0 * n, .bytes = 20.0 * n},
                     [this, noise, distance, child, first = survivor(p.first), second = survivor(p.second)] {
                       const auto to = child.values<float>(), a = first.values<float>(), b = second.values<float>();
                       for (std::size_t i = 0; i < to.size(); ++i) to[i] = 0.5f * (a[i] + b[i]);
                       add_signs(to, runs_, noise, distance);
                     });
  }

  Search s_;
  std::size_t first_ = 0;                 ///< this rank's slots are first_, first_ + 1, …
  std::vector<Buffer> members_;           ///< this rank's
  std::vector<Buffer> remote_survivors_;  ///< by place among the survivors: those of other ranks
  std::vector<NoiseRun> runs_;            ///< the weights' places in the whole model, by which noise is drawn
  Buffer words_ = runtime::no_floats;     ///< the ranking on its way
  Buffer losses_ = runtime::no_floats;  ///< of all slots in the last step, less the shared model's on the same samples
  std::vector<std::size_t> ranking_;    ///< slots of the survivors, best first; before the first step slot 0 alone
};

}  // namespace

std::unique_ptr<Strategy> make_population(const core::ParsedName& n, const StrategyOptions& o) {
  const Search s{.size = core::count_parameter(n, "size", {2, 1u << 20}),
                 .survivors = core::count_parameter(n, "survivors", {1, 1u << 20}),
                 .mutation = core::number_parameter(n, "mutation", {1e-9, 100}),
                 .decay = core::number_parameter(n, "decay", {1e-3, 1.0000001}),
                 .breeding = core::count_parameter(n, "breeding", {0, 1}) == 1,
                 .seed = o.seed};
  if (s.survivors >= s.size) {
    throw core::UsageError(fmt::format(
        "population: {} survivors of {} leave no place for a child; take fewer survivors", s.survivors, s.size));
  }
  return std::make_unique<Population>(s);
}

}  // namespace gradmeter::dataparallel
