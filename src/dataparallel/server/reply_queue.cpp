#include "dataparallel/server/reply_queue.hpp"

#include <algorithm>

namespace gradmeter::dataparallel {

ReplyQueue::ReplyQueue(Port& port, const Sharding& sharding, std::uint32_t server, const Coding& coding,
                       std::uint64_t seed, int workers, std::span<const float> first)
    : port_(port),
      sharding_(sharding),
      server_(server),
      coding_(coding),
      seed_(seed),
      connections_(static_cast<std::size_t>(workers)),
      versions_(sharding.chunks(server)) {
  std::vector<std::shared_ptr<const Version>> begin(versions_.size());
  for (std::size_t i = 0; i < begin.size(); ++i) {
    const Range chunk = sharding.chunk(server, i);
    encoders_.push_back(coding_.encoder(chunk.count));
    if (!coding_.encodes(chunk.count)) continue;
    const auto values = first.subspan(chunk.first, chunk.count);
    begin[i] = std::make_shared<Version>(Version{.id = ++last_id_, .values = {values.begin(), values.end()}});
  }
  for (WorkerConnection& l : connections_) l.has = begin;
}

void ReplyQueue::acknowledge(int worker, const MessageHeader& h) {
  connection(worker).acknowledgements.push_back(h);
  while (send_acknowledgement(worker)) {
  }
}

void ReplyQueue::answer(ExecutionContext& f, const Answer& a, ChunkWeights& weights) {
  WorkerConnection& l = connection(a.worker);
  const Version* base = a.for_evaluation ? nullptr : l.has[a.chunk].get();
  const bool goes_at_once = !base && l.replies.empty();
  if (!a.for_evaluation) {
    if (goes_at_once && post_written(a, weights.withdraw(a.worker))) return;
    weights.forget(f, a.worker);  // it will write what it gets to its memory
  }
  if (goes_at_once && weights.lends()) {
    const auto bytes = std::as_bytes(weights.to_lend(f));
    Ticket t = port_.post_from(a.worker, header_of(a, bytes.size()), bytes, "weights");
    if (t) return weights.lend(std::move(t));
  }
  l.replies.push_back({a, snapshot(f, a, weights.values(), base)});
  if (base) l.has[a.chunk] = l.replies.back().weights;
}

/// Of weights that lie in the worker's memory; false: they do not, or there is no room.
bool ReplyQueue::post_written(const Answer& a, std::span<float> weights) {
  if (weights.empty()) return false;
  const auto bytes = std::as_writable_bytes(weights);
  MessageHeader h = header_of(a, bytes.size());
  h.payload_place = a.request.answer_place;
  return port_.post_written(a.worker, h, bytes, "weights") != nullptr;
}

ReplyQueue::VersionPtr ReplyQueue::snapshot(ExecutionContext& f, const Answer& a, std::span<const float> weights,
                                            const Version* base) {
  const std::uint64_t base_id = base ? base->id : 0;
  auto& versions = versions_[a.chunk];
  VersionPtr free;
  for (auto& v : versions) {
    if (v->number == a.version && v->base_id == base_id) return v;
    if (v.use_count() == 1) free = v;
  }
  if (!free) free = versions.emplace_back(std::make_shared<Version>());
  free->number = a.version;
  free->id = ++last_id_;
  free->base_id = base_id;
  free->wire.clear();
  free->values.resize(weights.size());
  f.submit("server.copy", {0, 8.0 * double(weights.size())}, [&] { std::ranges::copy(weights, free->values.begin()); });
  if (base) encode(f, *free, *base, a.chunk);
  return free;
}

bool ReplyQueue::all_acknowledged() const {
  return std::all_of(connections_.begin(), connections_.end(),
                     [](const WorkerConnection& l) { return l.acknowledgements.empty(); });
}

void ReplyQueue::send(ExecutionContext& f) {
  for (int w = 0; w < static_cast<int>(connections_.size()); ++w) {
    while (send_acknowledgement(w)) {
    }
    while (send_weights(f, w)) {
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

/// What is lost stays in values, which become what the worker decodes.
void ReplyQueue::encode(ExecutionContext& f, Version& v, const Version& base, std::size_t chunk) {
  const Range range = sharding_.chunk(server_, chunk);
  const std::size_t n = range.count;
  const compression::Draw draw = draw_of_weights(seed_, server_, v.number, range.first);
  change_.resize(n);
  v.wire.resize(coding_.wire_bytes(n));
  coding_.work(f, "server.encode", n, v.wire.size(), [&] {
    for (std::size_t k = 0; k < n; ++k) change_[k] = v.values[k] - base.values[k];
    v.wire.resize(encoders_[chunk]->encode(change_, v.wire.data(), draw));
  });
  coding_.work(f, "server.decode", n, v.wire.size(), [&] {
    coding_.decode(v.wire, change_, draw);
    for (std::size_t k = 0; k < n; ++k) v.values[k] = base.values[k] + change_[k];
  });
}

bool ReplyQueue::send_weights(ExecutionContext& f, int worker) {
  auto& replies = connection(worker).replies;
  if (replies.empty()) return false;
  const Reply& reply = replies.front();
  const Version& v = *reply.weights;
  const std::span<const std::byte> bytes =
      v.base_id != 0 ? std::span<const std::byte>(v.wire) : std::as_bytes(std::span<const float>(v.values));
  const auto draft = port_.draft(worker, bytes.size());
  if (!draft) return false;
  f.at_once([&] { std::ranges::copy(bytes, draft->begin()); });
  port_.post(worker, header_of(reply.answer, bytes.size()), "weights");
  replies.pop_front();
  return true;
}

MessageHeader ReplyQueue::header_of(const Answer& a, std::size_t bytes) const {
  const Range range = sharding_.chunk(server_, a.chunk);
  return {.operation = static_cast<std::uint16_t>(Opcode::weights),
          .outside_step = a.request.outside_step,
          .shard = server_,
          .clock = a.slowest,
          .version = a.version,
          .sequence = a.request.sequence,
          .first = range.first,
          .count = range.count,
          .bytes = bytes,
          .value = a.held};
}

}  // namespace gradmeter::dataparallel
