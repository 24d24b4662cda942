#include "dataparallel/server/change_queue.hpp"

namespace gradmeter::dataparallel {

Change ChangeQueue::fresh() {
  Change c{.missing = sharding_.chunks(shard_)};
  if (!spare_.empty()) {
    c.values = std::move(spare_.back());
    spare_.pop_back();
  }
  c.values.resize(sharding_.shard(shard_).count);
  return c;
}

bool ChangeQueue::take(ExecutionContext& fabric, int worker, const MessageHeader& h,
                       std::span<const std::byte> payload) {
  auto& changes = of(worker);
  if (changes.empty() || changes.back().missing == 0) changes.push_back(fresh());
  Change& change = changes.back();
  const auto out = std::span(change.values).subspan(h.first - sharding_.shard(shard_).first, h.count);
  coding_.work(fabric, "server.decode", h.count, h.bytes,
               [&] { coding_.decode(payload, out, draw_of_change(seed_, worker, h.clock, h.first)); });
  change.base = h.version;
  change.size = static_cast<float>(h.value);
  return --change.missing == 0;
}

Change ChangeQueue::pop(int worker) {
  Change c = std::move(of(worker).front());
  of(worker).pop_front();
  return c;
}

void ChangeQueue::drop_incomplete(int worker) {
  auto& changes = of(worker);
  if (!changes.empty() && changes.back().missing > 0) changes.pop_back();
}

}  // namespace gradmeter::dataparallel
