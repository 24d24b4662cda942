#include "dataparallel/strategies/gossip.hpp"

#include <bit>

#include "core/error.hpp"
#include "core/format.hpp"

namespace gradmeter::dataparallel {
namespace {

enum class Graph : std::uint8_t { exponential, ring };

Graph graph_of(const core::ParsedName& n) {
  const std::string& text = n.parameters.at("graph");
  if (text == "exponential") return Graph::exponential;
  if (text == "ring") return Graph::ring;
  throw core::UsageError(fmt::format("gossip: graph is '{}'; it must be exponential or ring", text));
}

/// Behind x in every message: its weight, and room up to a whole cache line.
constexpr std::size_t tail = 16;

class Gossip final : public Strategy {
 public:
  Gossip(Graph graph, bool overlap) : graph_(graph), overlap_(overlap) {}

  std::size_t memory_bytes(const model::Model& m, int ranks) const override {
    return ranks == 1 ? 0 : 2 * ((m.element_count() + tail) * sizeof(float) + memory_page_bytes);
  }

  void begin(Worker& w) override {
    Strategy::begin(w);
    if (w.ranks() == 1) return;
    elements_ = w.model().element_count();
    mine_ = w.fabric().memory(elements_ + tail);
    theirs_ = w.fabric().memory(elements_ + tail);
    const auto p = w.parameters().values<float>();
    std::copy(p.begin(), p.end(), mine_.begin());
    mine_[elements_] = 1;
  }

  model::Outcome step(Worker& w, const model::Batch& batch, UpdateStep step) override {
    const auto outcome = w.pass(batch);
    if (w.ranks() == 1) return w.update(step), outcome;
    take_in(w);  // before x changes: it may still be on its way to the peer
    w.optimizer().update(w, mine_.first(elements_), w.gradients(), 0, step);
    push(w, hop(step.number, w.ranks()));
    if (!overlap_) take_in(w);
    w.compute("de-bias", {.flops = double(elements_), .bytes = 8.0 * double(elements_)},
              [&] { divide(mine_, w.parameters().values<float>()); });
    return outcome;
  }

  void settle(Worker& w) override {
    if (!arriving_) return;
    w.fabric().wait(leaving_);
    w.fabric().wait(arriving_);  // it is added in the next step, whether or not somebody asked to settle
  }
  void end(Worker& w) override { settle(w); }

  void judged(Worker& w, Buffer to) override {
    if (w.ranks() == 1) return Strategy::judged(w, to);
    const auto z = to.values<float>();
    if (arriving_) {
      const float whole = 1.0f / (mine_[elements_] + theirs_[elements_]);
      for (std::size_t i = 0; i < elements_; ++i) z[i] = (mine_[i] + theirs_[i]) * whole;
    } else {
      divide(mine_, z);
    }
    w.fabric().wait(w.fabric().all_reduce(w.axis(), to, allreduce::Op::average));
  }

  Forecast predict(const Scene& s) const override {
    if (s.ranks < 2) return {};
    return forecast_messages(s, s.ranks, s.steps, s.steps * (s.elements + tail) * sizeof(float));
  }

 private:
  int hop(std::uint64_t number, int ranks) const {
    if (graph_ == Graph::ring) return 1;
    const auto levels = static_cast<unsigned>(std::bit_width(static_cast<unsigned>(ranks) - 1));
    return 1 << (number - 1) % levels;
  }

  /// Half is sent, the same half is kept.
  void push(Worker& w, int hop) {
    const int ranks = w.ranks(), rank = w.rank();
    w.compute("halve", {.flops = double(elements_), .bytes = 8.0 * double(elements_)}, [&] {
      for (float& v : mine_) v *= 0.5f;
    });
    arriving_ = w.fabric().receive(w.axis(), (rank + ranks - hop) % ranks, theirs_);
    leaving_ = w.fabric().send(w.axis(), (rank + hop) % ranks, mine_, w.fabric().record());
  }

  void take_in(Worker& w) {
    if (!arriving_) return;
    settle(w);
    w.compute("mix", {.flops = double(elements_), .bytes = 12.0 * double(elements_)}, [&] {
      for (std::size_t i = 0; i < mine_.size(); ++i) mine_[i] += theirs_[i];
    });
    arriving_ = leaving_ = nullptr;
  }

  void divide(std::span<const float> x, std::span<float> z) const {
    const float inverse = 1.0f / x[elements_];  // weights are powers of two on these graphs: nothing rounds
    for (std::size_t i = 0; i < elements_; ++i) z[i] = x[i] * inverse;
  }

  Graph graph_;
  bool overlap_;
  std::size_t elements_ = 0;
  std::span<float> mine_, theirs_;  ///< x, its weight, zeros; the last message
  Ticket arriving_, leaving_;       ///< both or none
};

}  // namespace

std::unique_ptr<Strategy> make_gossip(const core::ParsedName& n, const StrategyOptions&) {
  return std::make_unique<Gossip>(graph_of(n), core::count_parameter(n, "overlap", {0, 1}) == 1);
}

}  // namespace gradmeter::dataparallel
