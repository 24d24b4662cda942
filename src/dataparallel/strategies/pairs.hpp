// Averages of two ranks' weights, of which one is active and one passive: the active one sends its weights, a
// background task of the passive one answers with its own and replaces these by the mean, and so does the active one on
// receipt.
//
// Weights travel in chunks, and a chunk is the unit of an average: what is sent and the mean are taken of the same
// weights, which the passive rank's update cannot change in between. So averages keep the sum over all ranks of every
// element. Updates, and averages with other active ranks, may come between two chunks of one average.
//
// | operation  | clock                     | first, count | payload                     |
// | average    | updates of the active one | the chunk    | its weights                 |
// | answer     | as asked                  | as asked     | weights before this average |
// | disconnect | -                         | -            | -                           |
//
// An active rank has few chunks unanswered, and a passive one keeps memory for an answer to each: so nobody waits for
// another active rank, which may be in the middle of a long computation and read nothing.
#pragma once
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "dataparallel/server/protocol.hpp"
#include "dataparallel/strategies/graphs.hpp"
#include "dataparallel/strategy.hpp"

namespace gradmeter::dataparallel {

/// What all ranks of an axis agree on; there are two at least.
class PairPlan {
 public:
  PairPlan(std::size_t elements, int ranks);
  int ranks() const { return ranks_; }
  std::size_t elements() const { return chunks_.elements(); }
  std::size_t chunks() const { return chunks_.chunks(0); }
  Range chunk(std::size_t i) const { return chunks_.chunk(0, i); }
  std::size_t index_of(std::size_t first) const { return chunks_.index_of(first); }
  /// The most chunks of an active rank that are not answered.
  std::size_t unanswered() const { return unanswered_; }
  /// Of the passive side: a copy of the weights, and answers.
  std::size_t passive_elements() const;
  /// Of the answer to an active rank's chunk, behind the weights.
  Range answer(int active, std::size_t chunk) const;
  PortOptions port_options() const;

 private:
  int ranks_;
  Sharding chunks_;  ///< of one server
  std::size_t unanswered_;
};

/// For the worker's thread. Memory: M.
class ActiveSide {
 public:
  /// theirs: where a passive rank's weights are written.
  ActiveSide(Fabric&, std::unique_ptr<Port>, const PairPlan&, const Buffer& theirs);

  /// Begins an average with that rank, unless it has died. The weights must not change before `finish`.
  void begin(int passive, std::uint64_t clock, const ConstBuffer& weights);
  /// Takes and posts what it can without waiting.
  void poll();
  /// Waits for the passive rank's weights, with which the caller averages. False: it has died.
  bool finish();
  /// Tells all passive ranks that there will be no more averages.
  void disconnect();

 private:
  bool gone(int rank) const { return gone_[static_cast<std::size_t>(rank)]; }
  void take(const Message&);
  void send();

  Fabric& fabric_;
  std::unique_ptr<Port> port_;
  const PairPlan plan_;
  const Buffer theirs_;
  std::byte* const theirs_at_;
  std::vector<bool> gone_;  ///< by rank: it has died
  int passive_ = 0;
  std::uint64_t clock_ = 0;
  std::span<const std::byte> weights_;
  std::size_t sent_ = 0, answered_ = 0;  ///< chunks
};

/// The passive rank's weights, between its worker and its background task. The worker computes gradients at a copy, its
/// `parameters`, which it reads with each update; averages meanwhile change the weights only.
/// Memory: M, and for answers a chunk of at most 1 MiB for each active rank, for few of them up to four.
class PassiveSide {
 public:
  /// memory: `plan.passive_elements()` of the fabric's.
  PassiveSide(const PairPlan&, std::unique_ptr<Port>, Worker&, const Buffer& memory);

  /// The background task: until all active ranks have disconnected or died.
  void run(ExecutionContext&);

  /// The worker: applies its gradient, and reads the weights for the next one.
  void update(Worker&, UpdateStep);
  /// The worker: reads the weights, which it does not train from.
  void read(Worker&, const Buffer& to) const;
  /// Where they lie; only while nobody changes them.
  std::span<const float> weights() const { return weights_.values<float>(); }
  /// Any thread. staleness: averages since the weights were read; gap: the most updates between two that averaged.
  Observations observed() const;

 private:
  struct Answer {
    int to = 0;
    MessageHeader header = {};
    std::span<const float> weights = {};
  };
  void take(ExecutionContext&, const Message&);
  void average(ExecutionContext&, const Message&);
  void note_average(const MessageHeader&);
  void leave(int rank);
  void send();

  const PairPlan plan_;
  std::unique_ptr<Port> port_;
  const std::span<float> memory_;            ///< of the host: the weights, then answers
  const Buffer weights_;                     ///< those, for the worker's queue
  std::vector<bool> gone_;                   ///< by rank, of active ones
  int connected_;                            ///< active ranks that are not gone
  std::vector<std::deque<Answer>> answers_;  ///< by active rank, for which there has been no room yet

  mutable std::mutex mutex_;  ///< of the weights, and of what follows
  std::uint64_t averages_ = 0, averages_read_ = 0, updates_ = 0;
  Observations observed_;
};

}  // namespace gradmeter::dataparallel
