// SPDX-License-Identifier: Apache-2.0
// Averages of the weights of two ranks, an active and a passive one. The active rank sends its weights. A background
// task of the passive rank answers with the passive rank's weights, and then replaces these by the mean. When the
// answer arrives, the active rank replaces its weights by the mean too.
//
// Weights travel in chunks, and each chunk is averaged by itself: the weights in the answer are those of which the
// passive rank takes the mean, since its updates cannot change them in between. So averages keep the sum over all ranks
// of every element. Updates, and averages with other active ranks, may come between two chunks of one average.
//
// | operation  | clock                     | first, count | payload                     |
// | average    | updates of the active one | the chunk    | its weights                 |
// | answer     | as asked                  | as asked     | weights before this average |
// | disconnect | -                         | -            | -                           |
//
// An active rank may have only a few chunks unanswered, and a passive rank has memory for an answer to each of them. So
// nobody waits for another active rank, which may be in the middle of a long computation without reading messages.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <deque>
#include <limits>
#include <memory>
#include <mutex>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "core/format.hpp"
#include "dataparallel/server/protocol.hpp"
#include "dataparallel/strategies/gossip.hpp"
#include "dataparallel/strategy.hpp"

namespace gradmeter::dataparallel {

/// The cut of the weights into chunks, and of the passive ranks' memory, equal on all ranks of an axis (at least two).
class PairPlan {
 public:
  PairPlan(std::size_t elements, int ranks);
  int ranks() const { return ranks_; }
  std::size_t elements() const { return chunks_.elements(); }
  std::size_t chunks() const { return chunks_.chunks(0); }
  Range chunk(std::size_t i) const { return chunks_.chunk(0, i); }
  std::size_t index_of(std::size_t first) const { return chunks_.index_of(first); }
  /// The most chunks of one active rank that may be unanswered.
  std::size_t unanswered() const { return unanswered_; }
  /// The length of a passive rank's memory, which holds a copy of the weights and behind it answers [elements].
  std::size_t passive_elements() const;
  /// The elements of this memory that hold the answer to a chunk of an active rank.
  Range answer(int active, std::size_t chunk) const;
  PortOptions port_options() const;

 private:
  int ranks_;
  Sharding chunks_;  ///< the cut into chunks: that for a single server
  std::size_t unanswered_;
};

/// An active rank's side of averages; only its worker's thread uses it. Memory: M, for `theirs`.
class ActiveSide {
 public:
  /// theirs: the buffer for the passive rank's weights.
  ActiveSide(Fabric&, std::unique_ptr<Port>, const PairPlan&, const Buffer& theirs);

  /// Begins an average with a passive rank, unless it has died. `weights` must not change before `finish`.
  void begin(int passive, std::uint64_t clock, const ConstBuffer& weights);
  /// Takes and posts messages as far as possible without waiting.
  void poll();
  /// Waits until the passive rank's weights are in `theirs`; the caller then averages. False: the passive rank has
  /// died.
  bool finish();
  /// Tells all passive ranks that there will be no more averages.
  void disconnect();

 private:
  bool gone(int rank) const { return gone_[static_cast<std::size_t>(rank)]; }
  void take(const Message&);
  void send();

  Fabric& fabric_;
  std::unique_ptr<Port> port_;
  const PairPlan plan_;
  const Buffer theirs_;
  std::byte* const theirs_at_;
  std::vector<bool> gone_;  ///< by rank: whether it has died
  int passive_ = 0;
  std::uint64_t clock_ = 0;
  std::span<const std::byte> weights_;
  std::size_t sent_ = 0, answered_ = 0;  ///< numbers of chunks in the present average
};

/// A passive rank's weights, which its worker and its background task share. The worker computes gradients at a copy of
/// them, its `parameters`, which it renews with each update; averages change the shared weights only.
/// Memory: M, and for the answers to each active rank one to four chunks of at most 1 MiB (four if there are few active
/// ranks).
class PassiveSide {
 public:
  /// memory: `plan.passive_elements()` floats of the fabric's memory.
  PassiveSide(const PairPlan&, std::unique_ptr<Port>, Worker&, const Buffer& memory);

