// One training configuration prepared on a group of ranks: data, model, fabric, strategy and the probe over them.
#pragma once
#include <memory>
#include <optional>
#include <string>

#include "bench/engine/coded_data.hpp"
#include "bench/engine/session.hpp"
#include "bench/train/layout.hpp"
#include "bench/train/limits.hpp"
#include "dataparallel/assembly.hpp"
#include "dataparallel/decorators/fault_injector.hpp"
#include "dataparallel/decorators/verifier.hpp"
#include "model/dataset.hpp"

namespace gradmeter::bench {

/// The result of a test exchange. error: of the sum, relative and squared, with a codec.
struct ExchangeCheck {
  std::string fault = {};  ///< empty: right
  std::optional<double> error = {};
};

/// Over all ranks since the first step.
struct TrainingTotals {
  std::uint64_t bytes_sent = 0, bytes_sent_max = 0;  ///< max: of one rank
  std::uint64_t bytes_between_nodes = 0, bytes_due = 0, steps = 0;
  dataparallel::Forecast forecast = {};  ///< what strategy and model predicted
  dataparallel::Observations observed = {};
  std::optional<dataparallel::LossScaler::State> loss_scale = {};  ///< where the loss is scaled
  bool bytes_known = true;
  double seconds =
      0;  ///< within steps, warm-up and discarded ones too, of the rank that has the most: updates came in them
  /// The bytes sent equal the forecast, or, where there is none, the sum of the calls' own messages; and they do not
  /// exceed the forecast's upper bound, if it has one.
  bool right() const { return !bytes_known || (bytes_sent == due() && !beyond()); }
  bool beyond() const { return forecast.most && bytes_sent > forecast.bytes; }
  std::uint64_t due() const { return forecast.known ? forecast.bytes : bytes_due; }
  std::string fault() const;  ///< in a line, where it is not right
  /// Adds the totals of another training of the same point. What strategies observe is that of the last one.
  TrainingTotals& operator+=(const TrainingTotals&);
};

DataFacts facts_of(const model::DataSplit&);

/// Means over the validation set's labels.
struct Validation {
  double accuracy = 0;  ///< top-1
  double loss = 0;      ///< [nats]
};

/// Numbers that the host writes and a device reads: one memory where that is the host.
template <class T>
class Uploaded {
 public:
  Uploaded(runtime::Device& device, std::size_t count)
      : memory_(device.allocate(core::element_of<T>, count)), host_(memory_.buffer.on_device() ? count : 0) {}
  std::span<T> host() { return memory_.buffer.on_device() ? std::span<T>(host_) : memory_.buffer.values<T>(); }
  runtime::Buffer device() const { return memory_.buffer; }
  /// After the host has written. It must not write again before the queue has been waited for.
  void upload(runtime::Queue& queue) const {
    if (memory_.buffer.on_device()) queue.copy("upload", host_, memory_.buffer);
  }

 private:
  runtime::OwnedBuffer memory_;
  std::vector<T> host_;
};

/// Collective over the communicator, which must outlive it. A rank that only serves makes the same calls. An automatic
/// bucket size is measured before anything of this training exists, so that the search leaves no state in it.
class Training {
 public:
  Training(Session&, const runtime::Communicator&, const model::DataSplit&, const TrainingConfig&);
  ~Training();
  Training(const Training&) = delete;
  Training& operator=(const Training&) = delete;

  /// Loads this worker's part of batch `step`, so that the step itself need not. Not collective.
  void prepare(std::size_t step);
  /// Draws the samples of this worker's part of an epoch that are not drawn yet: each built-in digit takes 11 us.
  /// Called for the first epoch; in later ones the steps draw. Not collective.
  void draw_epoch(std::size_t first_step);
  /// Trains on this worker's part of global batch number `step`. `record()` has what it did.
  model::Outcome step(std::size_t step) { return this->step(step, config_.step_size); }
  model::Outcome step(std::size_t step, float step_size);
  const dataparallel::StepRecord& record() const { return record_; }
  /// The gradient of this rank's part of batch `step` at the current weights, before any exchange. Collective only over
  /// the ranks of one replica. The next step overwrites it, and is the same with or without this call.
  /// Cost: a forward and a backward pass.
  std::span<const float> local_gradient(std::size_t step);
  /// What this rank trains, as it stands between two steps; places as in `model().tensors()`.
  std::span<const float> weights() { return on_host(assembly_.buffers().parameters, weights_copy_); }
  std::size_t steps_per_epoch() const { return sampler_.steps_per_epoch(); }
  /// The number of steps after which exchanges repeat.
  std::size_t period() const { return assembly_.strategy().period(); }
  std::size_t batch_global() const { return layout_.batch_global(config_); }
  const Layout& layout() const { return layout_; }

