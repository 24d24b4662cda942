// A server's replies: acknowledgements, and weights chunk by chunk, as fast as each worker's link takes them.
#pragma once
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "dataparallel/fabric.hpp"
#include "dataparallel/server/served_chunk.hpp"

namespace gradmeter::dataparallel {

/// Never waits: replies without room stay here, so that a slow worker delays no other.
/// With a codec weights are sent as changes of what the worker has, and what encoding one loses is part of the next
/// (DoubleSqueeze). A server knows what each worker has. Workers that have read the same versions of a chunk have the
/// same, as in `ps-sync`, so each change is encoded once for all of them; otherwise each has its own.
/// Memory: a copy of a chunk for every version that waits for room; with a codec, one for every difference in what
/// workers have (1 with BSP, up to the workers with SSP and ASP).
/// Source: Tang et al., "DoubleSqueeze", ICML 2019, algorithm 1, with the server's residual kept as weights - copy.
class ReplyQueue {
 public:
  /// first: the whole flat buffer as all workers have it. The port must outlive it.
  ReplyQueue(Port&, const Sharding&, std::uint32_t server, const Coding&, std::uint64_t seed, int workers,
             std::span<const float> first);

  void acknowledge(int worker, const MessageHeader&);
  struct Answer {
    int worker = 0;
    std::size_t chunk = 0;  ///< of this server
    ReadRequest request = {};
    bool for_evaluation = false;  ///< the weights as they are, whatever the codec
    std::uint64_t version = 0;
    std::uint64_t slowest = 0;  ///< so many updates of every worker are in the weights
    double held = 0;            ///< how long the request had to wait [s]
  };
  /// With the chunk's weights as they are now. If they go dense and there is room they leave from where they are, or
  /// lie already where the worker reads them.
  void answer(ExecutionContext&, const Answer&, ChunkWeights&);
  /// No more weights to that worker, or nothing at all.
  void drop_replies(int worker) { connection(worker).replies.clear(); }
  void drop_all(int worker) { connection(worker) = {}; }
  bool all_acknowledged() const;
  /// Posts messages as far as there is room.
  void send(ExecutionContext&);

 private:
  /// Of one chunk. base_id: of the version that it is encoded as a change of; 0: it is sent as it is.
  struct Version {
    std::uint64_t number = 0, id = 0, base_id = 0;
    std::vector<float> values = {};    ///< the server's; where encoded, as the workers decode them
    std::vector<std::byte> wire = {};  ///< where encoded
  };
  using VersionPtr = std::shared_ptr<Version>;
  struct Reply {
    Answer answer = {};
    VersionPtr weights = {};
  };
  struct WorkerConnection {
    std::deque<MessageHeader> acknowledgements = {};
    std::deque<Reply> replies = {};
    /// By chunk: what the worker has once all that was sent has arrived; null: the chunk is not encoded.
    std::vector<std::shared_ptr<const Version>> has = {};
  };
  WorkerConnection& connection(int worker) { return connections_[static_cast<std::size_t>(worker)]; }
  bool post_written(const Answer&, std::span<float> weights);
  VersionPtr snapshot(ExecutionContext&, const Answer&, std::span<const float> weights, const Version* base);
  bool send_acknowledgement(int worker);
  bool send_weights(ExecutionContext&, int worker);
  void encode(ExecutionContext&, Version&, const Version& base, std::size_t chunk);
  MessageHeader header_of(const Answer&, std::size_t bytes) const;

  Port& port_;
  const Sharding sharding_;
  const std::uint32_t server_;
  const Coding coding_;
  const std::uint64_t seed_;
  std::vector<std::unique_ptr<ChunkEncoder>> encoders_;  ///< by chunk
  std::vector<WorkerConnection> connections_;
  std::vector<std::vector<VersionPtr>> versions_;  ///< by chunk
  std::uint64_t last_id_ = 0;
  std::vector<float> change_;  ///< of a chunk
};

}  // namespace gradmeter::dataparallel
