#include "dataparallel/server/reply_queue.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace gradmeter::dataparallel {

ReplyQueue::ReplyQueue(const Sharding& sharding, std::uint32_t shard, const Coding& coding, std::uint64_t seed,
                       int workers, std::span<const float> first)
    : sharding_(sharding),
      shard_(shard),
      coding_(coding),
      seed_(seed),
      connections_(static_cast<std::size_t>(workers)) {
  bool any = false;
  for (std::size_t i = 0; i < sharding.chunks(shard); ++i) {
    const std::size_t n = sharding.chunk(shard, i).count;
    encoders_.push_back(coding_.encoder(n));
    any |= coding_.encodes(n);
  }
  if (!any) return;
  const auto begin = std::make_shared<Version>(Version{.id = ++last_id_, .values = {first.begin(), first.end()}});
  for (WorkerConnection& l : connections_) l.has = begin;
}

void ReplyQueue::answer(ExecutionContext& f, int worker, const ReadRequest& r, std::span<const float> weights,
                        std::uint64_t version, std::uint64_t slowest, double held) {
  WorkerConnection& l = connection(worker);
  l.reply = Reply{.request = r,
                  .weights = snapshot(f, weights, version, r.for_evaluation ? nullptr : l.has),
                  .slowest = slowest,
                  .held = held};
}

std::shared_ptr<ReplyQueue::Version> ReplyQueue::snapshot(ExecutionContext& f, std::span<const float> weights,
                                                          std::uint64_t version, std::shared_ptr<const Version> base) {
  const std::uint64_t base_id = base ? base->id : 0;
  std::shared_ptr<Version> free;
  for (auto& v : versions_) {
    if (v->number == version && v->base_id == base_id) return v;
    if (v.use_count() == 1) free = v;
  }
  if (!free) free = versions_.emplace_back(std::make_shared<Version>());
  free->number = version;
  free->id = ++last_id_;
  free->base_id = base_id;
  free->base = std::move(base);
  free->wire.assign(encoders_.size(), {});
  free->values.resize(weights.size());
  f.submit("server.copy", {0, 8.0 * double(weights.size())}, [&] { std::ranges::copy(weights, free->values.begin()); });
  return free;
}

bool ReplyQueue::all_acknowledged() const {
  return std::all_of(connections_.begin(), connections_.end(),
                     [](const WorkerConnection& l) { return l.acknowledgements.empty(); });
}

void ReplyQueue::send(ExecutionContext& f, Port& port) {
  for (int w = 0; w < static_cast<int>(connections_.size()); ++w) {
    while (send_acknowledgement(port, w)) {
    }
    while (send_weights(f, port, w)) {
    }
  }
}

bool ReplyQueue::send_acknowledgement(Port& port, int worker) {
  auto& waiting = connection(worker).acknowledgements;
  if (waiting.empty() || !port.draft(worker, 0)) return false;
  MessageHeader h = waiting.front();
  waiting.pop_front();
  h.operation = static_cast<std::uint16_t>(Opcode::ack);
  h.bytes = 0;
  port.post(worker, h, "acknowledge");
  return true;
}

void ReplyQueue::encode(ExecutionContext& f, Version& v, std::size_t i) {
  const Range chunk = sharding_.chunk(shard_, i);
  const std::size_t n = chunk.count, at = chunk.first - sharding_.shard(shard_).first;
  const std::span<float> values = std::span(v.values).subspan(at, n);
  const std::span<const float> base = std::span(v.base->values).subspan(at, n);
  const compression::Draw draw = draw_of_weights(seed_, shard_, v.number, chunk.first);
  std::vector<std::byte>& wire = v.wire[i];
  change_.resize(n);
  wire.resize(coding_.wire_bytes(n));
  coding_.work(f, "server.encode", n, wire.size(), [&] {
    for (std::size_t k = 0; k < n; ++k) change_[k] = values[k] - base[k];
    wire.resize(encoders_[i]->encode(change_, wire.data(), draw));
  });
  coding_.work(f, "server.decode", n, wire.size(), [&] {
    coding_.decode(wire, change_, draw);
    for (std::size_t k = 0; k < n; ++k) values[k] = base[k] + change_[k];
  });
}

std::size_t ReplyQueue::write(ExecutionContext& f, Version& v, std::size_t i, std::byte* wire) {
  const Range chunk = sharding_.chunk(shard_, i);
  if (!encodes(v, chunk.count)) {
    const auto values = std::span(v.values).subspan(chunk.first - sharding_.shard(shard_).first, chunk.count);
    std::memcpy(wire, values.data(), values.size_bytes());
    return values.size_bytes();
  }
  if (v.wire[i].empty()) encode(f, v, i);
  std::ranges::copy(v.wire[i], wire);
  return v.wire[i].size();
}

bool ReplyQueue::send_weights(ExecutionContext& f, Port& port, int worker) {
  WorkerConnection& l = connection(worker);
  if (!l.reply) return false;
  Reply& reply = *l.reply;
  Version& v = *reply.weights;
  const Range chunk = sharding_.chunk(shard_, reply.next);
  const auto draft =
      port.draft(worker, encodes(v, chunk.count) ? coding_.wire_bytes(chunk.count) : chunk.count * sizeof(float));
  if (!draft) return false;
  const std::size_t bytes = write(f, v, reply.next, draft->data());
  port.post(worker,
            {.operation = static_cast<std::uint16_t>(Opcode::weights),
             .outside_step = reply.request.outside_step,
             .shard = shard_,
             .clock = reply.slowest,
             .version = v.number,
             .sequence = reply.request.sequence,
             .first = chunk.first,
             .count = chunk.count,
             .bytes = bytes,
             .value = reply.held},
            "weights");
  if (++reply.next < encoders_.size()) return true;
  v.base.reset();
  if (v.base_id != 0) l.has = reply.weights;
  l.reply.reset();
  return true;
}

}  // namespace gradmeter::dataparallel
