// SPDX-License-Identifier: Apache-2.0
// A server: it holds some chunks of the weights, receives changes of them, applies these and sends weights. It is a
// background task, or the only task of its rank. It waits for any message, never for one worker.
#pragma once
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "dataparallel/fabric/fabric.hpp"
#include "dataparallel/server/served_chunk.hpp"

namespace gradmeter::dataparallel {

/// A server's replies: acknowledgements, and weights chunk by chunk, as fast as each worker's link takes them. It never
/// waits: replies without room stay here, so that a slow worker delays no other.
/// With a codec, weights are sent as changes from those that the worker has, and the loss of one encoding is added to
/// the next (DoubleSqueeze). The server knows which weights each worker has. If workers have read the same versions of
/// a chunk, as in `ps-sync`, they have the same weights, and each change is encoded once for all of them; otherwise
/// once for each.
/// Memory: a copy of a chunk for every version that waits for room; with a codec also one for every set of different
/// weights that workers have (1 with BSP, up to the number of workers with SSP and ASP).
/// Source: Tang et al., "DoubleSqueeze", ICML 2019, algorithm 1, with the server's residual kept as weights - copy.
class ReplyQueue {
 public:
  /// first: the whole flat buffer as all workers have it. The port must outlive it.
  ReplyQueue(Port&, const Sharding&, std::uint32_t server, const ServicePlan&, std::span<const float> first);

  void acknowledge(int worker, const MessageHeader&);
  /// A copy of one chunk's weights. base_id: it is encoded as a change from the snapshot with this id; 0: it is sent as
  /// it is.
  struct Snapshot {
    std::uint64_t version = 0, id = 0, base_id = 0;
    std::vector<float> values = {};    ///< the server's values; if encoded, the values that workers decode
    std::vector<std::byte> wire = {};  ///< the encoding, if there is one
  };
  using SnapshotPtr = std::shared_ptr<Snapshot>;
  struct Reply {
    Read read = {};
    std::size_t chunk = 0;        ///< index among the chunks of this server
    bool for_evaluation = false;  ///< true: the weights are sent as they are, whatever the codec
    std::uint64_t version = 0;
    std::uint64_t slowest = 0;  ///< number of updates of every worker that the weights include
    double held = 0;            ///< time that the read had to wait [s]
    SnapshotPtr weights = {};   ///< the weights, while the reply waits for room
  };
  /// Answers with the chunk's present weights. If they are sent as fp32 and there is room, they are not copied, or are
  /// in the worker's memory already.
  void answer(ExecutionContext&, Reply, ChunkWeights&);
  /// drop_replies drops the weights that are not yet sent to that worker; drop_all drops all of its replies.
  void drop_replies(int worker) { connection(worker).replies.clear(); }
  void drop_all(int worker) { connection(worker) = {}; }
  bool all_acknowledged() const;
  /// Posts as many messages as there is room for.
  void send(ExecutionContext&);

 private:
  struct WorkerConnection {
    std::deque<MessageHeader> acknowledgements = {};
    std::deque<Reply> replies = {};
    /// By chunk: the weights that the worker will have when all messages have arrived; null: the chunk is not encoded.
    std::vector<std::shared_ptr<const Snapshot>> worker_has = {};
  };
  WorkerConnection& connection(int worker) { return connections_[static_cast<std::size_t>(worker)]; }
  bool post_written(const Reply&, std::span<float> weights);
  SnapshotPtr snapshot(ExecutionContext&, const Reply&, std::span<const float> weights, const Snapshot* base);
  bool send_acknowledgement(int worker);
  bool send_weights(ExecutionContext&, int worker);
  void encode(ExecutionContext&, Snapshot&, const Snapshot& base, std::size_t chunk);
  MessageHeader header_of(const Reply&, std::size_t bytes) const;

  Port& port_;
  const Sharding sharding_;
  const std::uint32_t server_;
  const Coding coding_;
  const std::uint64_t seed_;
  std::vector<ChunkEncoder> encoders_;  ///< by chunk
  std::vector<WorkerConnection> connections_;
  std::vector<std::vector<SnapshotPtr>> snapshots_;  ///< by chunk
  std::uint64_t last_id_ = 0;
  std::vector<float> change_;  ///< scratch for the change of a chunk
};

/// Memory: that of its chunks (ServedChunk) and of replies that have no room yet (ReplyQueue).
class Server {
 public:
  /// weights: the whole flat buffer, of which it copies its chunks. memory: `elements_needed` floats, from which the
  /// fabric can send messages; it must outlive this object.
  Server(const ServicePlan&, const Sharding&, std::uint32_t server, std::span<const float> weights,
         std::span<const model::Tensor> tensors, std::unique_ptr<Port>, std::span<float> memory);
  static std::size_t elements_needed(const Sharding&, std::uint32_t server);
  /// Serves until all workers have disconnected or died.
  void run(ExecutionContext&);
  /// Handles an arrived message on the thread of a worker that waits and has not disconnected. Returns false if there
  /// is no message, or if `run` handles it. On shared cores this saves the switch to another thread and back.
  bool help();
  /// Any thread may call it. A step that only some of its chunks have made counts as one. The time for which reads were
  /// held back is the mean over chunks.
  Observations observed() const;
  /// The weights that it holds, as Strategy::held_weights says.
  std::vector<WeightsInPlace> held_weights() const;

 private:
  bool take_one(std::optional<Message>);
  void take(const Message&);
  void take_push(const Message&);
  void take_pull(int from, const MessageHeader&);
  void take_evaluate(int from, const MessageHeader&);
  void rest(int worker);
  void leave(int worker);
  void answer_reads(std::size_t chunk);
  void answer_evaluations();
  void answer(const Read&, std::size_t chunk, bool for_evaluation);

  const ServicePlan plan_;
  const Sharding sharding_;
  std::unique_ptr<Port> port_;
  SpareMemory spare_;
  std::deque<ServedChunk> chunks_;
  ReplyQueue reply_queue_;
  std::mutex running_;                   ///< held by the thread that takes messages
  ExecutionContext* context_ = nullptr;  ///< set while `run` runs
  int training_;                         ///< number of workers that are not gone
  std::vector<bool> gone_;               ///< by worker
  /// By worker: its request for evaluation, which is answered when all workers that train have asked.
  std::vector<std::optional<Read>> evaluations_;
};

}  // namespace gradmeter::dataparallel
