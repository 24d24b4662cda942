// A server: holds some chunks of the weights, takes changes of them, applies these and sends weights. It is a
// background task, or the only task of its rank; it waits for any message, never for one worker.
#pragma once
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "dataparallel/fabric.hpp"
#include "dataparallel/server/reply_queue.hpp"
#include "dataparallel/server/served_chunk.hpp"

namespace gradmeter::dataparallel {

/// Memory: that of its chunks (served_chunk.hpp) and of replies that have no room yet (reply_queue.hpp).
class Server {
 public:
  /// weights: the whole flat buffer, of which it copies its chunks. memory: of `elements_needed` floats, which the
  /// fabric's messages can leave from. It must outlive this.
  Server(const ServerPlan&, const Sharding&, std::uint32_t server, std::span<const float> weights,
         std::span<const model::Tensor> tensors, std::unique_ptr<Port>, std::span<float> memory);
  static std::size_t elements_needed(const Sharding&, std::uint32_t server);
  /// Until all workers have disconnected or died.
  void run(ExecutionContext&);
  /// Takes a message that has come, on the thread of a worker that waits and has not disconnected. False: there is
  /// none, or `run` is at it. On shared cores this saves the way to another thread and back.
  bool help();
  /// Any thread. A step that has come to some of its chunks counts as one that was applied; time that reads were held
  /// back is the mean over chunks.
  Observations observed() const;
  /// As Strategy's.
  std::vector<WeightsInPlace> held_weights() const;

 private:
  bool take_one(std::optional<Message>);
  void take(const Message&);
  void take_push(const Message&);
  void take_pull(int from, const MessageHeader&);
  void take_evaluate(int from, const MessageHeader&);
  void rest(int worker);
  void leave(int worker);
  ReadRequest request_of(const MessageHeader&) const;
  void answer_reads(std::size_t chunk);
  void answer_evaluations();
  void answer(int worker, std::size_t chunk, const ReadRequest&, bool for_evaluation);

  const ServerPlan plan_;
  const Sharding sharding_;
  std::unique_ptr<Port> port_;
  SpareMemory spare_;
  std::deque<ServedChunk> chunks_;
  ReplyQueue reply_queue_;
  std::mutex running_;                   ///< held by the thread that takes messages
  ExecutionContext* context_ = nullptr;  ///< while it runs
  int training_;                         ///< workers that are not gone
  std::vector<bool> gone_;               ///< by worker
  /// By worker: its request for evaluation, answered when all that train have asked.
  std::vector<std::optional<ReadRequest>> evaluations_;
};

}  // namespace gradmeter::dataparallel
