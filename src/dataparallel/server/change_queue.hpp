// A server's received changes of its shard, chunk by chunk.
#pragma once
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "dataparallel/fabric.hpp"
#include "dataparallel/server/protocol.hpp"

namespace gradmeter::dataparallel {

/// One worker's change of the shard, as far as it has been received.
struct Change {
  std::uint64_t base = 0;   ///< version of the weights that it was computed from
  float size = 0;           ///< of its step
  std::size_t missing = 0;  ///< chunks
  std::vector<float> values = {};
};

/// Memory: one shard for every worker whose change is on its way or waits for its clock.
class ChangeQueue {
 public:
  ChangeQueue(const Sharding& sharding, std::uint32_t shard, const Coding& coding, std::uint64_t seed, int workers)
      : sharding_(sharding), shard_(shard), coding_(coding), seed_(seed), changes_(static_cast<std::size_t>(workers)) {}

  /// Takes a chunk of the worker's update after the complete ones. Returns whether this chunk completes it.
  bool take(ExecutionContext&, int worker, const MessageHeader&, std::span<const std::byte> payload);
  /// Has the worker a complete change here?
  bool has(int worker) const { return !of(worker).empty() && of(worker).front().missing == 0; }
  /// The worker's oldest one, which must be complete.
  Change pop(int worker);
  /// Its memory may be used again.
  void recycle(Change c) { spare_.push_back(std::move(c.values)); }
  /// Drops that worker's incomplete changes, which will not be completed.
  void drop_incomplete(int worker);

 private:
  std::deque<Change>& of(int worker) { return changes_[static_cast<std::size_t>(worker)]; }
  const std::deque<Change>& of(int worker) const { return changes_[static_cast<std::size_t>(worker)]; }
  Change fresh();

  const Sharding sharding_;
  const std::uint32_t shard_;
  const Coding coding_;
  const std::uint64_t seed_;
  std::vector<std::deque<Change>> changes_;  ///< by worker; the last one may be incomplete
  std::vector<std::vector<float>> spare_;
};

}  // namespace gradmeter::dataparallel
