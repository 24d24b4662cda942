#include "dataparallel/strategies/d_psgd.hpp"

#include <array>
#include <vector>

#include "dataparallel/strategies/graphs.hpp"

namespace gradmeter::dataparallel {
namespace {

class DPsgd final : public Strategy {
 public:
  DPsgd(Graph graph, bool overlap) : graph_(graph), overlap_(overlap) {}

  std::size_t memory_bytes(const model::Model& m, int ranks) const override {
    const auto others = static_cast<std::size_t>(most_neighbours(graph_, ranks));
    return others > 0 ? others * m.element_count() * sizeof(float) + memory_page_bytes : 0;
  }

  void begin(Worker& w) override {
    Strategy::begin(w);
    const auto others = static_cast<std::size_t>(most_neighbours(graph_, w.ranks()));
    if (others > 0) theirs_ = w.fabric().memory(others * w.parameters().count());
  }

  model::PendingOutcome step(Worker& w, const model::Batch& batch, UpdateStep step) override {
    const std::size_t others = exchange(w, step.number);
    if (!overlap_) wait(w);
    auto outcome = w.pass(batch);
    wait(w);
    if (others > 0) average(w, others);
    w.update(step);
    return outcome;
  }

  void evaluation_weights(Worker& w, Buffer to) override {
    Strategy::evaluation_weights(w, to);
    if (w.ranks() > 1) w.fabric().wait(w.fabric().all_reduce(w.axis(), to, allreduce::Op::average));
  }

  Forecast predict(const ForecastInput& s) const override {
    Forecast all;
    const int ranks = static_cast<int>(s.ranks);
    const std::uint64_t period = neighbour_period(graph_, ranks), past = s.first_step - 1;
    for (std::uint64_t number = 1; s.ranks > 1 && number <= period; ++number) {
      // How many of the steps have the same neighbours as step `number`.
      const auto until = [&](std::uint64_t step) { return (step + period - number) / period; };
      const std::uint64_t steps = until(past + s.steps) - until(past);
      std::uint32_t senders = 0;
      for (int r = 0; r < ranks; ++r) senders += neighbours(graph_, r, ranks, number).empty() ? 0 : 1;
      const std::uint64_t messages = steps * static_cast<std::uint64_t>(most_neighbours(graph_, ranks));
      all += forecast_messages(s, senders, messages, messages * s.elements * sizeof(float));
    }
    return all;
  }

 private:
  /// Begins to exchange weights, which nothing changes before `wait`. Returns with how many ranks.
  std::size_t exchange(Worker& w, std::uint64_t number) {
    const auto peers = neighbours(graph_, w.rank(), w.ranks(), number);
    const std::size_t n = w.parameters().count();
    const runtime::EventPtr ready = w.fabric().record();  // averages of the last step have been taken, and applied
    for (std::size_t i = 0; i < peers.size(); ++i)
      under_way_.push_back(w.fabric().receive(w.axis(), peers[i], theirs_.part(i * n, n), ready));
    for (const int peer : peers) under_way_.push_back(w.fabric().send(w.axis(), peer, w.parameters(), ready));
    return peers.size();
  }

  void wait(Worker& w) {
    for (const Ticket& t : under_way_) w.fabric().wait(t);
    under_way_.clear();
  }

  void average(Worker& w, std::size_t others) const {
    const auto n = static_cast<double>(w.parameters().count()), k = static_cast<double>(others);
    w.queue().submit("mix", {.flops = (k + 1) * n, .bytes = 4 * (3 * k + 2) * n},
                     [own = w.parameters(), theirs = theirs_, others] {
                       const auto x = own.values<float>(), all = theirs.values<float>();
                       for (std::size_t j = 0; j < others; ++j) {
                         const auto other = all.subspan(j * x.size(), x.size());
                         for (std::size_t i = 0; i < x.size(); ++i) x[i] += other[i];
                       }
                       const float part = 1.0f / static_cast<float>(others + 1);
                       for (float& v : x) v *= part;
                     });
  }

  Graph graph_;
  bool overlap_;
  Buffer theirs_ = runtime::no_floats;  ///< the neighbours' weights, one after the other
  std::vector<Ticket> under_way_;
};

}  // namespace

std::unique_ptr<Strategy> make_d_psgd(const core::ParsedName& n, const StrategyOptions& o) {
  constexpr std::array graphs{Graph::hypercube, Graph::ring};
  return std::make_unique<DPsgd>(graph_of(n, graphs), o.overlap);
}

}  // namespace gradmeter::dataparallel