  /// The background task's program. It returns when all active ranks have disconnected or died.
  void run(ExecutionContext&);

  /// Called by the worker: applies its gradient, and copies the weights to its parameters for the next gradient.
  void update(Worker&, UpdateStep);
  /// Called by the worker: copies the weights to `to`, but not to train from them.
  void read(Worker&, const Buffer& to) const;
  /// A view of the weights. Only while nobody changes them.
  std::span<const float> weights() const { return weights_.values<float>(); }
  /// Any thread may call this. staleness: the number of averages since the weights were read; gap: the largest
  /// difference in updates between two ranks that averaged.
  Observations observed() const;

 private:
  void take(ExecutionContext&, const Message&);
  void average(ExecutionContext&, const Message&);
  void note_average(const MessageHeader&);
  void leave(int rank);
  void send();

  const PairPlan plan_;
  std::unique_ptr<Port> port_;
  const std::span<float> memory_;  ///< memory of the host: the weights, then answers
  const Buffer weights_;           ///< the weights in `memory_`, for the worker's queue
  std::vector<bool> gone_;         ///< by active rank: whether it has disconnected or died
  int connected_;                  ///< number of active ranks that are not gone
  /// By active rank: the headers of answers for which there has been no room yet. The weights of these answers lie at
  /// PairPlan::answer.
  std::vector<std::deque<MessageHeader>> answers_;

  mutable std::mutex mutex_;  ///< guards the weights, and the members below
  std::uint64_t averages_ = 0, averages_read_ = 0, updates_ = 0;
  Observations observed_;
};

namespace {

enum class PairOpcode : std::uint16_t { average = 1, answer, disconnect };

/// The most chunks of one active rank that may be unanswered: several, so that the link is busy while a chunk is
/// averaged.
constexpr std::size_t most_unanswered = 4;

std::uint16_t number(PairOpcode o) { return static_cast<std::uint16_t>(o); }

[[noreturn]] void refuse(const Message& m) {
  throw std::logic_error(fmt::format("rank {} sent operation {} with {} bytes where weights are averaged", m.from,
                                     m.header.operation, m.payload.size()));
}

/// A worker's queue whose every piece of work holds the mutex while it runs, including the work that an optimizer
/// submits.
class LockingQueue final : public runtime::Queue {
 public:
  LockingQueue(runtime::Queue& inner, std::mutex& mutex) : inner_(inner), mutex_(mutex) {}
  runtime::Device& device() override { return inner_.device(); }
  void submit(std::string_view label, runtime::Cost cost, const runtime::Work& work) override {
    inner_.submit(label, cost, [&mutex = mutex_, work = work.stored()] {
      const std::lock_guard lock(mutex);
      work();
    });
  }
  void enter_layer(int layer) override { inner_.enter_layer(layer); }
  runtime::EventPtr record() override { return inner_.record(); }
  void begin_after(const runtime::EventPtr& e) override { inner_.begin_after(e); }
  void synchronise() override { inner_.synchronise(); }

