// One training configuration made ready on a group of ranks: data, model, fabric, strategy and the probe over them.
#pragma once
#include <memory>
#include <optional>
#include <string>

#include "bench/session.hpp"
#include "dataparallel/probe.hpp"
#include "dataparallel/strategy.hpp"
#include "dataparallel/world/fabric.hpp"
#include "model/dataset.hpp"
#include "model/registry.hpp"

namespace gradmeter::bench {

/// Overlap of communication with backward. bucketed: a progress thread moves buckets while backward goes on.
enum class Overlap { none, bucketed };
std::string_view name(Overlap);

struct TrainingConfig {
  std::string model = "mlp";
  std::size_t batch_per_rank = 64;
  int threads = 1;
  dataparallel::StrategyPtr strategy = {};
  allreduce::AlgorithmPtr algorithm = {};  ///< null where nothing is exchanged
  compression::CodecChoicePtr codec = {};  ///< null: none
  dataparallel::TransportKind transport = dataparallel::TransportKind::automatic;
  Overlap overlap = Overlap::bucketed;
  std::size_t bucket_bytes = std::size_t{25} << 20;
  std::string optimizer = "sgd";
  std::uint64_t seed = 1;
  float step_size = 0.05f;
};

/// What a trial exchange showed. error: of the sum, relative and squared, with a codec.
struct ExchangeCheck {
  std::string fault = {};  ///< empty: right
  std::optional<double> error = {};
};

/// Collective over the communicator, which must outlive it.
class Training {
 public:
  Training(Session&, const runtime::Communicator&, const model::DataSplit&, const TrainingConfig&);

  /// Trains on this rank's part of global batch number `step`. What it did stands in `record()`.
  model::Outcome step(std::size_t step) { return this->step(step, config_.step_size); }
  model::Outcome step(std::size_t step, float step_size);
  const dataparallel::StepRecord& record() const { return *record_; }
  /// Of this rank's part of batch `step` at the weights of now, before any exchange. Not collective; the next step
  /// overwrites it, and goes as if it had not been asked for. Cost: a forward and a backward pass.
  std::span<const float> local_gradient(std::size_t step);
  std::size_t steps_per_epoch() const { return sampler_.steps_per_epoch(); }

  /// Collective: top-1 over the whole validation set, each rank its part.
  double validation_accuracy();
  /// Collective: do all ranks hold the same bits?
  bool weights_equal() const;
  /// Collective: one all-reduce of the gradient buffer, with data that differs on every rank and at every place.
  /// Leaves the gradients zero.
  ExchangeCheck check_exchange();

  const model::Model& model() const { return *model_; }
  std::string_view transport_name() const;
  std::size_t parameter_bytes() const { return model_->element_count() * sizeof(float); }
  bool has_progress_thread() const { return progress_thread_; }
  dataparallel::Probe& probe() { return probe_; }

  /// Why the configuration's exchange cannot be had among ranks so placed, for that model; empty: it can.
  static std::string exchange_refusal(const TrainingConfig&, const model::Model&, allreduce::Shape);
  /// Bytes that one rank will have resident for this configuration, the data set apart.
  static std::size_t resident_bytes(const TrainingConfig&, const model::Model&, int ranks);

 private:
  void load(std::size_t step);
  bool sums_are_exact();
  ExchangeCheck check_coded_exchange();
  static dataparallel::WorldFabricOptions fabric_options(const TrainingConfig&, const model::Model&);

  Session& session_;
  const runtime::Communicator& communicator_;
  model::DataSplit data_;
  TrainingConfig config_;
  std::unique_ptr<model::Model> model_;
  bool progress_thread_;
  dataparallel::WorldFabric fabric_;
  dataparallel::Probe probe_;
  std::unique_ptr<dataparallel::Rule> optimizer_;
  std::unique_ptr<dataparallel::Strategy> strategy_;
  model::Buffers buffers_;
  dataparallel::Worker worker_;
  model::Sampler sampler_;
  std::vector<std::uint64_t> indices_;
  std::vector<float> inputs_;
  std::vector<std::int32_t> labels_;
  std::optional<std::size_t> loaded_;
  const dataparallel::StepRecord* record_ = nullptr;
};

}  // namespace gradmeter::bench
