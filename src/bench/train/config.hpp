// SPDX-License-Identifier: Apache-2.0
// A training's configuration, and what follows from it for each rank: its part of the model, its worker or server.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bench/engine/node_map.hpp"
#include "bench/engine/tuning.hpp"
#include "core/injection.hpp"
#include "core/result.hpp"
#include "dataparallel/fabric/ranks/rank_fabric.hpp"
#include "dataparallel/mesh.hpp"
#include "dataparallel/optimizers/weight_format.hpp"
#include "dataparallel/strategy.hpp"
#include "model/registry.hpp"

namespace gradmeter::bench {

/// Overlap of communication with computation. bucketed: a progress thread moves messages during computation. automatic:
/// `resolve` chooses one of the others, mostly by whether each rank has a spare core for that thread.
enum class Overlap { none, bucketed, automatic };
std::string_view name(Overlap);

/// The use of cores by a configuration: compute threads of a rank; ranks and cores of the fullest node; all ranks.
struct Occupancy {
  int threads = 1, ranks_per_node = 1, cores_per_node = 1, ranks = 1;
  bool has_one_node() const { return ranks <= ranks_per_node; }
  bool has_spare_cores() const { return ranks_per_node * (threads + 1) <= cores_per_node; }
};
/// Replaces automatic by bucketed if there are spare cores, else by none; other values stay. For strategies with
/// messages, automatic becomes bucketed even without spare cores: they have a progress thread in any case, and that
/// thread needs little of a core, since the link moves the bytes. The exception is a strategy with servers on a single
/// node, where the servers move the bytes on the same cores.
Overlap resolve(Overlap, dataparallel::CommunicationPattern, const Occupancy&);

/// The value of TrainingConfig::bucket_bytes that stands for the fastest of several cuts into buckets; they are
/// measured when a training is made.
inline constexpr std::size_t automatic_bucket = SIZE_MAX;

struct TrainingConfig {
  std::string model = "mlp";
  std::size_t batch_per_rank = 64;  ///< samples of one worker in a step; a worker is all ranks of one replica together
  std::size_t accumulate = 1;       ///< number of micro-batches of a step
  kernels::Precision precision = kernels::Precision::fp32;  ///< precision of the model's operations
  int threads = 1;
  std::string device = "cpu";  ///< device that operations and updates run on
  dataparallel::MeshShape mesh = {};
  dataparallel::StrategyPtr strategy = {};
  allreduce::AlgorithmPtr algorithm = {};  ///< null where no all-reduce is used
  compression::CodecChoicePtr codec = {};  ///< null: no codec
  dataparallel::TransportKind transport = dataparallel::TransportKind::automatic;
  Overlap overlap = Overlap::bucketed;
  std::size_t bucket_bytes = std::size_t{25} << 20;  ///< [bytes], or automatic_bucket
  std::vector<std::size_t> bucket_ends = {};  ///< ends of the buckets [tensors] (make_buckets); empty: by bucket_bytes
  std::string optimizer = "sgd";
  std::string weight_format = "fp32";  ///< format of the weights; may be given in the optimizer's name instead
  dataparallel::LossScaling loss_scale = {};
  /// True: gradients have the number format of the operations' results, also in exchanges; false: fp32.
  bool narrow_gradients = false;
  std::uint64_t seed = 1;
  float step_size = 0.05f;
  core::Injection injection = {};  ///< faults that are injected to test whether checks find them