 private:
  runtime::Queue& inner_;
  std::mutex& mutex_;
};

}  // namespace

PairPlan::PairPlan(std::size_t elements, int ranks)
    : ranks_(ranks),
      chunks_(elements, 1, 1),
      unanswered_(
          std::clamp(held_payloads / static_cast<std::size_t>(active_ranks(ranks)), std::size_t{1}, most_unanswered)) {}

std::size_t PairPlan::passive_elements() const {
  return answer(2 * active_ranks(ranks_), 0).first;  // the end of the answers to all active ranks
}

Range PairPlan::answer(int active, std::size_t chunk) const {
  const auto padded = [](std::size_t n) { return (n + 15) / 16 * 16; };  // to a cache line
  const std::size_t place = static_cast<std::size_t>(active / 2) * unanswered_ + chunk % unanswered_;
  return {padded(elements()) + place * padded(this->chunk(0).count), this->chunk(chunk).count};
}

/// Two messages more than may be unanswered may be on their way, for answers that have been read but whose sender does
/// not know it yet.
PortOptions PairPlan::port_options() const {
  return {.payload_bytes = std::max<std::size_t>(1, chunks_.payload_bytes()),
          .in_flight = static_cast<int>(unanswered_) + 2};
}

ActiveSide::ActiveSide(Fabric& fabric, std::unique_ptr<Port> port, const PairPlan& plan, const Buffer& theirs)
    : fabric_(fabric),
      port_(std::move(port)),
      plan_(plan),
      theirs_(theirs),
      theirs_at_(fabric.device().transport_address(theirs)),
      gone_(static_cast<std::size_t>(plan.ranks())) {}

void ActiveSide::begin(int passive, std::uint64_t clock, const ConstBuffer& weights) {
  fabric_.to_transport(weights);
  fabric_.synchronise();  // waits until the weights are computed and the last answer is averaged
  passive_ = passive;
  clock_ = clock;
  weights_ = {fabric_.device().transport_address(weights), weights.bytes()};
  sent_ = answered_ = 0;
  poll();
}

void ActiveSide::poll() {
  fabric_.handle_messages("average", [this] {
    while (const auto message = port_->poll()) take(*message);
    send();
  });
}

bool ActiveSide::finish() {
  constexpr const char* why = "weights of a passive rank";
  fabric_.handle_messages(why, [&] {
    send();
    while (answered_ < plan_.chunks() && !gone(passive_)) {
      if (const auto message = port_->next(why, std::numeric_limits<double>::infinity(), passive_)) take(*message);
      send();
    }
  });
  fabric_.from_transport(theirs_);
  return !gone(passive_);
}

void ActiveSide::take(const Message& m) {
  if (m.is_failure_notice) gone_[static_cast<std::size_t>(m.from)] = true;
  if (gone(m.from)) return;
  const MessageHeader& h = m.header;
  if (h.operation != number(PairOpcode::answer) || m.payload.size() != h.count * sizeof(float)) refuse(m);
  std::memcpy(theirs_at_ + h.first * sizeof(float), m.payload.data(), m.payload.size());
  ++answered_;
}

void ActiveSide::send() {
  while (sent_ < plan_.chunks() && sent_ - answered_ < plan_.unanswered() && !gone(passive_)) {
    const Range chunk = plan_.chunk(sent_);
    const auto payload = weights_.subspan(chunk.first * sizeof(float), chunk.count * sizeof(float));
    const MessageHeader h{.operation = number(PairOpcode::average),
                          .clock = clock_,
                          .first = chunk.first,
                          .count = chunk.count,
                          .bytes = payload.size()};
    if (!port_->post_from(passive_, h, payload, "average")) return;
    ++sent_;
  }
}

void ActiveSide::disconnect() {
  constexpr const char* why = "passive ranks to hear of the end";
  fabric_.handle_messages(why, [&] {
    for (int rank = 0; rank < plan_.ranks(); ++rank) {
      if (is_active(rank)) continue;
      while (!port_->draft(rank, 0)) {
        if (const auto message = port_->next(why, std::numeric_limits<double>::infinity(), rank)) take(*message);
      }
      port_->post(rank, {.operation = number(PairOpcode::disconnect)}, "disconnect");
    }
    port_->close();
  });
}

PassiveSide::PassiveSide(const PairPlan& plan, std::unique_ptr<Port> port, Worker& worker, const Buffer& memory)
    : plan_(plan),
      port_(std::move(port)),
      memory_(reinterpret_cast<float*>(worker.queue().device().transport_address(memory)), memory.count()),
      weights_(memory_.first(plan.elements())),
      gone_(static_cast<std::size_t>(plan.ranks())),
      connected_(active_ranks(plan.ranks())),
      answers_(static_cast<std::size_t>(plan.ranks())) {
  worker.queue().run_and_wait(
      [&] { std::ranges::copy(worker.parameters().values<float>(), weights_.values<float>().begin()); });
}

void PassiveSide::run(ExecutionContext& context) {
  while (connected_ > 0) {
    if (const auto message = port_->next("weights of active ranks")) take(context, *message);
    send();
  }
  port_->close();
}

void PassiveSide::take(ExecutionContext& context, const Message& m) {
  if (!is_active(m.from) || gone_[static_cast<std::size_t>(m.from)]) return;  // the failure notice of a passive rank
  if (m.is_failure_notice) return leave(m.from);
  switch (static_cast<PairOpcode>(m.header.operation)) {
    case PairOpcode::average:
      return average(context, m);
    case PairOpcode::disconnect:
      return leave(m.from);
    default:
      refuse(m);
  }
}

/// Averages a chunk and queues the answer, which is posted by `send`, after the message has been read: its sender may
/// then change what it sent.
void PassiveSide::average(ExecutionContext& context, const Message& m) {
  const MessageHeader& h = m.header;
  if (m.payload.size() != h.count * sizeof(float)) refuse(m);
  const Range place = plan_.answer(m.from, plan_.index_of(h.first));
  const std::span<const float> theirs{reinterpret_cast<const float*>(m.payload.data()), h.count};
  const std::span<float> own = memory_.subspan(h.first, h.count), answer = memory_.subspan(place.first, h.count);
  context.submit("mix", {.flops = 2.0 * double(h.count), .bytes = 16.0 * double(h.count)}, [&] {
    const std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < own.size(); ++i) {
      answer[i] = own[i];
      own[i] = (own[i] + theirs[i]) * 0.5f;
    }
    if (h.first + h.count == plan_.elements()) note_average(h);
  });
  MessageHeader header = h;
  header.operation = number(PairOpcode::answer);
  answers_[static_cast<std::size_t>(m.from)].push_back(header);
}

