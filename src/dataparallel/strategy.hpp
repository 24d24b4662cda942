// A training strategy: what a step does with a model and a fabric. It owns no MPI call and no timer.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/name.hpp"
#include "dataparallel/forecast.hpp"
#include "dataparallel/worker.hpp"

namespace gradmeter::dataparallel {

/// What only the strategy can count in a run, for this rank so far.
struct Observations {
  /// staleness[k]: updates applied here k updates after the weights they were computed from; while all workers trained.
  /// Each server counts those of its own shard. Of `ad-psgd`: k averages after them, by each worker.
  std::vector<std::uint64_t> staleness = {};
  /// Of the updates that had not come yet when the first worker finished, summed.
  std::uint64_t staleness_under_way = 0;
  std::uint64_t updates = 0;  ///< of this rank's worker, each once, over however many servers it is spread
  std::uint64_t applied = 0;  ///< steps of the server here: updates that it groups count as one
  /// The most clocks that the fastest worker was ahead of the slowest when it read; of two that averaged.
  std::uint64_t largest_gap = 0;
  double held_s = 0;          ///< time of reads that the staleness bound held back
  std::uint64_t dropped = 0;  ///< changes of a chunk that came too late for their step

  /// With the updates under way at the end, so that an incomplete cycle counts as far as it went.
  double mean_staleness() const;
};

/// Weights where they lie: `values` are those from element `first` on.
struct WeightsInPlace {
  std::size_t first = 0;
  std::span<const float> values = {};
};

class Strategy {
 public:
  virtual ~Strategy() = default;
  /// How many of an axis' ranks train: the first so many. The others serve.
  virtual int workers(int ranks) const { return ranks; }
  /// What `begin` will take from the fabric at most [bytes].
  virtual std::size_t memory_bytes(const model::Model&, int ranks) const { return (void)ranks, std::size_t{0}; }
  /// What it keeps besides, at most, on one rank: copies of weights, the state of optimizers of its own [bytes].
  virtual std::size_t own_bytes(const model::Model&, int ranks) const { return (void)ranks, std::size_t{0}; }
  /// Why it cannot be used with this optimizer on so many ranks; empty: it can.
  virtual std::string refusal(const Optimizer&, int ranks) const { return (void)ranks, std::string(); }

  /// Once, before the first step, on all ranks of the axis: all take rank 0's weights, which must be ready.
  virtual void begin(Worker&);
  /// The number of steps after which exchanges repeat: a step's time is the mean over them.
  virtual std::size_t period() const { return 1; }

  /// One training step on this worker's part of the batch. Not on ranks that serve.
  virtual model::PendingOutcome step(Worker&, const model::Batch&, UpdateStep) = 0;
  /// Waits until this worker has nothing under way. When all have returned, nothing travels until the next step.
  virtual void settle(Worker&) {}
  /// Writes the evaluation weights, which the run would return now, to `to`: the servers', the mean, or this worker's
  /// own. All workers must call it, all settled; it changes nothing.
  virtual void evaluation_weights(Worker&, Buffer to);
  /// What this rank holds of the evaluation weights at this moment, without communication: of an element that several
  /// ranks hold, they are the mean. Only while no task of any rank runs: for observers in virtual time. Empty on all
  /// ranks: without communication they are not known.
  virtual std::vector<WeightsInPlace> held_weights(const Worker&) const;
  /// After the last step, on all ranks: servers end.
  virtual void end(Worker&) {}

