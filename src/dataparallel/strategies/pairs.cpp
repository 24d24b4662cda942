#include "dataparallel/strategies/pairs.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <utility>

#include "core/format.hpp"

namespace gradmeter::dataparallel {
namespace {

enum class PairOpcode : std::uint16_t { average = 1, answer, disconnect };

constexpr std::size_t most_unanswered = 4;  ///< of one active rank, so that the link has work while others are averaged

std::uint16_t number(PairOpcode o) { return static_cast<std::uint16_t>(o); }

[[noreturn]] void refuse(const Message& m) {
  throw std::logic_error(fmt::format("rank {} sent operation {} with {} bytes where weights are averaged", m.from,
                                     m.header.operation, m.payload.size()));
}

/// A worker's queue, whose work each holds the mutex while it runs: also when an optimizer submits it.
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
  return answer(2 * active_ranks(ranks_), 0).first;  // behind those of all active ranks
}

Range PairPlan::answer(int active, std::size_t chunk) const {
  const auto padded = [](std::size_t n) { return (n + 15) / 16 * 16; };  // to a cache line
  const std::size_t place = static_cast<std::size_t>(active / 2) * unanswered_ + chunk % unanswered_;
  return {padded(elements()) + place * padded(this->chunk(0).count), this->chunk(chunk).count};
}

/// With room for answers that have been read while that is not known yet.
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
  fabric_.synchronise();  // they are computed, and the last answer is averaged
  passive_ = passive;
  clock_ = clock;
  weights_ = {fabric_.device().transport_address(weights), weights.bytes()};
  sent_ = answered_ = 0;
  poll();
}

void ActiveSide::poll() {
  fabric_.exchange("average", [this] {
    while (const auto message = port_->poll()) take(*message);
    send();
  });
}

bool ActiveSide::finish() {
  constexpr const char* why = "weights of a passive rank";
  fabric_.exchange(why, [&] {
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
  fabric_.exchange(why, [&] {
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

PassiveSide::PassiveSide(const PairPlan& plan, std::unique_ptr<Port> port, Worker& w, const Buffer& memory)
    : plan_(plan),
      port_(std::move(port)),
      memory_(reinterpret_cast<float*>(w.queue().device().transport_address(memory)), memory.count()),
      weights_(memory_.first(plan.elements())),
      gone_(static_cast<std::size_t>(plan.ranks())),
      connected_(active_ranks(plan.ranks())),
      answers_(static_cast<std::size_t>(plan.ranks())) {
  w.queue().at_once([&] { std::ranges::copy(w.parameters().values<float>(), weights_.values<float>().begin()); });
}

void PassiveSide::run(ExecutionContext& f) {
  while (connected_ > 0) {
    if (const auto message = port_->next("weights of active ranks")) take(f, *message);
    send();
  }
  port_->close();
}

void PassiveSide::take(ExecutionContext& f, const Message& m) {
  if (!is_active(m.from) || gone_[static_cast<std::size_t>(m.from)]) return;  // a passive rank has died
  if (m.is_failure_notice) return leave(m.from);
  switch (static_cast<PairOpcode>(m.header.operation)) {
    case PairOpcode::average:
      return average(f, m);
    case PairOpcode::disconnect:
      return leave(m.from);
    default:
      refuse(m);
  }
}

/// The answer is posted last: then the message has been read, and its sender may change what it sent.
void PassiveSide::average(ExecutionContext& f, const Message& m) {
  const MessageHeader& h = m.header;
  if (m.payload.size() != h.count * sizeof(float)) refuse(m);
  const Range place = plan_.answer(m.from, plan_.index_of(h.first));
  const std::span<const float> theirs{reinterpret_cast<const float*>(m.payload.data()), h.count};
  const std::span<float> own = memory_.subspan(h.first, h.count), answer = memory_.subspan(place.first, h.count);
  f.submit("mix", {.flops = 2.0 * double(h.count), .bytes = 16.0 * double(h.count)}, [&] {
    const std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < own.size(); ++i) {
      answer[i] = own[i];
      own[i] = (own[i] + theirs[i]) * 0.5f;
    }
    if (h.first + h.count == plan_.elements()) note_average(h);
  });
  MessageHeader header = h;
  header.operation = number(PairOpcode::answer);
  answers_[static_cast<std::size_t>(m.from)].push_back({m.from, header, answer});
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
  for (auto& answers : answers_) {
    while (!answers.empty() && port_->post_from(answers.front().to, answers.front().header,
                                                std::as_bytes(answers.front().weights), "answer")) {
      answers.pop_front();
    }
  }
}

void PassiveSide::update(Worker& w, UpdateStep step) {
  LockingQueue queue(w.queue(), mutex_);
  w.optimizer().update(queue, weights_, w.gradients(), 0, step);
  queue.submit("weights", {.flops = 0, .bytes = 8.0 * double(plan_.elements())}, [this, to = w.parameters()] {
    std::ranges::copy(weights_.values<float>(), to.values<float>().begin());
    ++updates_;
    const auto staleness = static_cast<std::size_t>(averages_ - std::exchange(averages_read_, averages_));
    if (observed_.staleness.size() <= staleness) observed_.staleness.resize(staleness + 1, 0);
    ++observed_.staleness[staleness];
  });
}

void PassiveSide::read(Worker& w, const Buffer& to) const {
  w.queue().at_once([&] {
    const std::lock_guard lock(mutex_);
    std::ranges::copy(weights_.values<float>(), to.values<float>().begin());
  });
}

Observations PassiveSide::observed() const {
  const std::lock_guard lock(mutex_);
  return observed_;
}

}  // namespace gradmeter::dataparallel