void PassiveSide::note_average(const MessageHeader& h) {
  ++averages_;
  const std::uint64_t gap = std::max(h.clock, updates_) - std::min(h.clock, updates_);
  observed_.largest_gap = std::max(observed_.largest_gap, gap);
}

void PassiveSide::leave(int rank) {
  gone_[static_cast<std::size_t>(rank)] = true;
  answers_[static_cast<std::size_t>(rank)].clear();
  --connected_;
}

void PassiveSide::send() {
  for (int rank = 0; rank < plan_.ranks(); ++rank) {
    auto& answers = answers_[static_cast<std::size_t>(rank)];
    for (; !answers.empty(); answers.pop_front()) {
      const MessageHeader& h = answers.front();
      const Range place = plan_.answer(rank, plan_.index_of(h.first));
      const std::span<const float> weights = memory_.subspan(place.first, h.count);
      if (!port_->post_from(rank, h, std::as_bytes(weights), "answer")) break;
    }
  }
}

void PassiveSide::update(Worker& worker, UpdateStep step) {
  LockingQueue queue(worker.queue(), mutex_);
  worker.optimizer().update(queue, weights_, worker.gradients(), 0, step);
  queue.submit("weights", {.flops = 0, .bytes = 8.0 * double(plan_.elements())}, [this, to = worker.parameters()] {
    std::ranges::copy(weights_.values<float>(), to.values<float>().begin());
    ++updates_;
    const auto staleness = static_cast<std::size_t>(averages_ - std::exchange(averages_read_, averages_));
    if (observed_.staleness.size() <= staleness) observed_.staleness.resize(staleness + 1, 0);
    ++observed_.staleness[staleness];
  });
}

void PassiveSide::read(Worker& worker, const Buffer& to) const {
  worker.queue().run_and_wait([&] {
    const std::lock_guard lock(mutex_);
    std::ranges::copy(weights_.values<float>(), to.values<float>().begin());
  });
}

