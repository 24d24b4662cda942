// SPDX-License-Identifier: Apache-2.0
// One chunk of the weights at its server: where the newest weights are, which changes make a step, and which workers
// may read the weights.
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

/// Keeps the newest weights of a chunk, in the server's memory or in the memory of a worker on the server's node. While
/// a worker on that node waits for an answer, it offers the memory in which it wants the chunk's weights. If the next
/// step includes the worker's change, the step writes the new weights directly to this memory, so that nobody has to
/// copy them to the worker. The worker leaves them unchanged until it offers the memory again, so the following step
/// can read the weights there. Messages are sent only from the server's memory, which holds two copies of the weights:
/// while a message leaves from one, a step writes to the other. One thread uses this object.
class ChunkWeights {
 public:
  /// memory: room for two copies, in memory from which the fabric can send messages. first: the initial weights.
  /// local_worker: the worker on the server's own rank; -1: none.
  ChunkWeights(std::span<float> memory, std::span<const float> first, int workers, int local_worker);

  std::span<const float> values() const { return newest_; }
  /// True if a message with the newest weights may be sent from the server's memory now. The message will occupy one of
  /// the two copies until it has left, and the other must be free for the next step. So no earlier message may still
  /// leave from that other copy. If the newest weights lie in a worker's memory, both copies must be free.
  bool can_send();
  /// The newest weights in the server's memory; they are copied there if a worker's memory holds them. Requires
  /// `can_send`.
  std::span<const float> weights_to_send(ExecutionContext&);
  /// Says that this message leaves from the memory that `weights_to_send` returned, which then stays unchanged until
  /// the message has left.
  void note_message(Ticket t) { copies_[last_written_].readers.push_back(std::move(t)); }

  /// Says that the worker has sent a change and offers this memory, which it neither reads nor writes until it gets its
  /// answer. Empty: the worker has no memory that the server can reach.
  void offer(int worker, std::span<float> memory);
  /// Says that the worker's change is part of the next step.
  void join_step(int worker) { place(worker).joins = true; }
  /// Ends the offer of a worker that is being answered. Returns the worker's memory if the newest weights are in it,
  /// otherwise an empty span.
  std::span<float> end_offer(int worker);
  /// Says that the worker may write to its memory from now on, because it has finished or is answered by a message. If
  /// its memory holds the newest weights, they are copied first.
  void forget(ExecutionContext&, int worker);

  /// The memory that a step reads and writes: it reads `from`, and writes the new weights to `to` and to all `copies`.
  /// `from` and `to` are the same, or do not overlap.
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
    bool is_free();                    ///< no message leaves from this copy any more
  };
  /// The memory that a worker offers.
  struct WorkerPlace {
    std::span<float> memory = {};
    bool joins = false;   ///< the worker's change is part of the next step
    bool newest = false;  ///< the memory holds the newest weights
    bool is_due() const { return joins && !memory.empty(); }
  };
  WorkerPlace& place(int worker) { return places_[static_cast<std::size_t>(worker)]; }
  std::span<float> free_copy();

  std::array<OwnCopy, 2> copies_;
  const int local_worker_;
  std::size_t last_written_ = 0;  ///< index in `copies_`
  std::span<const float> newest_;
  int owner_ = server_itself;        ///< the worker in whose memory `newest_` lies
  std::vector<WorkerPlace> places_;  ///< by worker
};

/// A worker's request for weights.
struct Read {
  int worker = 0;
  MessageHeader header = {};  ///< header of the pull; if a push made the request, the header of an equivalent pull
  double since = 0;           ///< time at which the request arrived [s]
};

/// Memory that the chunks of a server share. One thread uses it.
class SpareMemory {
 public:
  std::vector<float> take(std::size_t n);
  void give_back(std::vector<float> v) { spare_.push_back(std::move(v)); }
  /// Memory for n numbers that all callers share; its content lasts until the next call.
  std::span<float> scratch(std::size_t n);

 private:
  std::vector<std::vector<float>> spare_;
  std::vector<float> scratch_;
};

