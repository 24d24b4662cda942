// SPDX-License-Identifier: Apache-2.0
#include "dataparallel/strategies/gossip.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <string_view>
#include <vector>

#include "compression/codec.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "dataparallel/strategy.hpp"

namespace gradmeter::dataparallel {
namespace {

constexpr std::array<std::string_view, 4> graph_names{"exponential", "hypercube", "random", "ring"};

/// ceil(log2 P), the number of powers of two below P; at least 1.
unsigned levels_of(int ranks) {
  return std::max(1u, static_cast<unsigned>(std::bit_width(static_cast<unsigned>(ranks) - 1)));
}

int power_of_step(int ranks, std::uint64_t number) { return 1 << (number - 1) % levels_of(ranks); }

}  // namespace

Graph graph_of(const core::ParsedName& name, std::span<const Graph> known) {
  const std::string& text = name.parameters.at("graph");
  std::vector<std::string_view> names;
  for (const Graph g : known) {
    names.push_back(graph_names.at(static_cast<std::size_t>(g)));
    if (text == names.back()) return g;
  }
  throw core::UsageError(
      fmt::format("{}: graph is '{}'; it must be one of {}", name.base, text, fmt::join(names, ", ")));
}

int PushTargets::distance_to_target(int ranks, std::uint64_t number) const {
  return graph_ == Graph::ring ? 1 : power_of_step(ranks, number);
}

int PushTargets::target_of(int rank, int ranks, std::uint64_t number) const {
  if (regular()) return (rank + distance_to_target(ranks, number)) % ranks;
  const compression::RandomDraw draw{.seed = seed_, .step = number, .rank = static_cast<std::uint32_t>(rank)};
  const auto others = static_cast<std::uint64_t>(ranks) - 1;
  return (rank + 1 + static_cast<int>(draw.key() % others)) % ranks;
}

std::vector<int> PushTargets::senders_to(int rank, int ranks, std::uint64_t number) const {
  if (regular()) return {(rank + ranks - distance_to_target(ranks, number)) % ranks};
  std::vector<int> out;
  for (int r = 0; r < ranks; ++r) {
    if (r != rank && target_of(r, ranks, number) == rank) out.push_back(r);
  }
  return out;
}

std::vector<int> neighbours(Graph graph, int rank, int ranks, std::uint64_t number) {
  if (ranks == 1) return {};
  if (graph == Graph::ring) {
    const int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
    return next == before ? std::vector{next} : std::vector{before, next};
  }
  const int other = rank ^ power_of_step(ranks, number);
  return other < ranks ? std::vector{other} : std::vector<int>{};
}

std::uint64_t neighbour_period(Graph graph, int ranks) { return graph == Graph::ring ? 1 : levels_of(ranks); }

int most_neighbours(Graph graph, int ranks) {
  if (graph != Graph::ring) return ranks > 1 ? 1 : 0;
  return ranks > 2 ? 2 : ranks - 1;
}

int drawn_passive(int rank, int ranks, std::uint64_t number, std::uint64_t seed) {
  const compression::RandomDraw draw{.seed = seed, .step = number, .rank = static_cast<std::uint32_t>(rank)};
  return 1 + 2 * static_cast<int>(draw.key() % static_cast<std::uint64_t>(ranks / 2));
}

namespace {

/// The floats behind x in every message: the weight of x, padded to a cache line.
constexpr std::size_t tail_floats = 16;

class Gossip final : public Strategy {
 public:
  Gossip(PushTargets targets, bool overlap) : targets_(targets), overlap_(overlap) {}

  std::size_t fabric_bytes(const model::Model& m, int ranks) const override {
    return ranks == 1 ? 0 : buffers() * ((m.element_count() + tail_floats) * sizeof(float) + memory_page_bytes);
  }

  void begin(Worker& worker) override {
    Strategy::begin(worker);
    if (worker.ranks() == 1) return;
    elements_ = worker.model().element_count();
    own_ = worker.fabric().memory(elements_ + tail_floats);
    received_ = worker.fabric().memory(elements_ + tail_floats);
    if (!targets_.regular()) next_ = worker.fabric().memory(elements_ + tail_floats);
    worker.queue().run_and_wait([&] {
      const auto x = own_.values<float>();
      std::ranges::copy(worker.parameters().values<float>(), x.begin());
      x[elements_] = 1;
    });
  }

