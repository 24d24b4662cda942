#include "dataparallel/server/outbox.hpp"

#include <algorithm>

namespace gradmeter::dataparallel {

Outbox::Outbox(const Sharding& sharding, std::uint32_t shard, const Coding& coding, std::uint64_t seed, int workers)
    : sharding_(sharding), shard_(shard), coding_(coding), seed_(seed), lines_(static_cast<std::size_t>(workers)) {
  for (std::size_t i = 0; i < sharding.chunks(shard); ++i) {
    encoders_.push_back(coding_.encoder(sharding.chunk(shard, i).count));
  }
}

void Outbox::answer(Fabric& f, int worker, const Request& r, std::span<const float> weights, std::uint64_t version,
                    std::uint64_t slowest, double held) {
  line(worker).reply = Reply{.request = r, .weights = snapshot(f, weights, version), .slowest = slowest, .held = held};
}

std::shared_ptr<const Outbox::Version> Outbox::snapshot(Fabric& f, std::span<const float> weights,
                                                        std::uint64_t version) {
  std::shared_ptr<Version> free;
  for (auto& v : versions_) {
    if (v->number == version && !v->values.empty()) return v;
    if (v.use_count() == 1) free = v;
  }
  if (!free) free = versions_.emplace_back(std::make_shared<Version>());
  free->number = version;
  f.compute("server.copy", {0, 8.0 * double(weights.size())},
            [&] { free->values.assign(weights.begin(), weights.end()); });
  return free;
}

bool Outbox::all_acknowledged() const {
  return std::all_of(lines_.begin(), lines_.end(), [](const Line& l) { return l.acknowledgements.empty(); });
}

void Outbox::send(Fabric& f, Port& port) {
  for (int w = 0; w < static_cast<int>(lines_.size()); ++w) {
    while (send_acknowledgement(port, w)) {
    }
    while (send_weights(f, port, w)) {
    }
  }
}

bool Outbox::send_acknowledgement(Port& port, int worker) {
  auto& waiting = line(worker).acknowledgements;
  if (waiting.empty() || !port.draft(worker, 0)) return false;
  MailHeader h = waiting.front();
  waiting.pop_front();
  h.operation = static_cast<std::uint16_t>(Word::ack);
  h.bytes = 0;
  port.post(worker, h, "acknowledge");
  return true;
}

std::size_t Outbox::encode(Fabric& f, const Version& weights, std::size_t i, std::byte* wire) {
  const Range chunk = sharding_.chunk(shard_, i);
  const auto values = std::span(weights.values).subspan(chunk.first - sharding_.shard(shard_).first, chunk.count);
  const compression::Draw draw = draw_of_weights(seed_, shard_, weights.number, chunk.first);
  std::size_t bytes = 0;
  coding_.work(f, "server.encode", chunk.count, coding_.wire_bytes(chunk.count),
               [&] { bytes = encoders_[i]->encode(values, wire, draw); });
  return bytes;
}

bool Outbox::send_weights(Fabric& f, Port& port, int worker) {
  if (!answers(worker)) return false;
  Reply& reply = *line(worker).reply;
  const Range chunk = sharding_.chunk(shard_, reply.next);
  const auto draft = port.draft(worker, coding_.wire_bytes(chunk.count));
  if (!draft) return false;
  const std::size_t bytes = encode(f, *reply.weights, reply.next, draft->data());
  port.post(worker,
            {.operation = static_cast<std::uint16_t>(Word::weights),
             .beside = reply.request.beside,
             .shard = shard_,
             .clock = reply.slowest,
             .version = reply.weights->number,
             .sequence = reply.request.sequence,
             .first = chunk.first,
             .count = chunk.count,
             .bytes = bytes,
             .value = reply.held},
            "weights");
  if (++reply.next == sharding_.chunks(shard_)) line(worker).reply.reset();
  return true;
}

}  // namespace gradmeter::dataparallel
