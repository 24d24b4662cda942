#include "dataparallel/strategies/gossip.hpp"

#include <algorithm>
#include <array>
#include <vector>

#include "dataparallel/strategies/graphs.hpp"

namespace gradmeter::dataparallel {
namespace {

/// Follows x in every message: its weight, padded to a cache line.
constexpr std::size_t tail = 16;

class Gossip final : public Strategy {
 public:
  Gossip(Peers peers, bool overlap) : peers_(peers), overlap_(overlap) {}

  std::size_t memory_bytes(const model::Model& m, int ranks) const override {
    return ranks == 1 ? 0 : buffers() * ((m.element_count() + tail) * sizeof(float) + memory_page_bytes);
  }

  void begin(Worker& w) override {
    Strategy::begin(w);
    if (w.ranks() == 1) return;
    elements_ = w.model().element_count();
    mine_ = w.fabric().memory(elements_ + tail);
    theirs_ = w.fabric().memory(elements_ + tail);
    if (!peers_.regular()) next_ = w.fabric().memory(elements_ + tail);
    w.queue().at_once([&] {
      const auto x = mine_.values<float>();
      std::ranges::copy(w.parameters().values<float>(), x.begin());
      x[elements_] = 1;
    });
  }

  model::PendingOutcome step(Worker& w, const model::Batch& batch, UpdateStep step) override {
    auto outcome = w.pass(batch);
    if (w.ranks() == 1) return w.update(step), outcome;
    take_in(w);  // before x changes: the peer may not have received it yet
    w.optimizer().update(w.queue(), mine_.part(0, elements_), w.gradients(), 0, step);
    push(w, step.number);
    if (!overlap_) take_in(w);
    w.queue().submit("de-bias", {.flops = double(elements_), .bytes = 8.0 * double(elements_)},
                     [from = mine_, to = w.parameters()] { divide(from.values<float>(), to.values<float>()); });
    return outcome;
  }

  /// What it receives is added in the next step, whether or not `settle` was called.
  void settle(Worker& w) override {
    if (!leaving_) return;
    if (arriving_) w.fabric().wait(arriving_);
    for (const int peer : more_) {
      Fabric& fabric = w.fabric();
      fabric.wait(overlap_ ? fabric.receive_of_last_step(w.axis(), peer, next_, fabric.record())
                           : fabric.receive(w.axis(), peer, next_, fabric.record()));
      add(w, next_, theirs_);
    }
    more_.clear();
    w.fabric().wait(leaving_);  // last: its receiver may be waiting for others first
  }
  void end(Worker& w) override { settle(w); }

  void evaluation_weights(Worker& w, Buffer to) override {
    if (w.ranks() == 1) return Strategy::evaluation_weights(w, to);
    w.queue().at_once([&] {
      const auto x = to.values<float>(), mine = mine_.values<float>(), theirs = theirs_.values<float>();
      for (std::size_t i = 0; i < elements_; ++i) x[i] = leaving_ ? mine[i] + theirs[i] : mine[i];
    });
    w.fabric().wait(w.fabric().all_reduce(w.axis(), to, allreduce::Op::average));
  }

  /// A part of the sum of all x may be in a message.
  std::vector<WeightsInPlace> held_weights(const Worker&) const override { return {}; }

  Forecast predict(const ForecastInput& s) const override {
    if (s.ranks < 2) return {};
    return forecast_messages(s, s.ranks, s.steps, s.steps * (s.elements + tail) * sizeof(float));
  }

 private:
  std::size_t buffers() const { return peers_.regular() ? 2 : 3; }

  /// Half is sent, the same half is kept.
  void push(Worker& w, std::uint64_t number) {
    const int ranks = w.ranks(), rank = w.rank();
    w.queue().submit("halve", {.flops = double(elements_), .bytes = 8.0 * double(elements_)}, [mine = mine_] {
      for (float& v : mine.values<float>()) v *= 0.5f;
    });
    more_ = peers_.to(rank, ranks, number);
    if (more_.empty()) {
      w.queue().at_once([&] { std::ranges::fill(theirs_.values<float>(), 0.0f); });
    } else {
      arriving_ = w.fabric().receive(w.axis(), more_.front(), theirs_, w.fabric().record());
      more_.erase(more_.begin());
    }
    leaving_ = w.fabric().send(w.axis(), peers_.of(rank, ranks, number), mine_, w.fabric().record());
  }

  void take_in(Worker& w) {
    if (!leaving_) return;
    settle(w);
    add(w, theirs_, mine_);
    arriving_ = leaving_ = nullptr;
  }

  void add(Worker& w, const Buffer& from, const Buffer& to) const {
    w.queue().submit("mix", {.flops = double(elements_), .bytes = 12.0 * double(elements_)}, [from, to] {
      const auto x = from.values<float>(), sum = to.values<float>();
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += x[i];
    });
  }

  /// z = x / weight, which follows x.
  static void divide(std::span<const float> x, std::span<float> z) {
    const float inverse = 1.0f / x[z.size()];  // a power of two on regular graphs, where nothing rounds
    for (std::size_t i = 0; i < z.size(); ++i) z[i] = x[i] * inverse;
  }

  Peers peers_;
  bool overlap_;
  std::size_t elements_ = 0;
  Buffer mine_ = runtime::no_floats;    ///< x, its weight, zeros
  Buffer theirs_ = runtime::no_floats;  ///< the sum of what others sent in the last step
  Buffer next_ = runtime::no_floats;    ///< where several send: a message that is yet to be added to theirs
  Ticket arriving_, leaving_;           ///< leaving: a step's messages have not been taken in yet
  std::vector<int> more_;               ///< who else sends in that step
};

}  // namespace

std::unique_ptr<Strategy> make_gossip(const core::ParsedName& n, const StrategyOptions& o) {
  constexpr std::array graphs{Graph::exponential, Graph::random, Graph::ring};
  return std::make_unique<Gossip>(Peers(graph_of(n, graphs), o.seed), core::count_parameter(n, "overlap", {0, 1}) == 1);
}

}  // namespace gradmeter::dataparallel