/// Applies changes to one chunk, and decides which reads may be answered. With staleness 0, the changes of one clock
/// (the i-th change of each worker, see consistency.hpp) are added up in rank order and applied as one. Otherwise each
/// change is applied when it arrives, or as the StepRule says. A step is one pass over the weights and the changes; the
/// changes are read from their messages, if the port can keep these. Memory: two copies of the weights (ChunkWeights),
/// and the optimizer's state; a sum, if a StepRule collects changes. With staleness 0, if the port cannot keep
/// messages: also a sum, and copies of the changes that arrive before those of lower ranks.
class ServedChunk {
 public:
  /// weights, tensors: those of the whole flat buffer; the chunk is copied. memory, local_worker: as for ChunkWeights.
  /// The plan and the spare memory must outlive this object.
  ServedChunk(const ServicePlan&, int local_worker, SpareMemory&, Range, std::span<const float> weights,
              std::span<const model::Tensor> tensors, std::span<float> memory);

  std::size_t first() const { return range_.first; }  ///< index of the chunk's first element in the flat buffer
  ChunkWeights& weights() { return weights_; }
  const ChunkWeights& weights() const { return weights_; }
  std::uint64_t version() const { return version_; }  ///< number of steps made; changes applied together are one step
  /// The server has at least this many updates of every worker that still trains. The weights include them, unless a
  /// StepRule collects or drops changes.
  std::uint64_t slowest_clock() const { return admission_.slowest_clock(); }

  /// Takes a worker's change from `Message`, which must be the one that the port returned last.
  void take(ExecutionContext&, Port&, const Message&);
  void ask(const Read&);
  /// Says that steps must not wait for this worker until it sends a change again.
  void rest(ExecutionContext&, int worker);
  /// Says that the worker has finished or died.
  void leave(ExecutionContext&, int worker);

  /// Returns the earliest read that may be answered with the present weights, and counts it as answered; empty: there
  /// is none.
  std::optional<Read> next_read(ExecutionContext&);
  /// Any thread may call it.
  Observations observed() const;

 private:
  struct Change {
    int worker = 0;
    std::uint64_t base = 0;  ///< version of the weights from which the change was computed
    float size = 0;          ///< step size
    std::span<const float> values = {};
    std::shared_ptr<const void> message = {};  ///< keeps the message that holds the values
    /// Holds the values if they were copied, or if they were decoded and staleness is 0. If `message` and `memory` are
    /// both empty, the values are valid only until `take` returns.
    std::vector<float> memory = {};
    bool has_lasting_values() const { return message || !memory.empty(); }
  };
  /// The changes that make a step; all spans are equally long.
  using Terms = std::span<const std::span<const float>>;

  bool may_read(const Read&) const;
  void note_gap(std::uint64_t clock);
  void take_in_turn(ExecutionContext&, Change, Port&);
  void copy(ExecutionContext&, Change&);
  void take_as_it_comes(ExecutionContext&, Change);
  float step_size_of(const Change&) const;
  void add(Change);
  void add_next(Change);
  void add_up_terms(ExecutionContext&);
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
  const int changes_per_step_;  ///< number of changes that make one step; not used with staleness 0
  ChunkWeights weights_;
  std::unique_ptr<Optimizer> optimizer_;
  Admission admission_;
  std::uint64_t version_ = 0;
  std::vector<Read> held_reads_;  ///< reads that must still wait

  std::vector<Change> terms_;    ///< changes whose sum makes the next step; the first may be a sum of earlier ones
  int changes_in_sum_ = 0;       ///< number of changes in `terms_`, counting those that are summed already
  int next_worker_ = 0;          ///< with staleness 0: the worker whose change is added next
  std::map<int, Change> early_;  ///< with staleness 0: changes that arrived before their turn, by worker

  std::optional<DelayCompensation> compensation_;
  std::set<int> resting_;  ///< workers for which steps do not wait
  /// By worker: the least version that the worker may read; empty unless StepRule::fresh_only is set.
  std::vector<std::uint64_t> least_readable_;

  mutable std::mutex mutex_;  ///< guards the members below
  StalenessCount staleness_;
  Observations observed_;
};

}  // namespace gradmeter::dataparallel
