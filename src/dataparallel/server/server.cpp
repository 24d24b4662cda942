#include "dataparallel/server/server.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "core/format.hpp"

namespace gradmeter::dataparallel {
namespace {

/// Two copies, each from the beginning of a cache line.
std::size_t elements_of(Range chunk) { return 2 * ((chunk.count + 15) / 16 * 16); }

}  // namespace

Server::Server(const ServerPlan& plan, const Sharding& sharding, std::uint32_t server, std::span<const float> weights,
               std::span<const model::Tensor> tensors, std::unique_ptr<Port> port, std::span<float> memory)
    : plan_(plan),
      sharding_(sharding),
      port_(std::move(port)),
      reply_queue_(*port_, sharding, server, plan.weights, plan.seed, plan.workers, weights),
      training_(plan.workers),
      gone_(static_cast<std::size_t>(plan.workers)),
      evaluations_(static_cast<std::size_t>(plan.workers)) {
  for (std::size_t i = 0; i < sharding.chunks(server); ++i) {
    const Range range = sharding.chunk(server, i);
    const std::size_t n = elements_of(range);
    chunks_.emplace_back(plan_, spare_, range, weights, tensors, memory.first(n));
    memory = memory.subspan(n);
  }
}

std::size_t Server::elements_needed(const Sharding& sharding, std::uint32_t server) {
  std::size_t sum = 0;
  for (std::size_t i = 0; i < sharding.chunks(server); ++i) sum += elements_of(sharding.chunk(server, i));
  return sum;
}

void Server::run(ExecutionContext& f) {
  constexpr const char* why = "messages from workers";
  std::unique_lock lock(running_);
  context_ = &f;
  while (training_ > 0 || !reply_queue_.all_acknowledged()) {
    lock.unlock();
    const bool is_shared = port_->await(why);
    lock.lock();
    take_one(is_shared ? port_->poll() : port_->next(why));
  }
  context_ = nullptr;
  port_->close();
}

bool Server::help() {
  const std::unique_lock lock(running_, std::try_to_lock);
  return lock && context_ && take_one(port_->poll());
}

bool Server::take_one(std::optional<Message> message) {
  if (message) take(*message);
  reply_queue_.send(*context_);
  return message.has_value();
}

void Server::take(const Message& message) {
  if (message.from >= plan_.workers) return;  // the failure notice of a rank that only served
  if (message.is_failure_notice) {
    reply_queue_.drop_all(message.from);
    return leave(message.from);
  }
  if (gone_[static_cast<std::size_t>(message.from)]) return;
  const MessageHeader& h = message.header;
  switch (static_cast<Opcode>(h.operation)) {
    case Opcode::push:
      return take_push(message);
    case Opcode::pull:
      return take_pull(message.from, h);
    case Opcode::evaluate:
      return take_evaluate(message.from, h);
    case Opcode::disconnect:
      leave(message.from);
      if (h.sequence > 0) reply_queue_.acknowledge(message.from, h);
      return;
    case Opcode::rest:
      return rest(message.from);
    default:
      break;
  }
  throw std::logic_error(fmt::format("rank {} sent a server operation {}", message.from, h.operation));
}

ReadRequest Server::request_of(const MessageHeader& h) const {
  return {.sequence = h.sequence,
          .clock = h.clock,
          .own = h.version,
          .outside_step = h.outside_step,
          .answer_place = h.answer_place,
          .since = context_->now()};
}

void Server::take_push(const Message& message) {
  const MessageHeader& h = message.header;
  const int from = message.from;
  const std::size_t i = sharding_.index_of(h.first);
  ServedChunk& chunk = chunks_.at(i);
  chunk.take(*context_, *port_, message);
  reply_queue_.acknowledge(from, h);  // now, since from then on the worker may write over it
  if (h.sequence > 0) {
    ReadRequest r = request_of(h);
    r.clock = r.own = h.clock + 1;
    chunk.ask(from, r);
  }
  answer_reads(i);
}

void Server::take_pull(int from, const MessageHeader& h) {
  for (std::size_t i = chunks_.size(); i-- > 0;) {  // a forward pass reads the last first
    chunks_[i].ask(from, request_of(h));
    answer_reads(i);
  }
}

void Server::take_evaluate(int from, const MessageHeader& h) {
  evaluations_[static_cast<std::size_t>(from)] = request_of(h);
  answer_evaluations();
}

void Server::rest(int worker) {
  for (std::size_t i = 0; i < chunks_.size(); ++i) {
    chunks_[i].rest(*context_, worker);
    answer_reads(i);
  }
}

void Server::leave(int worker) {
  const auto w = static_cast<std::size_t>(worker);
  if (gone_[w]) return;
  gone_[w] = true;
  --training_;
  evaluations_[w].reset();
  reply_queue_.drop_replies(worker);
  for (std::size_t i = 0; i < chunks_.size(); ++i) {
    chunks_[i].leave(*context_, worker);
    answer_reads(i);
  }
  answer_evaluations();
}

void Server::answer_reads(std::size_t chunk) {
  while (const auto read = chunks_[chunk].next_read(*context_)) {
    answer(read->worker, chunk, read->request, false);
  }
}

void Server::answer_evaluations() {
  for (std::size_t w = 0; w < evaluations_.size(); ++w) {
    if (!gone_[w] && !evaluations_[w]) return;
  }
  for (std::size_t w = 0; w < evaluations_.size(); ++w) {
    const auto request = std::exchange(evaluations_[w], std::nullopt);
    for (std::size_t i = 0; request && i < chunks_.size(); ++i) answer(static_cast<int>(w), i, *request, true);
  }
}

void Server::answer(int worker, std::size_t chunk, const ReadRequest& r, bool for_evaluation) {
  ServedChunk& c = chunks_[chunk];
  reply_queue_.answer(*context_,
                      {.worker = worker,
                       .chunk = chunk,
                       .request = r,
                       .for_evaluation = for_evaluation,
                       .version = c.version(),
                       .slowest = c.slowest(),
                       .held = context_->now() - r.since},
                      c.weights());
}

std::vector<WeightsInPlace> Server::held_weights() const {
  std::vector<WeightsInPlace> out;
  for (const ServedChunk& chunk : chunks_) out.push_back({.first = chunk.first(), .values = chunk.weights().values()});
  return out;
}

Observations Server::observed() const {
  Observations all;
  for (const ServedChunk& chunk : chunks_) {
    const Observations o = chunk.observed();
    if (all.staleness.size() < o.staleness.size()) all.staleness.resize(o.staleness.size(), 0);
    for (std::size_t k = 0; k < o.staleness.size(); ++k) all.staleness[k] += o.staleness[k];
    all.staleness_under_way += o.staleness_under_way;
    all.applied = std::max(all.applied, o.applied);
    all.largest_gap = std::max(all.largest_gap, o.largest_gap);
    all.dropped += o.dropped;
    all.held_s += o.held_s / static_cast<double>(chunks_.size());
  }
  return all;
}

}  // namespace gradmeter::dataparallel
