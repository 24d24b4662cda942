// SPDX-License-Identifier: Apache-2.0
// A parameter server: it holds some chunks of the weights, applies the changes that workers send, and sends weights
// back. It runs as a background task beside a worker, or as the only task of its rank. It takes messages in the order
// in which they arrive and never waits for a particular worker.
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

/// The replies of a server on their way to the workers: acknowledgements, and weights chunk by chunk. Sending never
/// blocks: a reply for which the port has no room yet stays in this queue, so a slow worker delays no other.
/// With a codec, weights are sent as encoded changes from the weights that the worker already has. What one encoding
/// loses is part of the next change (DoubleSqueeze). The queue knows which weights each worker has. Workers that have
/// read the same versions of a chunk, as all have in `ps-sync`, have the same weights, so each change is encoded once
/// for all of them; otherwise it is encoded for each worker.
/// Memory: a copy of a chunk for every version that waits for room; with a codec also one copy of a chunk for each
/// state of it that some worker has (one with BSP, up to the number of workers with SSP and ASP).
/// Source: Tang et al., "DoubleSqueeze", ICML 2019, algorithm 1. The server's residual of that algorithm is not stored:
/// it is the difference between the server's weights and the worker's.
class ReplyQueue {
 public:
  /// first: the whole flat buffer of weights, as all workers have it at the start. The port must outlive this object.
  ReplyQueue(Port&, const Sharding&, std::uint32_t server, const ServicePlan&, std::span<const float> first);

  void acknowledge(int worker, const MessageHeader&);
  /// A copy of one chunk's weights. base_id: if the copy is encoded as a change, the id of the snapshot that the change
  /// starts from; 0: it is not encoded, but sent as fp32.
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
    std::uint64_t slowest_clock = 0;  ///< ServedChunk::slowest_clock() when the read was answered
    double held = 0;                  ///< time that the read had to wait [s]
    SnapshotPtr weights = {};         ///< the weights, while the reply waits for room
  };
  /// Answers a read with the chunk's present weights. If these are sent as fp32 and the port has room, usually no copy
  /// is made: the message leaves from the server's memory, or it only says that the last step wrote the weights into
  /// memory that the worker had offered (see ChunkWeights).
  void answer(ExecutionContext&, Reply, ChunkWeights&);
  /// drop_replies: drops the replies with weights to that worker that are not sent yet. drop_all: drops its
  /// acknowledgements too.
  void drop_replies(int worker) { connection(worker).replies.clear(); }
  void drop_all(int worker) { connection(worker) = {}; }
  bool all_acknowledged() const;
  /// Posts as many messages as there is room for.
  void send(ExecutionContext&);

 private:
  struct WorkerConnection {
    std::deque<MessageHeader> acknowledgements = {};
    std::deque<Reply> replies = {};
    /// By chunk: the weights that the worker has once all messages to it have arrived; null: the chunk is not encoded.
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
  std::uint64_t last_id_ = 0;                        ///< id of the newest snapshot
  std::vector<float> change_;                        ///< scratch for the change of a chunk
};

/// One server of an axis. Memory: that of its chunks (ServedChunk) and of replies that have no room yet (ReplyQueue).
class Server {
 public:
  /// weights: the whole flat buffer, from which the server copies its chunks. memory: `elements_needed` floats, from
  /// which the fabric can send messages; it must outlive this object.
  Server(const ServicePlan&, const Sharding&, std::uint32_t server, std::span<const float> weights,
         std::span<const model::Tensor> tensors, std::unique_ptr<Port>, std::span<float> memory);
  static std::size_t elements_needed(const Sharding&, std::uint32_t server);
  /// Serves until all workers have disconnected or died.
  void run(ExecutionContext&);
  /// Lets a worker on the server's rank, while it waits, handle one arrived message on its own thread. The worker must
  /// not have disconnected. Returns false if there is no message, or if `run` is handling messages itself. If the two
  /// threads share a core, this saves the switch to the server's thread and back.
  bool serve_one_message();
  /// The sums over the server's chunks, except `applied` and `largest_gap` (the largest of any chunk) and `held_s` (the
  /// mean over chunks). Any thread may call this.
  Observations observed() const;
  /// The server's weights, in the form of Strategy::held_weights.
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
  std::mutex message_mutex_;             ///< held by the thread that takes messages
  ExecutionContext* context_ = nullptr;  ///< the context of `run`; null while it does not run
  int training_;                         ///< number of workers that have neither disconnected nor died
  std::vector<bool> gone_;               ///< by worker
  /// By worker: the request for evaluation weights, if there is one. All are answered once every worker that is not
  /// gone has sent its request.
  std::vector<std::optional<Read>> evaluations_;
};

}  // namespace gradmeter::dataparallel
