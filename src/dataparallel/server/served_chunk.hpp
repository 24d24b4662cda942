// One chunk of the weights at its server: takes changes, applies them by an optimizer, and says who may read.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "dataparallel/optimizers/registry.hpp"
#include "dataparallel/server/admission.hpp"
#include "dataparallel/server/chunk_weights.hpp"
#include "dataparallel/server/protocol.hpp"
#include "dataparallel/server/step_rule.hpp"
#include "dataparallel/strategy.hpp"

namespace gradmeter::dataparallel {

/// What all servers of an axis agree on.
struct ServerPlan {
  int workers = 1;
  int own_worker = -1;  ///< that of the server's rank; -1: none
  std::uint64_t staleness = Admission::unbounded;
  std::string optimizer = "sgd";  ///< an optimizer, or "add"
  StepRule rule = {};             ///< with staleness 0 of its scale alone: all changes of a clock make one step
  Coding changes = Coding(), weights = Coding();
  std::uint64_t seed = 1;
};

/// Adds changes to the weights: w += d. Cost: 12 bytes an element.
std::unique_ptr<Optimizer> make_add();

/// A read that a worker asked for.
struct ReadRequest {
  std::uint64_t sequence = 0, clock = 0, own = 0;
  std::uint16_t outside_step = 0;
  std::uint64_t answer_place = 0;  ///< as MessageHeader's
  double since = 0;                ///< when it came [s]
};

/// Memory that the chunks of a server use in turn: one thread.
class SpareMemory {
 public:
  std::vector<float> take(std::size_t n);
  void give_back(std::vector<float> v) { spare_.push_back(std::move(v)); }
  /// The same for all callers: until the next call.
  std::span<float> scratch(std::size_t n);

 private:
  std::vector<std::vector<float>> spare_;
  std::vector<float> scratch_;
};

/// With staleness 0 the changes of a clock are added up in the order of ranks and applied as one. Otherwise each is
/// applied when it comes, or as the rule says. A step is one pass over the changes, where they lie if their messages
/// can be kept, and the weights.
/// Memory: two copies of the weights (chunk_weights.hpp), and the optimizer's state; where messages cannot be kept a
/// sum, and with staleness 0 the changes whose turn has not come.
class ServedChunk {
 public:
  /// weights, tensors: of the whole flat buffer; it copies its chunk. memory: for two copies, which the fabric's
  /// messages can leave from. What is passed by reference must outlive it.
  ServedChunk(const ServerPlan&, SpareMemory&, Range, std::span<const float> weights,
              std::span<const model::Tensor> tensors, std::span<float> memory);

  std::size_t first() const { return range_.first; }  ///< of its elements in the flat buffer
  ChunkWeights& weights() { return weights_; }
  const ChunkWeights& weights() const { return weights_; }
  std::uint64_t version() const { return version_; }  ///< updates applied
  /// So many updates of every worker are in the weights.
  std::uint64_t slowest() const { return admission_.slowest(); }

  /// A worker's change, as the message holds it that the port returned last.
  void take(ExecutionContext&, Port&, const Message&);
  void ask(int worker, const ReadRequest&);
  /// The worker sends no change until it sends one again: steps do not wait for it.
  void rest(ExecutionContext&, int worker);
  /// The worker has finished or died.
  void leave(ExecutionContext&, int worker);

  struct Read {
    int worker = 0;
    ReadRequest request = {};
  };
  /// A read that may be answered with these weights, asked for first; it counts as answered.
  std::optional<Read> next_read(ExecutionContext&);
  /// Any thread.
  Observations observed() const;

 private:
  struct Change {
    int worker = 0;
    std::uint64_t base = 0;  ///< version of the weights that it was computed from
    float size = 0;          ///< of its step
    std::span<const float> values = {};
  };
  /// A change where its message lies, which is then kept, or in memory of its own.
  struct KeptChange {
    Change change = {};
    std::shared_ptr<const void> message = {};
    std::vector<float> memory = {};
    bool lasts() const { return message || !memory.empty(); }
  };
  /// Spans of equal length.
  using Terms = std::span<const std::span<const float>>;

  bool may_read(const Read&) const;
  void note_gap(std::uint64_t clock);
  void take_in_turn(ExecutionContext&, KeptChange, Port&);
  void copy(ExecutionContext&, KeptChange&);
  void take_as_it_comes(ExecutionContext&, Change);
  float scaled(const Change&) const;
  void add(KeptChange);
  void add_next(KeptChange);
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

  const ServerPlan& plan_;
  SpareMemory& spare_;
  const Range range_;
  const int group_;  ///< so many changes make one step, unless a clock's do
  ChunkWeights weights_;
  std::unique_ptr<Optimizer> optimizer_;
  Admission admission_;
  std::uint64_t version_ = 0;
  std::vector<Read> held_;  ///< reads that must still wait

  std::vector<KeptChange> terms_;    ///< whose sum makes the next step, added in this order
  int summed_ = 0;                   ///< so many changes are in them
  int next_ = 0;                     ///< with staleness 0: the worker whose turn it is
  std::map<int, KeptChange> early_;  ///< with staleness 0, by worker

  std::optional<DelayCompensation> compensation_;
  std::set<int> resting_;                ///< workers that steps do not wait for
  std::vector<std::uint64_t> readable_;  ///< by worker, where changes may be dropped: the least version that it reads

  mutable std::mutex mutex_;  ///< of what follows
  StalenessCount staleness_;
  Observations observed_;
};

}  // namespace gradmeter::dataparallel
