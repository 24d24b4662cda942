// SPDX-License-Identifier: Apache-2.0
// Training strategies, which say what a step does with a model and a fabric. A strategy itself calls neither MPI nor a
// timer.
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/name.hpp"
#include "dataparallel/buckets.hpp"
#include "dataparallel/fabric/fabric.hpp"
#include "dataparallel/forecast.hpp"
#include "dataparallel/loss_scale.hpp"
#include "dataparallel/mesh.hpp"
#include "dataparallel/optimizers/optimizer.hpp"
#include "model/model.hpp"

namespace gradmeter::dataparallel {

class UpdateFormat;

/// The work that a step asks of the ranks that hold one replica of the model together.
struct ReplicaWork {
  /// training_passes: number of forward and backward passes; forward_only_passes: number of forward passes alone
  std::size_t training_passes = 1, forward_only_passes = 0;
  std::size_t replica_floats = 0;    ///< floats that the rank with the loss sends to the others
  std::vector<Bucket> updates = {};  ///< ranges to which the optimizer is applied, one by one
  bool shares_norms = false;         ///< the optimizer takes norms of whole tensors
};

/// The context of a strategy on one rank: the fabric, its axis of the mesh, a model, its buffers and its optimizer.
class Worker {
 public:
  /// axis: the ranks that hold the same part of the model and train on other data; strategies communicate only with
  /// them. mesh: used to send values to the other ranks of the replica; may be null if one rank holds a whole replica.
  /// part_sums: see part_sums(). scaler: null if the loss is not scaled. gradient_format: null if gradients stay in
  /// fp32.
  Worker(Fabric& fabric, Group axis, model::Model& model, model::Buffers buffers, Optimizer& optimizer,
         const Mesh* mesh = nullptr, SumsOverRanks* part_sums = nullptr, LossScaler* scaler = nullptr,
         const UpdateFormat* gradient_format = nullptr)
      : fabric_(fabric),
        axis_(axis),
        model_(model),
        buffers_(buffers),
        optimizer_(optimizer),
        mesh_(mesh),
        part_sums_(part_sums),
        scaler_(scaler),
        gradient_format_(gradient_format) {}
  Fabric& fabric() { return fabric_; }
  Group axis() const { return axis_; }
  int rank() const { return fabric_.rank(axis_); }
  int ranks() const { return fabric_.size(axis_); }
  model::Model& model() { return model_; }
  Optimizer& optimizer() { return optimizer_; }
  /// Sums over the ranks that hold the other parts of this model's tensors, for optimizers that a strategy makes
  /// itself. Null if there are no such ranks, or if the run's optimizer needs no such sums.
  SumsOverRanks* part_sums() const { return part_sums_; }
  /// Null if the loss is not scaled.
  LossScaler* scaler() const { return scaler_; }
  model::Buffers buffers() const { return buffers_; }
  Buffer parameters() const { return buffers_.parameters; }
  Buffer gradients() const { return buffers_.gradients; }
  Buffer gradients(std::size_t offset, std::size_t count) const { return buffers_.gradients.part(offset, count); }
  /// The fabric's queue, for all that this rank computes.
  runtime::Queue& queue() { return fabric_; }
  /// Runs forward and backward passes, which compute the gradients of the batch's mean loss. Each gradient is divided
  /// by the loss scale (if there is one) and rounded to the format of gradients before `ready` is called for its
  /// tensor.
  model::PendingOutcome pass(
      const model::Batch&, const model::Model::Ready& ready = [](std::size_t) {});
  /// Sends values from the rank that has the loss to all ranks of this replica of the model. `values` is the fabric's
  /// memory.
  void broadcast_to_replica(const Buffer& values) {
    if (mesh_) mesh_->send_to_replica(fabric_, values);
  }
  /// Applies the optimizer to one range of the flat buffers. With a loss scale that adapts, ranges are held back until
  /// all have been given, since only then it is known whether the step is skipped. So a strategy must give all ranges
  /// in each step.
  void update(std::size_t offset, std::size_t count, UpdateStep);
  void update(UpdateStep step) { update(0, parameters().count(), step); }
  /// Clips the gradients of all tensors together: scales them down so that their norm is at most norm/sqrt(ranks).
  void clip(double norm, int ranks);
  /// Replaces `values`, which are the fabric's memory, by their mean over the axis, after all of this rank's work so
  /// far.
  void average(const Buffer& values);

 private:
  void finish_gradient(const Buffer&);
  void apply(Range, UpdateStep);

