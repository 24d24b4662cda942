// SPDX-License-Identifier: Apache-2.0
// One training configuration prepared on a group of ranks: data, model, fabric, strategy, and the probe of its steps.
#pragma once
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bench/engine/coded_sum.hpp"
#include "bench/engine/session.hpp"
#include "bench/train/config.hpp"
#include "bench/train/limits.hpp"
#include "bench/train/uploaded.hpp"
#include "dataparallel/assembly.hpp"
#include "dataparallel/fabric/decorators/fault_injector.hpp"
#include "dataparallel/fabric/decorators/verifier.hpp"
#include "model/data/dataset.hpp"
#include "runtime/communicator.hpp"

namespace gradmeter::bench {

/// The result of a test exchange. error: the relative squared error of the sum; empty if no sum with a codec was
/// tested.
struct ExchangeCheck {
  std::string fault = {};  ///< what is wrong; empty: nothing
  std::optional<double> error = {};
};

/// Totals over all ranks since the first step.
struct TrainingTotals {
  std::uint64_t bytes_sent = 0, bytes_sent_max = 0;  ///< max: the bytes of the rank that sent the most
  /// bytes_of_messages: the bytes that the messages of all calls should have.
  std::uint64_t bytes_between_nodes = 0, bytes_of_messages = 0, steps = 0;
  dataparallel::Forecast forecast = {};  ///< the forecast of strategy and model
  dataparallel::Observations observed = {};
  std::optional<dataparallel::LossScaler::State> loss_scale = {};  ///< empty where the loss is not scaled
  bool bytes_known = true;
  /// The longest time that a rank has spent in steps [s], including warm-up and discarded steps, since these made
  /// updates too.
  double seconds = 0;
  /// True if as many bytes were sent as expected (the forecast's number if that is exact, else `bytes_of_messages`),
  /// and not more than the forecast's upper bound, if it has one. Also true if the bytes sent are not known.
  bool bytes_agree() const { return !bytes_known || (bytes_sent == expected_bytes() && !is_over_bound()); }
  bool is_over_bound() const { return forecast.upper_bound && bytes_sent > forecast.bytes; }
  std::uint64_t expected_bytes() const { return forecast.exact ? forecast.bytes : bytes_of_messages; }
  std::string fault() const;  ///< says in a line what is not right
  /// Adds the totals of another training of the same point. Observations and loss scale become those of the other.
  TrainingTotals& operator+=(const TrainingTotals&);
};

DataFacts facts_of(const model::DataSplit&);

/// Means over the validation set's labels.
struct Validation {
  double accuracy = 0;  ///< top-1
  double loss = 0;      ///< [nats]
};

/// Construction is collective over the communicator, which must outlive this object. Ranks that only serve call the
/// same functions as a worker. An automatic bucket size is measured before anything of this training exists, so that
/// the search leaves no state in it.
class Training {
 public:
  Training(Session&, const runtime::Communicator&, const model::DataSplit&, const TrainingConfig&);
  ~Training();
  Training(const Training&) = delete;
  Training& operator=(const Training&) = delete;

  /// Loads this worker's part of batch number `step`, so that the step itself need not load it. Not collective.
  void prepare(std::size_t step);
  /// Draws this worker's samples of an epoch in advance: otherwise the step that first reads a sample of the built-in
  /// digits takes 11 us to draw it. The constructor does this for epoch 0. Not collective.
  void draw_epoch(std::size_t first_step);
  /// Trains on this worker's part of global batch number `step`. On a device the step is only submitted; `get` of the
  /// outcome and `take_records` wait for it.
  model::PendingOutcome step(std::size_t step) { return this->step(step, config_.step_size); }
  model::PendingOutcome step(std::size_t step, float step_size);
  /// Waits for all submitted steps, and returns the records of the steps since the last call of `take_records`, in
  /// order. On a rank that only serves, the records are empty.
  std::vector<dataparallel::StepRecord> take_records();
  /// True where steps are submitted ahead of the device that makes them.
  bool runs_ahead() const { return !session_.on_host(); }
  /// The gradient of this rank's part of batch `step` at the current weights, before any exchange. Collective over the
  /// ranks of one replica. The next step overwrites the gradient; this call does not change that step's result.
  /// Cost: a forward and a backward pass.
  std::span<const float> local_gradient(std::size_t step);
  /// The weights that this rank trains, as they are between two steps, in the order of `model().tensors()`.
  std::span<const float> weights() { return on_host(assembly_.buffers().parameters, weights_copy_); }
  std::size_t steps_per_epoch() const { return sampler_.steps_per_epoch(); }
  /// The number of steps after which exchanges repeat.
  std::size_t period() const { return assembly_.strategy().period(); }
  std::size_t batch_global() const { return layout_.batch_global(config_); }
  const Layout& layout() const { return layout_; }