Observations PassiveSide::observed() const {
  const std::lock_guard lock(mutex_);
  return observed_;
}

namespace {

constexpr std::size_t barrier_floats = 16;  ///< length of an all-reduce that only synchronises

class AdPsgd final : public Strategy {
 public:
  AdPsgd(std::uint64_t seed, bool overlap) : seed_(seed), overlap_(overlap) {}

  std::size_t fabric_bytes(const model::Model& m, int ranks) const override {
    if (ranks == 1) return 0;
    const PairPlan plan(m.element_count(), ranks);
    return port_memory_bytes(plan.port_options(), ranks) + (plan.passive_elements() + barrier_floats) * sizeof(float) +
           2 * memory_page_bytes;
  }

  void begin(Worker& worker) override {
    Strategy::begin(worker);
    if (worker.ranks() == 1) return;
    const PairPlan plan(worker.parameters().count(), worker.ranks());
    Ports ports = worker.fabric().open(worker.axis(), plan.port_options());
    barrier_ = worker.fabric().memory(barrier_floats);
    if (is_active(worker.rank())) {
      theirs_ = worker.fabric().memory(plan.elements());
      active_ = std::make_unique<ActiveSide>(worker.fabric(), std::move(ports.worker), plan, theirs_);
    } else {
      passive_ = std::make_shared<PassiveSide>(plan, std::move(ports.server), worker,
                                               worker.fabric().memory(plan.passive_elements()));
      background_task_ =
          worker.fabric().launch([passive = passive_](ExecutionContext& context) { passive->run(context); });
    }
  }

  model::PendingOutcome step(Worker& worker, const model::Batch& batch, UpdateStep step) override {
    ++updates_;
    if (active_) return active_step(worker, batch, step);
    auto outcome = worker.pass(batch);
    if (passive_) {
      passive_->update(worker, step);
    } else {
      worker.update(step);
    }
    return outcome;
  }

  /// Waits until all ranks have called it, since only then no average is under way. The all-reduces need no event: an
  /// average is complete when its answer has been sent, and reading the weights comes after the rank's own work in its
  /// queue.
  void evaluation_weights(Worker& worker, Buffer to) override {
    if (worker.ranks() == 1) return Strategy::evaluation_weights(worker, to);
    worker.fabric().wait(worker.fabric().all_reduce(worker.axis(), barrier_, allreduce::Op::sum));
    if (passive_) {
      passive_->read(worker, to);
    } else {
      Strategy::evaluation_weights(worker, to);
    }
    worker.fabric().wait(worker.fabric().all_reduce(worker.axis(), to, allreduce::Op::average));
  }

  /// While a chunk's average is under way, the passive rank holds the mean already and the active rank not yet.
  std::vector<WeightsInPlace> held_weights(const Worker& worker) const override {
    if (!passive_) return Strategy::held_weights(worker);
    return {{.first = 0, .values = passive_->weights()}};
  }

  void end(Worker& worker) override {
    if (active_) active_->disconnect();
    active_.reset();  // returns the memory of the last message to its sender
    if (!background_task_) return;
    background_task_->join();
    background_task_.reset();
    passive_->read(worker, worker.parameters());
  }

  Observations observed() const override {
    Observations o = passive_ ? passive_->observed() : Observations{};
    if (active_ || !passive_) o.staleness = {staleness_.begin(), staleness_.end()};
    o.updates = updates_;
    return o;
  }

  /// The busiest ranks are passive ones, which answer active/passive averages a step in the mean. How many one rank
  /// answers is drawn, so its bytes are not known in advance.
  Forecast predict(const ForecastInput& input) const override {
    if (input.ranks < 2) return {};
    const auto ranks = static_cast<int>(input.ranks);
    const auto active = static_cast<std::uint32_t>(active_ranks(ranks)), passive = input.ranks - active;
    const std::uint64_t sent = input.steps * input.elements * sizeof(float);
    Forecast f = forecast_messages(input, 2 * active, input.steps * PairPlan(input.elements, ranks).chunks(), sent);
    f.least_of_one = active * sent / passive;
    f.seconds = wire_seconds(input, static_cast<double>(f.least_of_one));
    return f;
  }