  Fabric& fabric_;
  Group axis_;
  model::Model& model_;
  model::Buffers buffers_;
  Optimizer& optimizer_;
  const Mesh* mesh_;
  SumsOverRanks* part_sums_;
  LossScaler* scaler_;
  const UpdateFormat* gradient_format_;
  std::vector<Range> held_back_;  ///< ranges given to `update` in this step, until all have been given
};

/// Counts and times of this rank so far that only the strategy itself can note.
struct Observations {
  /// staleness[k]: how many updates had staleness k, that is, k other updates were applied between the read of their
  /// weights and their own application. Counted while all workers train. A server counts an update once for each of its
  /// chunks. For `ad-psgd` each worker counts its own updates, and k is the number of averages that it made in between.
  std::vector<std::uint64_t> staleness = {};
  /// The sum of the staleness that updates under way had reached when the first worker finished.
  std::uint64_t staleness_under_way = 0;
  /// Updates of this rank's worker. Each counts once, however many servers hold a part of the weights.
  std::uint64_t updates = 0;
  std::uint64_t applied = 0;  ///< steps of this rank's server; updates that are applied together count as one
  /// The largest number of clocks by which a worker was ahead of the slowest one when it read. For `ad-psgd`: the
  /// largest difference between two workers that averaged.
  std::uint64_t largest_gap = 0;
  double read_wait_s = 0;     ///< time for which reads waited at this rank's server [s]
  std::uint64_t dropped = 0;  ///< number of chunks' changes that came too late for their step and were not used

  /// The mean staleness of the counted updates. Their staleness is summed together with `staleness_under_way`; without
  /// it, the updates that are under way at the end would bias the mean.
  double mean_staleness() const;
};

/// Weights, as a view of the memory that holds them: `values` begins with element `first`.
struct WeightsInPlace {
  std::size_t first = 0;
  std::span<const float> values = {};
};

class Strategy {
 public:
  /// The optimizer is applied, one by one, to the buckets that make_buckets cuts with these arguments; by default all
  /// weights are one bucket.
  explicit Strategy(std::size_t bucket_bytes = 0, std::vector<std::size_t> bucket_ends = {})
      : bucket_bytes_(bucket_bytes), bucket_ends_(std::move(bucket_ends)) {}
  virtual ~Strategy() = default;
  /// The number of ranks of an axis that train: its first ranks. The others only serve.
  virtual int workers(int ranks) const { return ranks; }
  /// The most bytes that `begin` will take from the fabric.
  virtual std::size_t fabric_bytes(const model::Model&, int ranks) const { return (void)ranks, std::size_t{0}; }
  /// The most bytes that the strategy keeps on one rank besides `fabric_bytes`: copies of weights, and the state of
  /// optimizers that it makes itself.
  virtual std::size_t bytes_besides_fabric(const model::Model&, int ranks) const { return (void)ranks, std::size_t{0}; }
  /// The reason why the strategy cannot be used with this optimizer on so many ranks; empty: it can be.
  virtual std::string refusal(const Optimizer&, int ranks) const { return (void)ranks, std::string(); }

  /// Called once, before the first step, on all ranks of the axis: all take rank 0's weights, which must be ready.
  virtual void begin(Worker&);
  /// The number of steps after which the pattern of exchanges repeats. A step's time is reported as the mean over that
  /// many steps.
  virtual std::size_t period() const { return 1; }

  /// Makes one training step on this worker's part of the batch. Ranks that only serve do not call it.
  virtual model::PendingOutcome step(Worker&, const model::Batch&, UpdateStep) = 0;
  /// Waits until this worker has no call under way. Once it has returned on all workers, no message is on its way until
  /// the next step.
  virtual void settle(Worker&) {}
  /// Writes the evaluation weights to `to`: those that the run would return now. They are the servers' weights, the
  /// mean of all workers' weights, or this worker's own. All workers must call it, after all have settled; it changes
  /// no state.
  virtual void evaluation_weights(Worker&, Buffer to);
  /// The evaluation weights that this rank holds at this moment, without communication. If several ranks hold an
  /// element, its weight is their mean. Observers in virtual time may call it, only while no task of any rank runs.
  /// Empty on all ranks: the weights are not known without communication.
  virtual std::vector<WeightsInPlace> held_weights(const Worker&) const;
  /// Called after the last step, on all ranks. Servers stop here.
  virtual void end(Worker&) {}

  virtual Observations observed() const { return {}; }
  /// The bytes and messages that the ranks of one axis will send along it.
  virtual Forecast predict(const ForecastInput&) const = 0;
  /// The work that a step asks of the ranks of one replica of the model, whichever optimizer the run has.
  virtual ReplicaWork replica_work(const ForecastInput& input) const { return {.updates = buckets(input)}; }

 protected:
  std::vector<Bucket> buckets(const ForecastInput& input) const {
    return make_buckets(input.tensors, input.elements, bucket_bytes_, bucket_ends_);
  }
  std::vector<Bucket> buckets(const model::Model& m) const {
    return make_buckets(m.tensors(), m.element_count(), bucket_bytes_, bucket_ends_);
  }
  /// Applies the worker's optimizer bucket by bucket, as `sync` does, so that a strategy that does not exchange
  /// gradients differs from `sync` only by its exchange.
  void update_by_buckets(Worker&, UpdateStep) const;
  /// Writes the mean of all workers' weights to `to`; for strategies whose evaluation weights are this mean.
  static void mean_weights(Worker&, Buffer to);

