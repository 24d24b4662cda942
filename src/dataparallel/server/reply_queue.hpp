// A server's replies: acknowledgements, and weights of one version, as fast as each worker's link takes them.
#pragma once
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "dataparallel/fabric.hpp"
#include "dataparallel/server/protocol.hpp"

namespace gradmeter::dataparallel {

/// A read that a worker asked for.
struct ReadRequest {
  std::uint64_t sequence = 0, clock = 0, own = 0;
  bool for_evaluation = false;  ///< waits until all workers evaluate
  std::uint16_t outside_step = 0;
  double since = 0;  ///< when it came [s]
};

/// Never waits: replies without room stay here, so that a slow worker delays no other.
/// With a codec weights are sent as changes of what the worker has, and what encoding one loses is part of the next
/// (DoubleSqueeze). A server knows what each worker has. Workers that have read the same versions have the same, as in
/// `ps-sync`, so each change is encoded once for all of them; otherwise each has its own.
/// Memory: a copy of the shard for every version that is still being read; with a codec, one for every difference in
/// what workers have (1 with BSP, up to the workers with SSP and ASP).
/// Source: Tang et al., "DoubleSqueeze", ICML 2019, algorithm 1, with the server's residual kept as weights - copy.
class ReplyQueue {
 public:
  /// first: the shard as all workers have it.
  ReplyQueue(const Sharding&, std::uint32_t shard, const Coding&, std::uint64_t seed, int workers,
             std::span<const float> first);

  void acknowledge(int worker, const MessageHeader& h) { connection(worker).acknowledgements.push_back(h); }
  /// slowest: so many updates of every worker are in the weights. held: how long the request had to wait [s].
  void answer(ExecutionContext&, int worker, const ReadRequest&, std::span<const float> weights, std::uint64_t version,
              std::uint64_t slowest, double held);
  /// No more weights to that worker, or nothing at all.
  void drop_reply(int worker) { connection(worker).reply.reset(); }
  void drop_all(int worker) { connection(worker) = {}; }
  bool all_acknowledged() const;
  /// Posts messages as far as there is room.
  void send(ExecutionContext&, Port&);

 private:
  /// base: the version that it is encoded as a change of, kept until it is; base_id 0: none.
  struct Version {
    std::uint64_t number = 0, id = 0, base_id = 0;
    std::shared_ptr<const Version> base = {};
    std::vector<float> values = {};                 ///< the server's; of encoded chunks, as the workers decode them
    std::vector<std::vector<std::byte>> wire = {};  ///< by chunk; empty: not encoded
  };
  struct Reply {
    ReadRequest request = {};
    std::shared_ptr<Version> weights = {};
    std::uint64_t slowest = 0;
    double held = 0;
    std::size_t next = 0;  ///< chunk
  };
  struct WorkerConnection {
    std::deque<MessageHeader> acknowledgements = {};
    std::optional<Reply> reply = {};
    std::shared_ptr<const Version> has = {};  ///< what the worker has once all that was sent has arrived
  };
  WorkerConnection& connection(int worker) { return connections_[static_cast<std::size_t>(worker)]; }
  std::shared_ptr<Version> snapshot(ExecutionContext&, std::span<const float> weights, std::uint64_t version,
                                    std::shared_ptr<const Version> base);
  bool send_acknowledgement(Port&, int worker);
  bool send_weights(ExecutionContext&, Port&, int worker);
  bool encodes(const Version& v, std::size_t n) const { return v.base_id != 0 && coding_.encodes(n); }
  void encode(ExecutionContext&, Version&, std::size_t i);
  /// Chunk i. Returns the bytes written.
  std::size_t write(ExecutionContext&, Version&, std::size_t i, std::byte* wire);

  const Sharding sharding_;
  const std::uint32_t shard_;
  const Coding coding_;
  const std::uint64_t seed_;
  std::vector<std::unique_ptr<ChunkEncoder>> encoders_;  ///< by chunk
  std::vector<WorkerConnection> connections_;
  std::vector<std::shared_ptr<Version>> versions_;
  std::uint64_t last_id_ = 0;
  std::vector<float> change_;  ///< of a chunk
};

}  // namespace gradmeter::dataparallel
