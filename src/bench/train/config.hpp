// SPDX-License-Identifier: Apache-2.0
// The role of each rank in one training configuration: which part of the model, which worker, or a server.
#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include "bench/engine/node_map.hpp"
#include "core/injection.hpp"
#include "core/result.hpp"
#include "dataparallel/fabric/ranks/rank_fabric.hpp"
#include "dataparallel/mesh.hpp"
#include "dataparallel/optimizers/number_format.hpp"
#include "dataparallel/strategy.hpp"
#include "model/registry.hpp"

namespace gradmeter::bench {

/// Overlap of communication with computation. bucketed: a progress thread moves messages during computation. automatic:
/// bucketed where each rank has a core for that thread besides those of its compute threads.
enum class Overlap { none, bucketed, automatic };
std::string_view name(Overlap);

/// The cores that a configuration's ranks compute on: compute threads of a rank, ranks and cores of the fullest node.
struct Occupancy {
  int threads = 1, ranks_per_node = 1, cores_per_node = 1, ranks = 1;
  bool has_one_node() const { return ranks <= ranks_per_node; }
  bool has_spare_cores() const { return ranks_per_node * (threads + 1) <= cores_per_node; }
};
/// Resolves automatic; other values stay. Strategies with messages have a progress thread in any case. Between nodes
/// they overlap with any number of cores, since the link moves the bytes. Within one node, servers move the bytes on
/// the same cores.
Overlap resolve(Overlap, dataparallel::CommunicationPattern, const Occupancy&);

/// The bucket size that is chosen when a training is made, as the fastest of some that are measured then.
inline constexpr std::size_t automatic_bucket = SIZE_MAX;

struct TrainingConfig {
  std::string model = "mlp";
  std::size_t batch_per_rank = 64;  ///< mini-batch of one worker, which is that of all ranks of one replica together
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
  std::string optimizer = "sgd";
  std::string update = "fp32";  ///< format of the weights; a name in `optimizer` may give it too
  dataparallel::LossScaling loss_scale = {};
  bool own_gradients = false;  ///< gradients are in the format of the operations' results, where they are exchanged too
  std::uint64_t seed = 1;
  float step_size = 0.05f;
  core::Injection injection = {};  ///< faults to test whether they are found

  /// The optimizer's name with the format of the weights in it. Errors: UsageError where both give a format, and these
  /// differ.
  std::string optimizer_name() const { return dataparallel::with_update_format(optimizer, update); }
  dataparallel::StrategyOptions strategy_options() const;
  /// The codec that gradients travel by: that of their own format, or the given one.
  compression::CodecChoicePtr gradient_codec(compression::CodecChoicePtr given) const;
};

/// One value of a factor, as a function that sets it.
using Setting = std::function<void(TrainingConfig&)>;
struct TrainingFactor {
  std::string flag;  ///< "--accumulate"
  std::vector<Setting> values;
};

/// The number of samples that an evaluation takes at once, unless a batch is longer: a split model allocates its memory
/// once.
inline constexpr std::size_t validation_piece = 250;

/// The facts of the data that models must fit.
struct DataFacts {
  std::size_t features = std::size_t{28} * 28, classes = 10;  ///< by default those of the built-in digits
  std::size_t labels = 1;                                     ///< labels of a sample
};

/// The name that tables of operations have for a device: "host" for the "cpu" of flags and rows. It refers to a
/// literal.
std::string_view operations_of(std::string_view device);
/// True where software rounds to the precision in some operation, so that times say nothing of the precision.
bool is_rounded_by_software(const TrainingConfig&, const DataFacts&);

struct Layout {
  dataparallel::MeshShape mesh = {};  ///< complete
  dataparallel::MeshPlace place = {};
  int workers = 1;  ///< workers of a data axis

  bool trains() const { return place.data < workers; }
  std::size_t batch_global(const TrainingConfig& c) const {
    return c.batch_per_rank * static_cast<std::size_t>(workers);
  }
};
/// The layout of a rank. Errors: UsageError when so many ranks do not make the mesh, or leave no worker.
Layout layout_of(const TrainingConfig&, int ranks, int rank);

/// peers: null for a model that knows its sizes but cannot be run.
model::ModelRequest model_request(const TrainingConfig&, const Layout&, const DataFacts&, model::Peers* peers);
/// A model that knows its sizes but cannot be run: one rank's part.
std::unique_ptr<model::Model> sized_model(const TrainingConfig&, const Layout&, const DataFacts&);

/// The places of the ranks of this rank's data axis on nodes. node_of: the node of each rank.
allreduce::Shape axis_shape(const Layout&, std::span<const int> node_of);

/// The reason why these ranks cannot train with this configuration; empty: they can. node_of: the node of each rank.
std::string refusal(const TrainingConfig&, const DataFacts&, const NodeMap&);
/// Bytes that one rank will have resident, without the data set. The configuration must not be refused.
std::size_t resident_bytes(const TrainingConfig&, const DataFacts&, int ranks);
/// The part of the resident bytes that is in /dev/shm over all ranks of a node, where these are processes.
std::size_t shm_bytes(const TrainingConfig&, const DataFacts&, const NodeMap&);
/// The part of the resident bytes that the training takes: weights, gradients, activations, states of optimizers, what
/// strategy and codec keep, and what exchanges need. The rest belongs to a process with its libraries.
std::size_t training_bytes(const TrainingConfig&, const DataFacts&, int ranks);

/// The exchange factors that apply to a training.
struct Applies {
  bool algorithm = false, codec = false, transport = false, overlap = false, bucket = false;
  Applies& operator|=(const Applies&);
};
Applies factors_of(const dataparallel::StrategyChoice&);
/// No factor applies where nothing is exchanged. The transport does not apply to a vendor's algorithm, unless a split
/// model uses it for messages.
Applies factors_of(const TrainingConfig&, const Layout&);
/// True where the strategy exchanges anything among so many workers.
bool exchanges(const TrainingConfig&, const Layout&);
/// True where a thread is needed that handles messages from servers, or hides exchanges.
bool needs_progress_thread(const TrainingConfig&, const Layout&);
/// The options of the fabric, which are the same on all ranks, whatever their parts.
dataparallel::RankFabricOptions fabric_options(const TrainingConfig&, const Layout&, const DataFacts&);

}  // namespace gradmeter::bench