 private:
  std::size_t bucket_bytes_;
  std::vector<std::size_t> bucket_ends_;
};

/// The options that all strategies are made with. Each uses those that it needs.
struct StrategyOptions {
  std::size_t bucket_bytes = std::size_t{25} << 20;
  std::vector<std::size_t> bucket_ends = {};  ///< for `sync`; empty: buckets are cut by their bytes
  bool overlap = true;                        ///< communicate during computation where the strategy allows it
  /// number of ranks at the end of an axis that only serve; 0: servers, if any, run beside workers
  int servers = 0;
  /// Optimizer of the servers, or of a strategy that keeps the optimizer itself (`keeps_optimizer_state`).
  std::string optimizer = "sgd";
  /// Codec of the strategy's own messages; all-reduces are encoded by the fabric. A codec may also ask that gradients
  /// be clipped.
  compression::CodecChoicePtr codec = {};
  std::uint64_t seed = 1;
  LossScaling loss_scale = {};
  /// Name of the format (update_formats) to which gradients are rounded before they are exchanged.
  std::string gradient_format = "fp32";
};

/// The calls or messages that a strategy sends. In brackets: an experiment's factors that apply to such strategies.
enum class CommunicationPattern : std::uint8_t {
  nothing,          ///< [none]
  all_reduce,       ///< all-reduces of gradients [algorithm, codec, transport, overlap, bucket]
  sharded_buckets,  ///< reduce-scatters and all-gathers of buckets [algorithm, transport, overlap, bucket]
  collectives,      ///< other collectives, on weights or scalars [algorithm, transport]
  changes,          ///< all-reduces of changes of weights [algorithm, codec, transport; overlap if the name sets it]
  messages,         ///< sends and receives [transport]
  overlapped_messages,    ///< sends and receives that may overlap the pass [transport, overlap]
  asynchronous_messages,  ///< between workers, answered at any step [transport, overlap]
  client_server           ///< between workers and servers, at any step [transport, codec, overlap]
};

/// True if messages go through ports and are answered by background tasks at any time, so that workers may be at
/// different steps.
constexpr bool uses_ports(CommunicationPattern p) {
  return p == CommunicationPattern::client_server || p == CommunicationPattern::asynchronous_messages;
}

/// True if the pattern has all-reduces, and a codec encodes them.
constexpr bool encodes_sums(CommunicationPattern p) {
  return p == CommunicationPattern::all_reduce || p == CommunicationPattern::changes;
}

/// One strategy of the registry. `parameters`: their names with their defaults, "every=16,start=0"; empty: none.
/// `rule`, `bytes_text` and `source` tell users how it updates weights, how many bytes it sends, and who described it.
struct StrategyInfo {
  std::string_view name, parameters = "", rule, bytes_text, source;
  CommunicationPattern communication;
  /// True if the strategy keeps the optimizer's state itself, for a part of the weights, so that workers need no
  /// optimizer.
  bool keeps_optimizer_state = false;
  /// True if only the optimizer changes weights, so that weights stay in the optimizer's number format.
  bool only_optimizer_changes_weights = false;
  /// A step computes something other than a step of the control (`independent`), so the two must not be compared.
  bool computes_other_work = false;
  /// True if the strategy can find out whether all gradients of a step are finite before it applies any, with the same
  /// result on all ranks that keep equal weights, so that the loss scale may adapt.
  bool may_skip_steps = false;
  bool keeps_workers_equal = false;                ///< after every step all workers hold the same bits
  std::string_view optimizer = "momentum:mu=0.9";  ///< the usual optimizer; empty: workers have none
  /// A step size that goes well with `optimizer` on the built-in digits.
  float step_size = 0.01f;
  std::unique_ptr<Strategy> (*make)(const core::ParsedName&, const StrategyOptions&);
};
std::span<const StrategyInfo> strategies();

/// A strategy as a user named it, every parameter written out.
class StrategyChoice {
 public:
  StrategyChoice(const StrategyInfo& info, core::ParsedName parsed)
      : name(parsed.canonical()), info_(info), parsed_(std::move(parsed)) {}
  const std::string name;  ///< canonical: equal names mean equal strategies
  const StrategyInfo& info() const { return info_; }
  bool communicates() const { return info_.communication != CommunicationPattern::nothing; }
  /// True if an exchange of changes continues during later steps, so that a progress thread must move it.
  bool overlaps_changes() const;
  /// Errors: UsageError for a parameter's value that it does not take.
  std::unique_ptr<Strategy> make(StrategyOptions) const;
  /// The same strategy with another number of servers. Errors: UsageError where it has none.
  std::shared_ptr<const StrategyChoice> with_servers(int) const;
  /// The strategy for a run on one rank: without ranks that only serve, since the one rank must train.
  std::shared_ptr<const StrategyChoice> for_one_rank() const;

 private:
  const StrategyInfo& info_;
  core::ParsedName parsed_;
};
using StrategyPtr = std::shared_ptr<const StrategyChoice>;
/// Finds the strategy of a name: "sync", "model-averaging:every=8". Errors: UsageError that lists the strategies, or
/// the parameters that it takes.
StrategyPtr find_strategy(std::string_view name);

}  // namespace gradmeter::dataparallel