  model::PendingOutcome step(Worker& worker, const model::Batch& batch, UpdateStep step) override {
    auto outcome = worker.pass(batch);
    if (worker.ranks() == 1) return worker.update(step), outcome;
    add_received(worker);  // also waits until the peer has received x, which changes now
    worker.optimizer().update(worker.queue(), own_.part(0, elements_), worker.gradients(), 0, step);
    push(worker, step.number);
    if (!overlap_) add_received(worker);
    worker.queue().submit(
        "de-bias", {.flops = double(elements_), .bytes = 8.0 * double(elements_)},
        [from = own_, to = worker.parameters()] { divide(from.values<float>(), to.values<float>()); });
    return outcome;
  }

  /// Waits for the messages of the last step. They are added to x in the next step, whether or not `settle` was called.
  void settle(Worker& worker) override {
    if (!leaving_) return;
    if (arriving_) worker.fabric().wait(arriving_);
    for (const int peer : further_senders_) {
      Fabric& fabric = worker.fabric();
      fabric.wait(overlap_ ? fabric.receive_of_last_step(worker.axis(), peer, next_, fabric.record())
                           : fabric.receive(worker.axis(), peer, next_, fabric.record()));
      add(worker, next_, received_);
    }
    further_senders_.clear();
    worker.fabric().wait(leaving_);  // last, since the receiver may first wait for other ranks
  }
  void end(Worker& worker) override { settle(worker); }

  void evaluation_weights(Worker& worker, Buffer to) override {
    if (worker.ranks() == 1) return Strategy::evaluation_weights(worker, to);
    worker.queue().run_and_wait([&] {
      const auto x = to.values<float>(), mine = own_.values<float>(), theirs = received_.values<float>();
      for (std::size_t i = 0; i < elements_; ++i) x[i] = leaving_ ? mine[i] + theirs[i] : mine[i];
    });
    worker.fabric().wait(worker.fabric().all_reduce(worker.axis(), to, allreduce::Op::average));
  }

  /// Empty: a part of the sum of all x may be in a message, so the mean is not known without communication.
  std::vector<WeightsInPlace> held_weights(const Worker&) const override { return {}; }

  Forecast predict(const ForecastInput& input) const override {
    if (input.ranks < 2) return {};
    return forecast_messages(input, input.ranks, input.steps,
                             input.steps * (input.elements + tail_floats) * sizeof(float));
  }

 private:
  std::size_t buffers() const { return targets_.regular() ? 2 : 3; }

  /// Halves x and its weight; sends one half to a peer, and begins to receive.
  void push(Worker& worker, std::uint64_t number) {
    const int ranks = worker.ranks(), rank = worker.rank();
    worker.queue().submit("halve", {.flops = double(elements_), .bytes = 8.0 * double(elements_)}, [mine = own_] {
      for (float& v : mine.values<float>()) v *= 0.5f;
    });
    further_senders_ = targets_.senders_to(rank, ranks, number);
    if (further_senders_.empty()) {
      worker.queue().run_and_wait([&] { std::ranges::fill(received_.values<float>(), 0.0f); });
    } else {
      arriving_ = worker.fabric().receive(worker.axis(), further_senders_.front(), received_, worker.fabric().record());
      further_senders_.erase(further_senders_.begin());
    }
    leaving_ =
        worker.fabric().send(worker.axis(), targets_.target_of(rank, ranks, number), own_, worker.fabric().record());
  }

  void add_received(Worker& worker) {
    if (!leaving_) return;
    settle(worker);
    add(worker, received_, own_);
    arriving_ = leaving_ = nullptr;
  }

  void add(Worker& worker, const Buffer& from, const Buffer& to) const {
    worker.queue().submit("mix", {.flops = double(elements_), .bytes = 12.0 * double(elements_)}, [from, to] {
      const auto x = from.values<float>(), sum = to.values<float>();
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += x[i];
    });
  }

  /// z = x / weight; the weight lies behind x.
  static void divide(std::span<const float> x, std::span<float> z) {
    const float inverse = 1.0f / x[z.size()];  // a power of two on regular graphs, so nothing is rounded
    for (std::size_t i = 0; i < z.size(); ++i) z[i] = x[i] * inverse;
  }