 private:
  model::PendingOutcome active_step(Worker& worker, const model::Batch& batch, UpdateStep step) {
    const int passive = drawn_passive(worker.rank(), worker.ranks(), step.number, seed_);
    if (overlap_) active_->begin(passive, updates_ - 1, worker.parameters());
    auto outcome = worker.pass(batch, [this](std::size_t) {
      if (overlap_) active_->poll();
    });
    if (!overlap_) active_->begin(passive, updates_ - 1, worker.parameters());
    const bool averages = active_->finish();
    if (averages) average(worker);
    ++staleness_[averages ? 1 : 0];
    worker.update(step);
    return outcome;
  }

  void average(Worker& worker) const {
    const auto n = static_cast<double>(worker.parameters().count());
    worker.queue().submit("mix", {.flops = 2 * n, .bytes = 12 * n}, [own = worker.parameters(), theirs = theirs_] {
      const auto x = own.values<float>(), other = theirs.values<float>();
      for (std::size_t i = 0; i < x.size(); ++i) x[i] = (x[i] + other[i]) * 0.5f;
    });
  }

  std::uint64_t seed_;
  bool overlap_;
  std::uint64_t updates_ = 0;
  std::array<std::uint64_t, 2> staleness_{};  ///< of an active rank: numbers of updates of staleness 0 and 1
  Buffer barrier_ = runtime::empty_buffer;
  Buffer theirs_ = runtime::empty_buffer;  ///< of an active rank: the weights of its passive partner
  std::unique_ptr<ActiveSide> active_;     ///< null on passive ranks, and if there is one rank
  std::shared_ptr<PassiveSide> passive_;
  std::unique_ptr<BackgroundTask> background_task_;  ///< declared last: destroyed first, which ends its task
};

}  // namespace

/// Asynchronous decentralised parallel SGD: in each step an active rank averages its weights with a passive rank, drawn
/// anew, which may be at another step.
/// A step of rank i computes g(x_i), averages x_i and x_j <- (x_i + x_j)/2, and then applies x_i <- x_i - step g, so g
/// belongs to older weights. Ranks with an even number are active and begin one average a step, with a passive rank (an
/// odd number) drawn by seed, rank and step. Passive ranks answer at any time, from a background task. So an average
/// waits for no computation of the other rank, and there is no deadlock, since nobody waits for a rank that waits. With
/// overlap an active rank's weights travel during its pass, otherwise after it. An average of two ranks is atomic for
/// each chunk of at most 1 MiB (see the beginning of this file). The paper has plain SGD. With other optimizers each
/// rank has a state of its own, which is not averaged; the optimizer uses the averaged weights (for decay and norms)
/// and the gradient at the weights before the average. Staleness of an update: the number of averages since the weights
/// of its gradient were read; one on active ranks. Bytes: M from an active rank to a passive one and M back, in each
/// step of each active rank. Memory: M, and on passive ranks answers (PassiveSide). The evaluation weights: the mean of
/// all x. One rank trains alone. Source: Lian et al., "Asynchronous decentralized parallel stochastic gradient
/// descent", ICML 2018, algorithm 1.
extern constinit const StrategyInfo ad_psgd_strategy{
    .name = "ad-psgd",
    .rule = "x_i, x_j = (x_i + x_j)/2 with a rank drawn at random, at any time; x_i -= step*g(x_i before)",
    .bytes_text = "M each way for two ranks",
    .source = "Lian et al., ICML 2018",
    .communication = CommunicationPattern::asynchronous_messages,
    .make = [](const core::ParsedName&, const StrategyOptions& o) -> std::unique_ptr<Strategy> {
      return std::make_unique<AdPsgd>(o.seed, o.overlap);
    }};

}  // namespace gradmeter::dataparallel
