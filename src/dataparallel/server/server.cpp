// SPDX-License-Identifier: Apache-2.0
#include "dataparallel/server/server.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "core/format.hpp"

namespace gradmeter::dataparallel {

ReplyQueue::ReplyQueue(Port& port, const Sharding& sharding, std::uint32_t server, const ServicePlan& plan,
                       std::span<const float> first)
    : port_(port),
      sharding_(sharding),
      server_(server),
      coding_(plan.weights),
      seed_(plan.options.seed),
      connections_(static_cast<std::size_t>(plan.workers)),
      snapshots_(sharding.chunks(server)) {
  std::vector<std::shared_ptr<const Snapshot>> initial(snapshots_.size());
  for (std::size_t i = 0; i < initial.size(); ++i) {
    const Range chunk = sharding.chunk(server, i);
    encoders_.push_back(coding_.encoder(chunk.count));
    if (!coding_.encodes(chunk.count)) continue;
    const auto values = first.subspan(chunk.first, chunk.count);
    initial[i] = std::make_shared<Snapshot>(Snapshot{.id = ++last_id_, .values = {values.begin(), values.end()}});
  }
  for (WorkerConnection& c : connections_) c.worker_has = initial;
}

void ReplyQueue::acknowledge(int worker, const MessageHeader& h) {
  connection(worker).acknowledgements.push_back(h);
  while (send_acknowledgement(worker)) {
  }
}

void ReplyQueue::answer(ExecutionContext& context, Reply reply, ChunkWeights& weights) {
  const int worker = reply.read.worker;
  const std::size_t chunk = reply.chunk;
  WorkerConnection& worker_connection = connection(worker);
  const Snapshot* base = reply.for_evaluation ? nullptr : worker_connection.worker_has[chunk].get();
  const bool goes_at_once = !base && worker_connection.replies.empty();
  if (!reply.for_evaluation) {
    if (goes_at_once && post_written(reply, weights.end_offer(worker))) return;
    weights.forget(context, worker);  // the weights go by message, and the worker then writes to its memory
  }
  if (goes_at_once && weights.can_send()) {
    const auto bytes = std::as_bytes(weights.weights_to_send(context));
    Ticket t = port_.post_from(worker, header_of(reply, bytes.size()), bytes, "weights");
    if (t) return weights.note_message(std::move(t));
  }
  reply.weights = snapshot(context, reply, weights.values(), base);
  if (base) worker_connection.worker_has[chunk] = reply.weights;
  worker_connection.replies.push_back(std::move(reply));
}

/// Posts a message that says that the weights lie in the worker's memory already. Returns false if they do not, or if
/// the port has no room.
bool ReplyQueue::post_written(const Reply& reply, std::span<float> weights) {
  if (weights.empty()) return false;
  const auto bytes = std::as_writable_bytes(weights);
  MessageHeader h = header_of(reply, bytes.size());
  h.payload_place = reply.read.header.answer_place;
  return port_.post_written(reply.read.worker, h, bytes, "weights") != nullptr;
}

ReplyQueue::SnapshotPtr ReplyQueue::snapshot(ExecutionContext& context, const Reply& reply,
                                             std::span<const float> weights, const Snapshot* base) {
  const std::uint64_t base_id = base ? base->id : 0;
  auto& snapshots = snapshots_[reply.chunk];
  SnapshotPtr free;
  for (auto& s : snapshots) {
    if (s->version == reply.version && s->base_id == base_id) return s;
    if (s.use_count() == 1) free = s;
  }
  if (!free) free = snapshots.emplace_back(std::make_shared<Snapshot>());
  free->version = reply.version;
  free->id = ++last_id_;
  free->base_id = base_id;
  free->wire.clear();
  free->values.resize(weights.size());
  context.submit("server.copy", {0, 8.0 * double(weights.size())},
                 [&] { std::ranges::copy(weights, free->values.begin()); });
  if (base) encode(context, *free, *base, reply.chunk);
  return free;
}

bool ReplyQueue::all_acknowledged() const {
  return std::all_of(connections_.begin(), connections_.end(),
                     [](const WorkerConnection& c) { return c.acknowledgements.empty(); });
}

void ReplyQueue::send(ExecutionContext& context) {
  for (int w = 0; w < static_cast<int>(connections_.size()); ++w) {
    while (send_acknowledgement(w)) {
    }
    while (send_weights(context, w)) {
    }
  }
}

bool ReplyQueue::send_acknowledgement(int worker) {
  auto& waiting = connection(worker).acknowledgements;
  if (waiting.empty() || !port_.draft(worker, 0)) return false;
  MessageHeader h = waiting.front();
  waiting.pop_front();
  h.operation = static_cast<std::uint16_t>(Opcode::ack);
  h.bytes = 0;
  port_.post(worker, h, "acknowledge");
  return true;
}

/// Encodes the change from `base`. The loss stays in the snapshot's values, which become those that the worker decodes.
void ReplyQueue::encode(ExecutionContext& context, Snapshot& encoded, const Snapshot& base, std::size_t chunk) {
  const Range range = sharding_.chunk(server_, chunk);
  const std::size_t n = range.count;
  const compression::RandomDraw draw = draw_of_weights(seed_, server_, encoded.version, range.first);
  change_.resize(n);
  encoded.wire.resize(coding_.wire_bytes(n));
  coding_.work(context, "server.encode", n, encoded.wire.size(), [&] {
    for (std::size_t k = 0; k < n; ++k) change_[k] = encoded.values[k] - base.values[k];
    encoded.wire.resize(encoders_[chunk](change_, encoded.wire.data(), draw));
  });
  coding_.work(context, "server.decode", n, encoded.wire.size(), [&] {
    coding_.decode(encoded.wire, change_, draw);
    for (std::size_t k = 0; k < n; ++k) encoded.values[k] = base.values[k] + change_[k];
  });
}

bool ReplyQueue::send_weights(ExecutionContext& context, int worker) {
  auto& replies = connection(worker).replies;
  if (replies.empty()) return false;
  const Reply& reply = replies.front();
  const Snapshot& weights = *reply.weights;
  const std::span<const std::byte> bytes = weights.base_id != 0 ? std::span<const std::byte>(weights.wire)
                                                                : std::as_bytes(std::span<const float>(weights.values));
  const auto draft = port_.draft(worker, bytes.size());
  if (!draft) return false;
  context.run_and_wait([&] { std::ranges::copy(bytes, draft->begin()); });
  port_.post(worker, header_of(reply, bytes.size()), "weights");
  replies.pop_front();
  return true;
}

MessageHeader ReplyQueue::header_of(const Reply& reply, std::size_t bytes) const {
  const Range range = sharding_.chunk(server_, reply.chunk);
  return {.operation = static_cast<std::uint16_t>(Opcode::weights),
          .outside_step = reply.read.header.outside_step,
          .server_number = server_,
          .clock = reply.slowest_clock,
          .version = reply.version,
          .sequence = reply.read.header.sequence,
          .first = range.first,
          .count = range.count,
          .bytes = bytes,
          .value = reply.held};
}

namespace {

/// The number of floats for two copies of a chunk, each of which begins on a cache line.
std::size_t elements_of_copies(Range chunk) { return 2 * ((chunk.count + 15) / 16 * 16); }

}  // namespace

Server::Server(const ServicePlan& plan, const Sharding& sharding, std::uint32_t server, std::span<const float> weights,
               std::span<const model::Tensor> tensors, std::unique_ptr<Port> port, std::span<float> memory)
    : plan_(plan),
      sharding_(sharding),
      port_(std::move(port)),
      reply_queue_(*port_, sharding, server, plan_, weights),
      training_(plan.workers),
      gone_(static_cast<std::size_t>(plan.workers)),
      evaluations_(static_cast<std::size_t>(plan.workers)) {
  const int rank = plan.first_server + static_cast<int>(server);
  const int own_worker = rank < plan.workers ? rank : -1;
  for (std::size_t i = 0; i < sharding.chunks(server); ++i) {
    const Range range = sharding.chunk(server, i);
    const std::size_t n = elements_of_copies(range);
    chunks_.emplace_back(plan_, own_worker, spare_, range, weights, tensors, memory.first(n));
    memory = memory.subspan(n);
  }
}

std::size_t Server::elements_needed(const Sharding& sharding, std::uint32_t server) {
  std::size_t sum = 0;
  for (std::size_t i = 0; i < sharding.chunks(server); ++i) sum += elements_of_copies(sharding.chunk(server, i));
  return sum;
}

void Server::run(ExecutionContext& context) {
  constexpr const char* why = "messages from workers";
  std::unique_lock lock(message_mutex_);
  context_ = &context;
  while (training_ > 0 || !reply_queue_.all_acknowledged()) {
    lock.unlock();
    const bool is_shared = port_->await(why);
    lock.lock();
    take_one(is_shared ? port_->poll() : port_->next(why));
  }
  context_ = nullptr;
  port_->close();
}

bool Server::serve_one_message() {
  const std::unique_lock lock(message_mutex_, std::try_to_lock);
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

void Server::take_push(const Message& message) {
  const MessageHeader& h = message.header;
  const int from = message.from;
  const std::size_t i = sharding_.index_of(h.first);
  ServedChunk& chunk = chunks_.at(i);
  chunk.take(*context_, *port_, message);
  reply_queue_.acknowledge(from, h);  // only after `take`: an acknowledged worker may overwrite the change
  if (h.sequence > 0) {
    Read read{.worker = from, .header = h, .since = context_->now()};
    read.header.clock = read.header.version = h.clock + 1;
    chunk.ask(read);
  }
  answer_reads(i);
}

void Server::take_pull(int from, const MessageHeader& h) {
  for (std::size_t i = chunks_.size(); i-- > 0;) {  // the last chunk first, as a forward pass reads them
    chunks_[i].ask({.worker = from, .header = h, .since = context_->now()});
    answer_reads(i);
  }
}

void Server::take_evaluate(int from, const MessageHeader& h) {
  evaluations_[static_cast<std::size_t>(from)] = Read{.worker = from, .header = h, .since = context_->now()};
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
  while (const auto read = chunks_[chunk].next_read(*context_)) answer(*read, chunk, false);
}

void Server::answer_evaluations() {
  for (std::size_t w = 0; w < evaluations_.size(); ++w) {
    if (!gone_[w] && !evaluations_[w]) return;
  }
  for (auto& evaluation : evaluations_) {
    const auto read = std::exchange(evaluation, std::nullopt);
    for (std::size_t i = 0; read && i < chunks_.size(); ++i) answer(*read, i, true);
  }
}

void Server::answer(const Read& read, std::size_t chunk, bool for_evaluation) {
  ServedChunk& c = chunks_[chunk];
  reply_queue_.answer(*context_,
                      {.read = read,
                       .chunk = chunk,
                       .for_evaluation = for_evaluation,
                       .version = c.version(),
                       .slowest_clock = c.slowest_clock(),
                       .held = context_->now() - read.since},
                      c.weights());
}

std::vector<WeightsInPlace> Server::held_weights() const {
  std::vector<WeightsInPlace> out;
  for (const ServedChunk& chunk : chunks_) out.push_back({.first = chunk.first(), .values = chunk.weights().values()});
  return out;
}

Observations Server::observed() const {
  Observations observations;
  for (const ServedChunk& chunk : chunks_) {
    const Observations o = chunk.observed();
    if (observations.staleness.size() < o.staleness.size()) observations.staleness.resize(o.staleness.size(), 0);
    for (std::size_t k = 0; k < o.staleness.size(); ++k) observations.staleness[k] += o.staleness[k];
    observations.staleness_under_way += o.staleness_under_way;
    observations.applied = std::max(observations.applied, o.applied);
    observations.largest_gap = std::max(observations.largest_gap, o.largest_gap);
    observations.dropped += o.dropped;
    observations.read_wait_s += o.read_wait_s / static_cast<double>(chunks_.size());
  }
  return observations;
}

}  // namespace gradmeter::dataparallel