  PushTargets targets_;
  bool overlap_;
  std::size_t elements_ = 0;
  Buffer own_ = runtime::empty_buffer;       ///< x, its weight, padding
  Buffer received_ = runtime::empty_buffer;  ///< the sum of the messages received in the last step
  Buffer next_ = runtime::empty_buffer;      ///< if several ranks send: the next message, to be added to `received_`
  Ticket arriving_, leaving_;                ///< of the last step; null once its messages have been added to x
  std::vector<int> further_senders_;         ///< further ranks that send to this rank in that step
};

}  // namespace

/// Stochastic gradient push: instead of an average over all ranks, each step sends one message to one peer.
/// Each rank holds a numerator x and a weight (push-sum). A step computes the gradient at z = x / weight, applies it to
/// x, sends half of (x, weight) to one peer, keeps the other half, and adds what other ranks have sent. The weight
/// travels behind x in the same message. graph=exponential: in step t (from 0) to rank + 2^(t mod ceil(log2 P));
/// graph=ring: always to rank + 1; graph=random: to any other rank, drawn anew for each step and rank, so that some
/// ranks receive no message and others several, and weights differ. overlap=1: what is sent in a step is received in
/// the next, during its computation (the paper's OSGP with a delay of 1).
/// Bytes: M + 64 sent by each rank in each step. Memory: 2M, with graph=random 3M. Time: with graph=random O(P) a step
/// to draw all ranks' peers.
/// The evaluation weights: the mean of all x, including messages on their way, to which all z converge. (The weights
/// are 1 on average; if they differ, the mean of all z is not the same.)
/// Source: Assran et al., "Stochastic gradient push for distributed deep learning", ICML 2019, algorithm 1; random:
/// Kempe, Dobra and Gehrke, "Gossip-based computation of aggregate information", FOCS 2003.
extern constinit const StrategyInfo gossip_strategy{
    .name = "gossip",
    .parameters = "graph=exponential,overlap=0",
    .rule = "push-sum: half of (x, weight) to one peer; gradients at x/weight",
    .bytes_text = "M + 64",
    .source = "Assran et al., ICML 2019",
    .communication = CommunicationPattern::messages,
    .make = [](const core::ParsedName& name, const StrategyOptions& o) -> std::unique_ptr<Strategy> {
      constexpr std::array graphs{Graph::exponential, Graph::random, Graph::ring};
      return std::make_unique<Gossip>(PushTargets(graph_of(name, graphs), o.seed),
                                      core::count_parameter(name, "overlap", {0, 1}) == 1);
    }};

namespace {

class DPsgd final : public Strategy {
 public:
  DPsgd(Graph graph, bool overlap) : graph_(graph), overlap_(overlap) {}

  std::size_t fabric_bytes(const model::Model& m, int ranks) const override {
    const auto others = static_cast<std::size_t>(most_neighbours(graph_, ranks));
    return others > 0 ? others * m.element_count() * sizeof(float) + memory_page_bytes : 0;
  }

  void begin(Worker& worker) override {
    Strategy::begin(worker);
    const auto others = static_cast<std::size_t>(most_neighbours(graph_, worker.ranks()));
    if (others > 0) received_ = worker.fabric().memory(others * worker.parameters().count());
  }

  model::PendingOutcome step(Worker& worker, const model::Batch& batch, UpdateStep step) override {
    const std::size_t others = exchange(worker, step.number);
    if (!overlap_) wait(worker);
    auto outcome = worker.pass(batch);
    wait(worker);
    if (others > 0) average(worker, others);
    worker.update(step);
    return outcome;
  }

  void evaluation_weights(Worker& worker, Buffer to) override { mean_weights(worker, to); }

  Forecast predict(const ForecastInput& input) const override {
    Forecast forecast;
    const int ranks = static_cast<int>(input.ranks);
    const std::uint64_t period = neighbour_period(graph_, ranks), steps_before = input.first_step - 1;
    for (std::uint64_t number = 1; input.ranks > 1 && number <= period; ++number) {
      // The number of steps that have the same neighbours as step `number`.
      const auto until = [&](std::uint64_t step) { return (step + period - number) / period; };
      const std::uint64_t steps = until(steps_before + input.steps) - until(steps_before);
      std::uint32_t senders = 0;
      for (int r = 0; r < ranks; ++r) senders += neighbours(graph_, r, ranks, number).empty() ? 0 : 1;
      const std::uint64_t messages = steps * static_cast<std::uint64_t>(most_neighbours(graph_, ranks));
      forecast += forecast_messages(input, senders, messages, messages * input.elements * sizeof(float));
    }
    return forecast;
  }

