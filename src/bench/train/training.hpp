// One training configuration made ready on a group of ranks: data, model, fabric, strategy and the probe over them.
#pragma once
#include <memory>
#include <optional>
#include <string>

#include "bench/engine/coded_data.hpp"
#include "bench/engine/session.hpp"
#include "bench/train/layout.hpp"
#include "bench/train/limits.hpp"
#include "dataparallel/injecting.hpp"
#include "dataparallel/probe.hpp"
#include "dataparallel/verifier.hpp"
#include "model/dataset.hpp"

namespace gradmeter::bench {

/// What a trial exchange showed. error: of the sum, relative and squared, with a codec.
struct ExchangeCheck {
  std::string fault = {};  ///< empty: right
  std::optional<double> error = {};
};

/// Over all ranks since the first step.
struct TrainingTotals {
  std::uint64_t bytes_sent = 0, bytes_sent_max = 0;  ///< max: of one rank
  std::uint64_t bytes_between_nodes = 0, bytes_due = 0, steps = 0;
  dataparallel::Forecast forecast = {};  ///< what strategy and model said that they would send
  dataparallel::Observations observed = {};
  bool bytes_known = true;
  double seconds =
      0;  ///< within steps, warm-up and discarded ones too, of the rank that has the most: updates came in them
  /// Sent is what was forecast, or, where nobody could, what the calls' own messages add up to, and no more than the
  /// forecast's most where it has one.
  bool right() const { return !bytes_known || (bytes_sent == due() && !beyond()); }
  bool beyond() const { return forecast.most && bytes_sent > forecast.bytes; }
  std::uint64_t due() const { return forecast.known ? forecast.bytes : bytes_due; }
  std::string fault() const;  ///< in a line, where it is not right
};

/// Collective over the communicator, which must outlive it. A rank that only serves makes the same calls. An automatic
/// bucket size is found before anything of this training exists, so that nothing of the search is left in it.
class Training {
 public:
  Training(Session&, const runtime::Communicator&, const model::DataSplit&, const TrainingConfig&);
  ~Training();
  Training(const Training&) = delete;
  Training& operator=(const Training&) = delete;

  /// Takes this worker's part of batch `step` from the data, so that the step itself need not. Not collective.
  void prepare(std::size_t step);
  /// Draws what this worker's part of an epoch needs and has not: of the built-in digits each sample takes 11 us. Made
  /// for the first epoch; of others without it, by the steps. Not collective.
  void draw_epoch(std::size_t first_step);
  /// Trains on this worker's part of global batch number `step`. What it did stands in `record()`.
  model::Outcome step(std::size_t step) { return this->step(step, config_.step_size); }
  model::Outcome step(std::size_t step, float step_size);
  const dataparallel::StepRecord& record() const { return record_; }
  /// Of this rank's part of batch `step` at the weights of now, before any exchange. Not collective but over the ranks
  /// of one copy of the model; the next step overwrites it, and goes as if it had not been asked for.
  /// Cost: a forward and a backward pass.
  std::span<const float> local_gradient(std::size_t step);
  std::size_t steps_per_epoch() const { return sampler_.steps_per_epoch(); }
  /// Steps from one exchange to the next that is like it.
  std::size_t period() const { return strategy_->period(); }
  std::size_t batch_global() const { return layout_.batch_global(config_); }
  const Layout& layout() const { return layout_; }

  /// Do ranks speak without an agreement on when, so that none may use MPI itself but in a `pause_progress`?
  bool is_client_server() const {
    return config_.strategy->info().communication == dataparallel::CommunicationPattern::client_server;
  }
  /// Collective: everybody has come, and nobody waits for an answer. While it lives the caller may use MPI. Null where
  /// that is always so.
  using ProgressPause = std::unique_ptr<dataparallel::Engine::ProgressPause>;
  ProgressPause pause_progress();

  /// Collective: top-1 of the weights that the run would hand over now, over the whole validation set, each worker its
  /// part.
  double validation_accuracy();
  /// Collective: do all workers hold the same bits, where the strategy promises it?
  bool weights_agree();
  /// Collective, before the first step: what the strategy's all-reduces make of known data, in training's own buckets,
  /// operation and codec. Leaves the gradients zero. Nothing of a run changes by it.
  ExchangeCheck check_sums();
  /// Collective, before the first step: `check_sums`, then verified steps, from batch 0 on, until the workers have
  /// exchanged something (64 at most), and the weights that the run would hand over.
  ExchangeCheck check_exchange();
  /// Collective, of a strategy that makes all-reduces: those of a step, alone, on what lies in the gradients. No step.
  void exchange_gradients();
  /// Collective: what a step asks of the machine at least, on average over a period.
  StepDemand demand() const;
  /// The next step in which anything is exchanged is verified, call by call and message by message. On all ranks before
  /// the same step. It gives the bits that it would have given, only later. Cost: see dataparallel::Verifier.
  void verify_next() { verifier_.arm(); }
  /// Collective, in a `pause_progress`: what was wrong in the steps verified since the last time, in a line that is the
  /// same on all ranks; empty: nothing. Cost: a few small collectives.
  std::string verdict() { return verifier_.verdict(); }
  /// Collective: ends the strategy; afterwards there are no more steps. What it all came to is then known.
  TrainingTotals finish();
  /// Collective: so far. Servers may still be answering, so bytes are not held against any forecast.
  dataparallel::Observations observed();

  const model::Model& model() const { return *model_; }
  std::string_view transport_name() const;
  std::size_t parameter_bytes() const { return model_->element_count() * sizeof(float); }
  /// Found by trial; empty: it was given, or means nothing here.
  std::optional<std::size_t> chosen_bucket() const { return chosen_bucket_; }
  bool has_progress_thread() const { return progress_thread_; }
  /// Threads of this rank that run at once, computing ones apart.
  int helper_threads() const;
  dataparallel::Probe& probe() { return probe_; }

 private:
  void quiesce();
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
  dataparallel::RankFabric fabric_;
  std::unique_ptr<dataparallel::Injecting> injecting_;  ///< null: nothing is injected
  dataparallel::Verifier verifier_;
  dataparallel::Probe probe_;
  dataparallel::Mesh mesh_;
  dataparallel::FabricPeers peers_;
  std::unique_ptr<model::Model> model_;
  std::unique_ptr<dataparallel::PartSums> norms_;  ///< over the tensor ranks; null: the optimizer takes none
  std::unique_ptr<dataparallel::Optimizer> optimizer_;
  model::Buffers buffers_;
  std::span<float> evaluation_weights_, word_;
  dataparallel::Worker worker_;
  std::unique_ptr<dataparallel::Strategy> strategy_;
  model::Sampler sampler_;
  std::vector<std::uint64_t> indices_;
  std::vector<float> inputs_;
  std::vector<std::int32_t> labels_;
  std::optional<std::size_t> loaded_;
  std::uint64_t steps_ = 0;
  double seconds_ = 0;  ///< within them
  bool finished_ = false;
  dataparallel::StepRecord record_;
};

}  // namespace gradmeter::bench