  /// True if the strategy exchanges messages at any time, so that workers may be at different steps.
  bool uses_ports() const { return dataparallel::uses_ports(config_.strategy->info().communication); }
  /// Returns when this rank has no exchange under way and, if `uses_ports()`, all ranks have called it. So a common
  /// action after it does not wait for another rank's training. Collective.
  void quiesce();
  /// Does what `quiesce` does, and keeps progress threads idle as long as the returned value lives. Null where they are
  /// idle anyway. Collective.
  using ProgressPause = std::shared_ptr<void>;
  ProgressPause pause_progress();

  /// Computes the loss and accuracy of the evaluation weights on the whole validation set, divided among workers.
  /// Collective.
  Validation validate();
  /// True if all workers hold bitwise equal weights, or if the strategy does not promise that. Collective.
  bool weights_agree();
  /// Checks the strategy's all-reduces on known data, with training's own buckets, operation and codec. Collective;
  /// call it before the first step. It leaves the gradients zero, and otherwise does not change the run.
  ExchangeCheck check_sums();
  /// Calls `check_sums`. Then makes verified steps, from batch 0 on, until the workers have exchanged something (64
  /// steps at most), and verifies the exchange of evaluation weights. Collective; call it before the first step.
  ExchangeCheck check_exchange();
  /// Makes only the all-reduces of a step, on the present gradients, for a strategy that makes all-reduces. Collective.
  void exchange_gradients();
  /// The least that a step demands of the machine, on average over a period. Collective.
  StepDemand demand() const;
  /// Asks for two checks: of the operations of the next step, and of every call and message of the next step that
  /// exchanges anything. All ranks call it before the same step. The step gives the same bits, but takes longer. Cost:
  /// see dataparallel::Verifier and kernels::CallCheck.
  void verify_next() {
    queue_->synchronise();  // so that the steps before a check do not add to its time
    verifier_.arm();
    checks_operations_ = true;
  }
  /// Returns in one line, the same on all ranks, what was wrong in the steps verified since `take_fault` was last
  /// called; empty: nothing. Collective, after `quiesce`. Cost: a few small collectives.
  std::string take_fault();
  /// Ends the strategy, after which there are no more steps, and returns the totals. Collective.
  TrainingTotals finish();
  /// The observations so far. Servers may still be answering, so bytes are not compared with a forecast. Collective.
  dataparallel::Observations observed();
  /// The state of the loss scale so far. Where ranks differ, it has the least scale and the most skipped steps.
  /// Collective.
  std::optional<dataparallel::LossScaler::State> loss_scale();

  const model::Model& model() const { return assembly_.model(); }
  std::string_view transport_name() const;
  /// True where each bucket of the gradients is exchanged in a call of its own.
  bool exchanges_buckets() const;
  std::vector<dataparallel::Bucket> buckets() const;
  /// The bucket size that `--bucket auto` has measured; empty: the size was given, does not apply, or buckets end where
  /// `chosen_ends` says.
  std::optional<std::size_t> chosen_bucket() const { return chosen_bucket_; }
  /// The ends of the buckets that `--bucket auto` has fitted to the ready times (make_buckets); empty: it has not.
  const std::vector<std::size_t>& chosen_ends() const { return config_.bucket_ends; }
  /// Later steps record when each gradient was ready.
  void keep_ready() { assembly_.probe().keep_ready(model().tensors().size()); }
  bool has_progress_thread() const { return progress_thread_; }
  /// The number of threads of this rank that run at once, besides compute threads.
  int helper_threads() const;
  dataparallel::Probe& probe() { return assembly_.probe(); }

