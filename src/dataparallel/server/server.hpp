// A server: holds one shard of the weights, takes changes, applies them by an optimizer and sends weights. It is a
// background task, or the only task of its rank; it waits for any message, never for one worker.
#pragma once
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "dataparallel/fabric.hpp"
#include "dataparallel/optimizers/registry.hpp"
#include "dataparallel/server/admission.hpp"
#include "dataparallel/server/change_queue.hpp"
#include "dataparallel/server/reply_queue.hpp"
#include "dataparallel/strategy.hpp"

namespace gradmeter::dataparallel {

/// Adds changes to the weights: w += d. Cost: 12 bytes an element.
std::unique_ptr<Optimizer> make_add();

/// What all servers of an axis agree on.
struct ServerPlan {
  int workers = 1;
  std::uint64_t staleness = Admission::unbounded;
  std::string optimizer = "sgd";  ///< an optimizer, or "add"
  bool divide = true;             ///< a single worker's update is divided by `workers`; of a clock's updates, their sum
  Coding changes = Coding(), weights = Coding();
  std::uint64_t seed = 1;
};

/// Memory: with n workers and a shard of m bytes m + the optimizer's state; up to n·m of changes that are on their way,
/// and as much of replies, where workers read at different versions; with a codec as much again of what workers have.
class Server {
 public:
  /// weights: the whole flat buffer, of which it copies its shard.
  Server(const ServerPlan&, const Sharding&, std::uint32_t shard, std::span<const float> weights,
         std::span<const model::Tensor> tensors, std::unique_ptr<Port>);
  /// Until all workers have disconnected or died.
  void run(ExecutionContext&);
  /// Any thread.
  Observations observed() const;

 private:
  std::optional<ReadRequest>& held(int worker) { return held_[static_cast<std::size_t>(worker)]; }

  void take(const Message&);
  void take_push(int from, const MessageHeader&, std::span<const std::byte>);
  void note_gap(std::uint64_t clock);
  void ask(int from, const ReadRequest&);
  void leave(int worker);
  void apply_one(int from);
  void apply_clocks();
  bool clock_is_complete() const;
  void add_up(std::vector<Change>& clock);
  void apply(std::span<const float> change, float size);
  void count(std::span<const Change>);
  bool all_evaluate() const;
  void let_through();
  void answer(int worker, const ReadRequest&);

  const ServerPlan plan_;
  std::unique_ptr<Port> port_;
  std::vector<float> weights_;
  std::vector<model::Tensor> tensors_;  ///< of the shard, for the optimizer
  std::unique_ptr<Optimizer> optimizer_;
  ExecutionContext* context_ = nullptr;  ///< while it runs
  ChangeQueue change_queue_;
  ReplyQueue reply_queue_;
  std::vector<std::optional<ReadRequest>> held_;  ///< by worker: a read that must still wait
  Admission admission_;
  std::uint64_t version_ = 0;  ///< updates applied

  mutable std::mutex mutex_;  ///< of what follows
  StalenessCount staleness_;
  Observations observed_;
};

}  // namespace gradmeter::dataparallel