  /// The optimizer's name, with the format of the weights in it. Errors: UsageError where `optimizer` and
  /// `weight_format` give different formats.
  std::string optimizer_name() const { return dataparallel::with_update_format(optimizer, weight_format); }
  dataparallel::StrategyOptions strategy_options() const;
  /// The codec with which gradients are exchanged: with `narrow_gradients` a cast to their own format, else `given`.
  compression::CodecChoicePtr gradient_codec(compression::CodecChoicePtr given) const;
};

/// The factors that concern only exchanges; each is true if it applies to a training.
struct ExchangeFactors {
  bool algorithm = false, codec = false, transport = false, overlap = false, bucket = false;
  ExchangeFactors& operator|=(const ExchangeFactors&);
};

/// One value of a factor, as a function that sets it.
using Setting = std::function<void(TrainingConfig&)>;
struct TrainingFactor {
  std::string flag;  ///< "--accumulate"
  std::vector<Setting> values;
  /// The factor applies wherever this exchange factor applies; null: to every training.
  bool ExchangeFactors::*exchange_factor = nullptr;
};

/// The number of samples that an evaluation passes through the model at once, unless a batch is longer. A split model
/// allocates memory for this number once.
inline constexpr std::size_t validation_piece = 250;

/// The facts of the data that models must fit.
struct DataFacts {
  std::size_t features = std::size_t{28} * 28, classes = 10;  ///< by default those of the built-in digits
  std::size_t labels = 1;                                     ///< labels of a sample
};

/// The name of a device in op_backends() (kernels/op.hpp): "host" where flags and rows say "cpu", else "cuda". The view
/// refers to a literal.
std::string_view operation_device(std::string_view device);
/// True where software rounds to the precision in some operation, so that times say nothing of the precision.
bool is_rounded_by_software(const TrainingConfig&, const DataFacts&);

/// The place of a rank in the mesh, and the number of workers.
struct Layout {
  dataparallel::MeshShape mesh = {};  ///< with all degrees filled in (MeshShape::complete)
  dataparallel::MeshPlace place = {};
  int workers = 1;  ///< workers of a data axis

  bool trains() const { return place.data < workers; }
  std::size_t batch_global(const TrainingConfig& c) const {
    return c.batch_per_rank * static_cast<std::size_t>(workers);
  }
};
/// The layout of a rank. Errors: UsageError when the number of ranks does not fit the mesh, or leaves no worker.
Layout layout_of(const TrainingConfig&, int ranks, int rank);

/// peers: null for a model that only tells its sizes and cannot be run.
model::ModelRequest model_request(const TrainingConfig&, const Layout&, const DataFacts&, model::Peers* peers);
/// Makes one rank's part of the model, which only tells its sizes and cannot be run.
std::unique_ptr<model::Model> sized_model(const TrainingConfig&, const Layout&, const DataFacts&);

/// The shape of this rank's data axis: how its ranks lie on nodes. node_of: the node of each rank.
allreduce::RankShape axis_shape(const Layout&, std::span<const int> node_of);

/// The reason why these ranks cannot train with this configuration; empty: they can. node_of: the node of each rank.
std::string refusal(const TrainingConfig&, const DataFacts&, const NodeMap&);

ExchangeFactors exchange_factors(const dataparallel::StrategyChoice&);
/// The factors that apply to this training: none where nothing is exchanged. The transport does not apply to a vendor's
/// algorithm, unless a split model uses it for messages.
ExchangeFactors exchange_factors(const TrainingConfig&, const Layout&);
/// True where the strategy exchanges anything among the layout's workers.
bool exchanges(const TrainingConfig&, const Layout&);
/// True where each bucket of the gradients is exchanged in a call of its own.
bool exchanges_buckets(const TrainingConfig&, const Layout&);
/// The table by which the training's all-reduces choose an algorithm on the ranks of this map. Empty if the algorithm
/// is not `auto`, or if a split model has several groups of ranks that exchange at once, which --tune-auto does not
/// measure.
std::optional<allreduce::TableUse> table_use(const TrainingConfig&, const Layout&, const NodeMap&);
/// The result of `table_use` with the ranks of the world that use the table and the sizes of their calls, as
/// --tune-auto needs them.
std::optional<WantedTable> wanted_table(const TrainingConfig&, const DataFacts&, const NodeMap&,
                                        std::vector<int> ranks);
/// True where a thread is needed to handle messages at any time (uses_ports), or to overlap exchanges with computation.
bool needs_progress_thread(const TrainingConfig&, const Layout&);
/// The options of the fabric, the same on all ranks, whatever part of the model a rank has.
dataparallel::RankFabricOptions fabric_options(const TrainingConfig&, const Layout&, const DataFacts&);

}  // namespace gradmeter::bench
