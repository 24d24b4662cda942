#include "dataparallel/server/change_queue.hpp"

namespace gradmeter::dataparallel {

Change ChangeQueue::fresh() {
  Change c{.missing = sharding_.chunks(shard_)};
  c.here.assign(c.missing, false);
  if (!spare_.empty()) {
    c.values = std::move(spare_.back());
    spare_.pop_back();
  }
  c.values.resize(sharding_.shard(shard_).count);
  return c;
}

bool ChangeQueue::take(ExecutionContext& fabric, int worker, const MessageHeader& h,
                       std::span<const std::byte> payload) {
  Client& client = of(worker);
  if (client.begun == h.clock) {
    client.changes.push_back(fresh());
    ++client.begun;
  }
  Change& change = client.changes.back();
  const std::size_t chunk = sharding_.chunk_of(shard_, h.first);
  if (change.here.at(chunk)) return false;
  const auto out = std::span(change.values).subspan(h.first - sharding_.shard(shard_).first, h.count);
  coding_.work(fabric, "server.decode", h.count, h.bytes,
               [&] { coding_.decode(payload, out, draw_of_change(seed_, worker, h.clock, h.first)); });
  change.here[chunk] = true;
  change.base = h.version;
  change.size = static_cast<float>(h.value);
  return --change.missing == 0;
}

Change ChangeQueue::pop(int worker) {
  Client& client = of(worker);
  Change c = std::move(client.changes.front());
  client.changes.pop_front();
  return c;
}

void ChangeQueue::drop_incomplete(int worker) {
  Client& client = of(worker);
  if (client.changes.empty() || client.changes.back().missing == 0) return;
  client.changes.pop_back();
  --client.begun;
}

}  // namespace gradmeter::dataparallel
