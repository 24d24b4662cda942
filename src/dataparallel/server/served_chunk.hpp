// SPDX-License-Identifier: Apache-2.0
// One chunk of the weights at its server: where its newest weights are, which changes make a step, and which workers
// may read it.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "dataparallel/fabric/fabric.hpp"
#include "dataparallel/optimizers/optimizer.hpp"
#include "dataparallel/server/consistency.hpp"
#include "dataparallel/server/protocol.hpp"
#include "dataparallel/strategy.hpp"

namespace gradmeter::dataparallel {

/// The newest weights of a chunk are in the server's memory, or in that of a worker of its node. Such a worker offers
/// the memory from which it reads the chunk while it waits for an answer. A step that includes the worker's change is
/// then written there, and not to the server's memory, so that nobody copies the weights to the worker. The worker
/// leaves them unchanged until it offers the memory again, so the next step may read them there. Messages are sent from
/// the server's memory only. The server has two copies there: while somebody reads one, a step writes to the other. One
/// thread uses it.
class ChunkWeights {
 public:
  /// memory: room for two copies, from which the fabric can send messages. local_worker: the worker on the server's own
  /// rank; -1: none.
  ChunkWeights(std::span<float> memory, std::span<const float> first, int workers, int local_worker);

  std::span<const float> values() const { return newest_; }
  /// True where a message may be sent from the server's memory now. It is false while readers of earlier weights hold
  /// the other copy.
  bool lends();
  /// The values in the server's memory. Call it only when `lends` is true.
  std::span<const float> to_lend(ExecutionContext&);
  /// Keeps the values that were lent unchanged until this message has left.
  void lend(Ticket t) { copies_[last_written_].readers.push_back(std::move(t)); }

  /// Says that the worker has sent a change, and neither reads nor writes this memory until it is answered. Empty: the
  /// worker has no memory that the server can reach.
  void offer(int worker, std::span<float> memory);
  /// Says that the worker's change is part of the next step.
  void join_step(int worker) { place(worker).joins = true; }
  /// Ends the offer of a worker that is being answered. Returns its memory if that holds the newest weights; else
  /// empty.
  std::span<float> withdraw(int worker);
  /// Says that the worker may write to its memory from now on, because it ends or is answered by a message.
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
    std::vector<Ticket> readers = {};  ///< messages that leave from this copy
    bool unread();
  };
  struct WorkerPlace {
    std::span<float> memory = {};
    bool joins = false;   ///< its worker's change is part of the next step
    bool newest = false;  ///< it holds the newest weights
    bool is_due() const { return joins && !memory.empty(); }
  };
  WorkerPlace& place(int worker) { return places_[static_cast<std::size_t>(worker)]; }
  std::span<float> free_copy();

  std::array<OwnCopy, 2> copies_;
  const int local_worker_;
  std::size_t last_written_ = 0;  ///< index among the copies
  std::span<const float> newest_;
  int owner_ = server_itself;        ///< the worker in whose memory the newest weights lie
  std::vector<WorkerPlace> places_;  ///< by worker
};

/// Weights that a worker has asked for.
struct Read {
  int worker = 0;
  MessageHeader header = {};  ///< header of the pull; for weights that a push asks for, that of an equal pull
  double since = 0;           ///< time at which it arrived [s]
};

/// Memory that the chunks of a server share, one at a time. One thread uses it.
class SpareMemory {
 public:
  std::vector<float> take(std::size_t n);
  void give_back(std::vector<float> v) { spare_.push_back(std::move(v)); }
  /// Memory that all callers share; its content lasts until the next call.
  std::span<float> scratch(std::size_t n);

 private:
  std::vector<std::vector<float>> spare_;
  std::vector<float> scratch_;
};