 private:
  model::Batch batch() const { return {inputs_.device(), labels_.device(), data_.train->labels()}; }
  /// The buffer itself where it is in host memory, else a copy of the device's memory, held in `copy`.
  std::span<const float> on_host(const runtime::ConstBuffer&, std::vector<float>& copy);
  /// Waits until this rank's messages have left, which is when their receivers have read them; 5 s at most.
  void await_departures();
  /// The fabric that the verifier checks: with injected faults, if there are any.
  dataparallel::Fabric& checked_fabric() {
    return fault_injector_ ? static_cast<dataparallel::Fabric&>(*fault_injector_) : fabric_;
  }
  bool sums_are_exact();
  ExchangeCheck check_coded_exchange();
  ExchangeCheck try_coded_exchange(CodedData);
  dataparallel::ForecastInput forecast_input(std::uint64_t first_step, std::uint64_t steps) const;
  dataparallel::Forecast forecast(const dataparallel::ForecastInput&) const;
  bool has_verified() const;
  model::Buffers evaluation_weights();

  Session& session_;
  const runtime::Communicator& communicator_;
  model::DataSplit data_;
  TrainingConfig config_;
  std::vector<int> node_of_rank_;  ///< by rank
  Layout layout_;
  std::optional<std::size_t> chosen_bucket_;
  bool progress_thread_;
  std::unique_ptr<runtime::Queue> queue_, exchange_queue_;
  dataparallel::RankFabric fabric_;
  std::unique_ptr<dataparallel::FaultInjector> fault_injector_;  ///< null: no fault is injected
  dataparallel::Verifier verifier_;
  dataparallel::Assembly assembly_;
  dataparallel::Buffer evaluation_weights_, barrier_float_;  ///< the all-reduce of barrier_float_ is a barrier
  model::Sampler sampler_;
  std::vector<std::uint64_t> indices_;
  Uploaded<float> inputs_;
  Uploaded<std::int32_t> labels_;
  std::vector<float> weights_copy_, gradient_copy_;
  std::optional<std::size_t> loaded_;  ///< number of the batch that is loaded; empty: none
  std::uint64_t steps_ = 0;
  double seconds_ = 0;  ///< time within steps [s]
  bool finished_ = false;
  bool checks_operations_ = false;  ///< true: the operations of the next step are checked
  std::uint64_t check_seed_;        ///< seed that selects what a check looks at; it changes from check to check
  std::string operation_fault_;     ///< first fault of this rank's checked operations since the last `take_fault`
  std::size_t served_steps_ = 0;    ///< steps of a rank that only serves, since the last `take_records`
};

// The data set of a job. Drawn data and text are made by each rank for itself; images are read from files once a node.

/// Collective over `world`; so is the destruction of the last copy of the result. All ranks of a node have equal data.
/// Cost: a node reads and holds images once; text is read and held by every rank; for data that are drawn, see
/// model::make_data.
/// Errors: UsageError, on all ranks of a node whose files are at fault.
model::DataSplit load_data(const runtime::Communicator& world, const model::DataOptions&);

// Implements `--bucket auto`: the cut into buckets that is fastest here, measured by steps of the same training.

/// The bucket sizes to try [bytes], from 256 KiB to 25 MiB, and by convention 0 for one bucket that holds all tensors.
/// Where several sizes cut the tensors into the same buckets, only the first of them is returned.
std::vector<std::size_t> bucket_candidates(std::span<const model::Tensor>, std::size_t element_count);

/// The index of the candidate with the shortest median. times: by candidate, the times of its steps on the slowest rank
/// [s].
std::size_t fastest_candidate(const std::vector<std::vector<double>>& times);

/// The configuration with definite buckets. A given size stays. An automatic size becomes the usual one if it does not
/// matter or if `refusal` rejects the configuration; otherwise the candidate size whose trial trainings are fastest. If
/// exchanges run beside backward, the trials also show when each gradient is ready on all ranks and what a call costs.
/// From these, best_cut computes another cut; it is measured alternately with the fastest size, and chosen unless its
/// steps are over 2 % longer. Collective over the communicator; all ranks choose alike.
/// Cost: two trials of four steps for each candidate, then two for the fastest size and two for the best cut.
/// Errors: those of a Training; Interrupted.
TrainingConfig with_chosen_bucket(Session&, const runtime::Communicator&, const model::DataSplit&, TrainingConfig);

}  // namespace gradmeter::bench
