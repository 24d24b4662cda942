// Where the newest weights of a chunk lie: in the server's memory, or in that of the workers of its node that read
// them.
#pragma once
#include <array>
#include <span>
#include <vector>

#include "dataparallel/execution_context.hpp"
#include "dataparallel/operation.hpp"

namespace gradmeter::dataparallel {

/// A worker of this node offers the place where it reads the chunk while it waits for an answer. A step that its change
/// is part of is then written there, and not to the server's memory: nobody copies the weights to the worker. The
/// worker leaves them as they are until it offers the place again, so the next step may begin with reading them there.
/// Messages leave from the server's memory alone. That is two copies: a step goes to the other one while somebody
/// reads. One thread.
class ChunkWeights {
 public:
  /// memory: for two copies, which the fabric's messages can leave from.
  /// nearest: the worker of the server's own rank; none: -1.
  ChunkWeights(std::span<float> memory, std::span<const float> first, int workers, int nearest);

  std::span<const float> values() const { return newest_; }
  /// May a message leave from the server's memory now? Not while readers of earlier weights hold the other copy.
  bool lends();
  /// The values in the server's memory. Call it only when it lends.
  std::span<const float> to_lend(ExecutionContext&);
  /// What was lent does not change until this message has left.
  void lend(Ticket t) { copies_[home_].readers.push_back(std::move(t)); }

  /// The worker has sent a change, and neither reads nor writes this memory until it is answered. Empty: it has none
  /// that can be reached.
  void offer(int worker, std::span<float> memory);
  /// Its change is part of the next step.
  void join_step(int worker) { place(worker).joins = true; }
  /// The worker is answered: its memory, if it holds the newest weights; else empty.
  std::span<float> withdraw(int worker);
  /// The worker may write to its memory from now on: it ends, or is answered by a message.
  void forget(ExecutionContext&, int worker);

  /// A step reads `from`, and writes `to` and the copies. `from` and `to` are the same, or do not overlap.
  struct Step {
    std::span<const float> from = {};
    std::span<float> to = {};
    std::vector<std::span<float>> copies = {};
  };
  Step begin_step();
  void end_step(const Step&);

 private:
  static constexpr int server_itself = -1;
  struct OwnCopy {
    std::span<float> memory = {};
    std::vector<Ticket> readers = {};  ///< messages that leave from it
    bool unread();
  };
  struct WorkerPlace {
    std::span<float> memory = {};
    bool joins = false;   ///< the next step
    bool newest = false;  ///< holds the newest weights
    bool is_due() const { return joins && !memory.empty(); }
  };
  WorkerPlace& place(int worker) { return places_[static_cast<std::size_t>(worker)]; }
  std::span<float> free_copy();

  std::array<OwnCopy, 2> copies_;
  const int nearest_;
  std::size_t home_ = 0;  ///< the copy that was written last
  std::span<const float> newest_;
  int holder_ = server_itself;       ///< the worker in whose memory they lie
  std::vector<WorkerPlace> places_;  ///< by worker
};

}  // namespace gradmeter::dataparallel