/// With staleness 0 the changes of a clock are added up in the order of ranks and applied as one. Otherwise each is
/// applied when it arrives, or as the rule says. A step is one pass over the weights and the changes, which are read
/// from their messages if these can be kept.
/// Memory: two copies of the weights (ChunkWeights), and the optimizer's state. Where messages cannot be kept, also a
/// sum, and with staleness 0 the changes whose turn has not come.
class ServedChunk {
 public:
  /// weights, tensors: those of the whole flat buffer, of which it copies its chunk. memory: room for two copies, from
  /// which the fabric can send messages. local_worker: the worker on the server's own rank; -1: none. Objects passed by
  /// reference must outlive it.
  ServedChunk(const ServicePlan&, int local_worker, SpareMemory&, Range, std::span<const float> weights,
              std::span<const model::Tensor> tensors, std::span<float> memory);

  std::size_t first() const { return range_.first; }  ///< index of its first element in the flat buffer
  ChunkWeights& weights() { return weights_; }
  const ChunkWeights& weights() const { return weights_; }
  std::uint64_t version() const { return version_; }  ///< number of updates applied
  /// The number of updates of every worker that the weights include.
  std::uint64_t slowest() const { return admission_.slowest(); }

  /// Takes a worker's change from the message that the port returned last.
  void take(ExecutionContext&, Port&, const Message&);
  void ask(const Read&);
  /// Says that steps need not wait for this worker until it sends a change again.
  void rest(ExecutionContext&, int worker);
  /// Says that the worker has finished or died.
  void leave(ExecutionContext&, int worker);

  /// Returns the earliest read that may be answered with these weights, which then counts as answered; empty: none.
  std::optional<Read> next_read(ExecutionContext&);
  /// Any thread may call it.
  Observations observed() const;

 private:
  struct Change {
    int worker = 0;
    std::uint64_t base = 0;  ///< version of the weights that it was computed from
    float size = 0;          ///< size of its step
    std::span<const float> values = {};
    std::shared_ptr<const void> message = {};  ///< keeps the message that holds the values
    /// Holds the values if no message does. If both are empty, they last until the port returns the next message.
    std::vector<float> memory = {};
    bool lasts() const { return message || !memory.empty(); }
  };
  /// The changes of a step; all spans are equally long.
  using Terms = std::span<const std::span<const float>>;

  bool may_read(const Read&) const;
  void note_gap(std::uint64_t clock);
  void take_in_turn(ExecutionContext&, Change, Port&);
  void copy(ExecutionContext&, Change&);
  void take_as_it_comes(ExecutionContext&, Change);
  float scaled(const Change&) const;
  void add(Change);
  void add_next(Change);
  void fold(ExecutionContext&);
  void keep_sum(ExecutionContext&);
  std::vector<std::span<const float>> terms() const;
  void drop_terms();
  void skip_gone();
  void finish_clock(ExecutionContext&);
  int needed() const;
  void finish_group(ExecutionContext&);
  void apply_sum(ExecutionContext&, float factor);
  void count(const Change&);
  void apply(ExecutionContext&, Terms, int divisor, float size);

  const ServicePlan& plan_;
  SpareMemory& spare_;
  const Range range_;
  const int group_;  ///< number of changes that make one step; with staleness 0 all changes of a clock make one
  ChunkWeights weights_;
  std::unique_ptr<Optimizer> optimizer_;
  Admission admission_;
  std::uint64_t version_ = 0;
  std::vector<Read> held_;  ///< reads that must still wait

  std::vector<Change> terms_;    ///< changes whose sum makes the next step, added in this order
  int summed_ = 0;               ///< number of changes that are in `terms_`
  int next_ = 0;                 ///< with staleness 0: the worker whose turn it is
  std::map<int, Change> early_;  ///< with staleness 0: changes whose turn has not come, by worker

  std::optional<DelayCompensation> compensation_;
  std::set<int> resting_;  ///< workers that steps do not wait for
  /// By worker, where changes may be dropped: the least version that it may read.
  std::vector<std::uint64_t> readable_;

  mutable std::mutex mutex_;  ///< guards the members below
  StalenessCount staleness_;
  Observations observed_;
};

}  // namespace gradmeter::dataparallel