 private:
  /// Begins to exchange weights with the step's neighbours; nothing changes the weights before `wait`. Returns the
  /// number of neighbours.
  std::size_t exchange(Worker& worker, std::uint64_t number) {
    const auto peers = neighbours(graph_, worker.rank(), worker.ranks(), number);
    const std::size_t n = worker.parameters().count();
    const runtime::EventPtr ready =
        worker.fabric().record();  // reached when the last step's average and update are done
    for (std::size_t i = 0; i < peers.size(); ++i)
      under_way_.push_back(worker.fabric().receive(worker.axis(), peers[i], received_.part(i * n, n), ready));
    for (const int peer : peers)
      under_way_.push_back(worker.fabric().send(worker.axis(), peer, worker.parameters(), ready));
    return peers.size();
  }

  void wait(Worker& worker) {
    for (const Ticket& t : under_way_) worker.fabric().wait(t);
    under_way_.clear();
  }

  void average(Worker& worker, std::size_t others) const {
    const auto n = static_cast<double>(worker.parameters().count()), k = static_cast<double>(others);
    worker.queue().submit("mix", {.flops = (k + 1) * n, .bytes = 4 * (3 * k + 2) * n},
                          [own = worker.parameters(), theirs = received_, others] {
                            const auto x = own.values<float>(), peers = theirs.values<float>();
                            for (std::size_t j = 0; j < others; ++j) {
                              const auto other = peers.subspan(j * x.size(), x.size());
                              for (std::size_t i = 0; i < x.size(); ++i) x[i] += other[i];
                            }
                            const float part = 1.0f / static_cast<float>(others + 1);
                            for (float& v : x) v *= part;
                          });
  }

  Graph graph_;
  bool overlap_;
  Buffer received_ = runtime::empty_buffer;  ///< the neighbours' weights, one after the other
  std::vector<Ticket> under_way_;
};

}  // namespace

/// Decentralised parallel SGD: each rank averages its weights with those of its neighbours, and applies its own
/// gradient: x_i <- sum_j W_ij x_j - step g_i(x_i). Weights travel during the pass that computes the gradient at them,
/// and are averaged before the gradient is applied. W gives a rank and its neighbours equal parts, so it is symmetric
/// and doubly stochastic. graph=ring: two neighbours, parts of 1/3 (with two ranks: one, 1/2). graph=hypercube: one
/// neighbour in step t (from 0), rank xor 2^(t mod ceil(log2 P)), parts of 1/2; if P is no power of two, some ranks
/// have no neighbour in some steps. The hypercube sends half the bytes of the ring. If P is a power of two, log2 P
/// steps on the hypercube give the exact mean; on the ring the differences between ranks shrink only by the factor 1/3
/// + 2/3 cos(2 pi/P) a step. The paper has plain SGD. With other optimizers each rank has a state of its own, which is
/// not averaged; the optimizer uses the averaged weights (for decay and norms) and the gradient at the weights before
/// the average. Bytes: on the ring 2M sent by each rank in each step (two ranks: M), on the hypercube M by each rank
/// that has a neighbour. Memory: as much as a rank receives in a step. The evaluation weights: the mean of all x.
/// Source: Lian et al., "Can decentralized algorithms outperform centralized algorithms?", NIPS 2017, algorithm 1;
/// hypercube: Shi et al., "Finite-time convergent gossiping", IEEE/ACM Trans. Networking 2016.
extern constinit const StrategyInfo d_psgd_strategy{
    .name = "d-psgd",
    .parameters = "graph=ring",
    .rule = "x_i = sum_j W_ij x_j - step*g_i(x_i); weights travel during the pass",
    .bytes_text = "2M, hypercube M",
    .source = "Lian et al., NIPS 2017",
    .communication = CommunicationPattern::overlapped_messages,
    .make = [](const core::ParsedName& name, const StrategyOptions& o) -> std::unique_ptr<Strategy> {
      constexpr std::array graphs{Graph::hypercube, Graph::ring};
      return std::make_unique<DPsgd>(graph_of(name, graphs), o.overlap);
    }};

}  // namespace gradmeter::dataparallel