  virtual Observations observed() const { return {}; }
  /// For one axis, along it.
  virtual Forecast predict(const ForecastInput&) const = 0;
  /// What a step needs of the ranks of one replica of the model; whose optimizer it is does not matter.
  virtual ReplicaWork replica_work(const ForecastInput& s) const {
    return {.updates = make_buckets(s.tensors, s.elements, 0)};
  }
};

/// What all strategies are made with; each takes what it needs.
struct StrategyOptions {
  std::size_t bucket_bytes = std::size_t{25} << 20;
  bool overlap = true;                     ///< communicate during computation where the strategy allows it
  int servers = 0;                         ///< as in the name: the last so many ranks of an axis only serve
  std::string optimizer = "sgd";           ///< the servers', and of strategies that make it for a part of the weights
  compression::CodecChoicePtr codec = {};  ///< of messages, and clips gradients; the fabric encodes all-reduces
  std::uint64_t seed = 1;
  LossScaling loss_scale = {};
  std::string gradients = "fp32";  ///< format to which they are rounded before they are exchanged, as of weights
};

/// How a strategy communicates, and so which factors apply to it.
enum class CommunicationPattern : std::uint8_t {
  nothing,                ///< none of them
  all_reduce,             ///< algorithm, codec, transport, overlap, bucket
  blocks,                 ///< algorithm, transport, overlap, bucket
  collectives,            ///< algorithm, transport
  changes,                ///< algorithm, codec, transport, and overlap where the name asks for it
  messages,               ///< transport
  overlapped_messages,    ///< transport, overlap
  asynchronous_messages,  ///< transport, overlap; ranks may be at different steps
  client_server           ///< transport, codec, overlap; ranks may be at different steps
};

/// Do messages go through ports, at any time and to background tasks, so that workers may be at different steps?
constexpr bool uses_ports(CommunicationPattern p) {
  return p == CommunicationPattern::client_server || p == CommunicationPattern::asynchronous_messages;
}

/// Does a codec apply to its all-reduces?
constexpr bool encodes_sums(CommunicationPattern p) {
  return p == CommunicationPattern::all_reduce || p == CommunicationPattern::changes;
}

/// One row. `parameters`: with their defaults, "every=16,start=0"; empty: none.
struct StrategyInfo {
  std::string_view name, parameters, rule, bytes_text, source;
  CommunicationPattern communication;
  /// The strategy has the optimizer's state itself, for a part of the weights: a worker needs none.
  bool own_optimizer = false;
  bool optimizer_alone = false;  ///< nothing else changes weights, so they are in the optimizer's number format
  bool other_work = false;       ///< a step computes something else than the control's: do not compare them
  /// It knows all gradients of a step before it applies any, and all its ranks alike: a loss scale may adapt.
  bool may_skip_steps = false;
  bool keeps_equal;            ///< after every step all workers hold the same bits
  std::string_view optimizer;  ///< usual; empty: it takes none
  float step_size;             ///< that goes well with it on the built-in digits
  std::unique_ptr<Strategy> (*make)(const core::ParsedName&, const StrategyOptions&);
};
std::span<const StrategyInfo> strategies();

/// A strategy as a user named it, every parameter written out.
class StrategyChoice {
 public:
  StrategyChoice(const StrategyInfo& info, core::ParsedName parsed)
      : name(parsed.canonical()), info_(info), parsed_(std::move(parsed)) {}
  const std::string name;  ///< canonical: equal names mean the same
  const StrategyInfo& info() const { return info_; }
  bool communicates() const { return info_.communication != CommunicationPattern::nothing; }
  /// Does an exchange of changes go on in later steps, so that a progress thread must move it?
  bool changes_overlap() const;
  /// Errors: UsageError for a parameter's value that it does not take.
  std::unique_ptr<Strategy> make(StrategyOptions) const;
  /// The same with another number of servers. Errors: UsageError where it has none.
  std::shared_ptr<const StrategyChoice> with_servers(int) const;
  /// In its form for one rank, which must train: without ranks that only serve.
  std::shared_ptr<const StrategyChoice> alone() const;

 private:
  const StrategyInfo& info_;
  core::ParsedName parsed_;
};
using StrategyPtr = std::shared_ptr<const StrategyChoice>;
/// "sync", "model-averaging:every=8". Errors: UsageError that lists the strategies, or the parameters that it takes.
StrategyPtr find_strategy(std::string_view name);

}  // namespace gradmeter::dataparallel