  /// Do ranks exchange messages at any time, and may workers be at different steps?
  bool uses_ports() const { return dataparallel::uses_ports(config_.strategy->info().communication); }
  /// Collective: all ranks have called, with nothing of their own under way, so that what they do together next waits
  /// for nobody's training.
  void quiesce();
  /// Collective: `quiesce`, and while it lives the progress threads are idle too. Null where they are so by themselves.
  using ProgressPause = std::unique_ptr<dataparallel::Engine::ProgressPause>;
  ProgressPause pause_progress();

  /// Collective: of the evaluation weights over the whole validation set, each worker its part.
  Validation validate();
  /// Collective: do all workers hold the same bits, where the strategy promises it?
  bool weights_agree();
  /// Collective, before the first step: checks the strategy's all-reduces on known data, in training's own buckets,
  /// operation and codec. Leaves the gradients zero, and changes nothing else of a run.
  ExchangeCheck check_sums();
  /// Collective, before the first step: `check_sums`, then verified steps, from batch 0 on, until the workers have
  /// exchanged something (64 at most), and the evaluation weights.
  ExchangeCheck check_exchange();
  /// Collective, of a strategy that makes all-reduces: those of a step, alone, on the present gradients. No step.
  void exchange_gradients();
  /// Collective: the least that a step needs of the machine, on average over a period.
  StepDemand demand() const;
  /// Verifies the next step in which anything is exchanged, call by call and message by message, and the operations of
  /// the next step. On all ranks before the same step. The step gives the same bits, only later. Cost: see
  /// dataparallel::Verifier and kernels::CallCheck.
  void verify_next() {
    verifier_.arm();
    checks_calls_ = true;
  }
  /// Collective, after `quiesce`: what was wrong in the steps verified since the last call, in a line that is the
  /// same on all ranks; empty: nothing. Cost: a few small collectives.
  std::string verdict();
  /// Collective: ends the strategy; afterwards there are no more steps. Returns the totals.
  TrainingTotals finish();
  /// Collective: so far. Servers may still be answering, so bytes are not compared with a forecast.
  dataparallel::Observations observed();
  /// Collective, likewise. Of ranks that differ: the least scale and the most skipped steps.
  std::optional<dataparallel::LossScaler::State> loss_scale();

  const model::Model& model() const { return assembly_.model(); }
  std::string_view transport_name() const;
  /// Is each bucket of the gradients exchanged in a call of its own?
  bool exchanges_buckets() const;
  std::size_t bucket_bytes() const { return config_.bucket_bytes; }
  /// The measured automatic size; empty: it was given, or does not apply.
  std::optional<std::size_t> chosen_bucket() const { return chosen_bucket_; }
  bool has_progress_thread() const { return progress_thread_; }
  /// Threads of this rank that run at once, besides compute threads.
  int helper_threads() const;
  dataparallel::Probe& probe() { return assembly_.probe(); }

 private:
  model::Batch batch() const { return {inputs_.device(), labels_.device(), data_.train->labels()}; }
  /// The memory itself, or what is there on the device.
  std::span<const float> on_host(const runtime::ConstBuffer&, std::vector<float>& copy);
  void await_departures();
  dataparallel::Fabric& under_test() { return injecting_ ? static_cast<dataparallel::Fabric&>(*injecting_) : fabric_; }
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
  std::vector<int> nodes_;  ///< by rank
  Layout layout_;
  std::optional<std::size_t> chosen_bucket_;
  bool progress_thread_;
  std::unique_ptr<runtime::Queue> queue_, exchange_queue_;
  dataparallel::RankFabric fabric_;
  std::unique_ptr<dataparallel::FaultInjector> injecting_;  ///< null: nothing is injected
  dataparallel::Verifier verifier_;
  dataparallel::Assembly assembly_;
  dataparallel::Buffer evaluation_weights_, word_;
  model::Sampler sampler_;
  std::vector<std::uint64_t> indices_;
  Uploaded<float> inputs_;
  Uploaded<std::int32_t> labels_;
  std::vector<float> weights_copy_, gradient_copy_;
  std::optional<std::size_t> loaded_;
  std::uint64_t steps_ = 0;
  double seconds_ = 0;  ///< within them
  bool finished_ = false;
  bool checks_calls_ = false;  ///< of the next step
  std::uint64_t check_seed_;   ///< of what is looked at; each check has another
  std::string calls_fault_;    ///< of this rank's checked operations since the last verdict
  dataparallel::StepRecord record_;
};

}  // namespace gradmeter::bench
