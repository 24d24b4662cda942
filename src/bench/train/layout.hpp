// The role of each rank in one training configuration: which part of the model, which worker, or a server.
#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include "bench/engine/node_map.hpp"
#include "core/injection.hpp"
#include "core/result.hpp"
#include "dataparallel/mesh.hpp"
#include "dataparallel/optimizers/number_format.hpp"
#include "dataparallel/ranks/fabric.hpp"
#include "dataparallel/strategy.hpp"
#include "model/registry.hpp"

namespace gradmeter::bench {

/// Overlap of communication with computation. bucketed: a progress thread moves messages during computation. automatic:
/// bucketed where each rank has a core for that thread besides its compute threads.
enum class Overlap { none, bucketed, automatic };
std::string_view name(Overlap);

/// Where a configuration's ranks compute: compute threads of a rank, ranks and cores of the fullest node.
struct Occupancy {
  int threads = 1, ranks_per_node = 1, cores_per_node = 1, ranks = 1;
  bool has_one_node() const { return ranks <= ranks_per_node; }
  bool has_spare_cores() const { return ranks_per_node * (threads + 1) <= cores_per_node; }
};
/// Resolves automatic; the others stay. Strategies with messages have that thread in any case. Between nodes they
/// overlap whatever cores there are, since a link does the work; servers of one node do it themselves, on the same
/// cores.
Overlap resolve(Overlap, dataparallel::CommunicationPattern, const Occupancy&);

/// A bucket size: the fastest of some, measured when a training is made.
inline constexpr std::size_t automatic_bucket = SIZE_MAX;

struct TrainingConfig {
  std::string model = "mlp";
  std::size_t batch_per_rank = 64;  ///< mini-batch of one worker: of all ranks of one replica together
  std::size_t accumulate = 1;       ///< micro-batches of a step
  kernels::Precision precision = kernels::Precision::fp32;  ///< of the model's operations
  int threads = 1;
  std::string device = "cpu";  ///< that operations and updates run on
  dataparallel::MeshShape mesh = {};
  dataparallel::StrategyPtr strategy = {};
  allreduce::AlgorithmPtr algorithm = {};  ///< null where no all-reduce is used
  compression::CodecChoicePtr codec = {};  ///< null: none
  dataparallel::TransportKind transport = dataparallel::TransportKind::automatic;
  Overlap overlap = Overlap::bucketed;
  std::size_t bucket_bytes = std::size_t{25} << 20;  ///< or automatic_bucket
  std::string optimizer = "sgd";
  std::string update = "fp32";  ///< format of the weights; a name in `optimizer` may give it too
  dataparallel::LossScaling loss_scale = {};
  bool own_gradients = false;  ///< in the format of the operations' results, where they are exchanged too
  std::uint64_t seed = 1;
  float step_size = 0.05f;
  core::Injection injection = {};  ///< faults to test whether they are found

  /// With the format of the weights in it. Errors: UsageError where both give one, and they differ.
  std::string optimizer_name() const { return dataparallel::with_update_format(optimizer, update); }
  dataparallel::StrategyOptions strategy_options() const;
  /// What gradients travel as: in a format of their own, or as given.
  compression::CodecChoicePtr gradient_codec(compression::CodecChoicePtr given) const;
};

/// One value of a factor: what it sets.
using Setting = std::function<void(TrainingConfig&)>;
struct TrainingFactor {
  std::string flag;  ///< "--accumulate"
  std::vector<Setting> values;
};

/// Samples of an evaluation at once, unless a batch is longer: a split model allocates its memory once.
inline constexpr std::size_t validation_piece = 250;

/// Features and classes of the data, and the labels of a sample.
struct DataFacts {
  std::size_t features = 0, classes = 0, labels = 1;
};

/// A device of flags and rows ("cpu") as tables of operations have it ("host"): a name that stays.
std::string_view operations_of(std::string_view device);
/// Does software round to the precision in some operation, so that times say nothing of it?
bool is_rounded_by_software(const TrainingConfig&, DataFacts);

struct Layout {
  dataparallel::MeshShape mesh = {};  ///< complete
  dataparallel::MeshPlace place = {};
  int workers = 1;  ///< of a data axis

  bool trains() const { return place.data < workers; }
  std::size_t batch_global(const TrainingConfig& c) const {
    return c.batch_per_rank * static_cast<std::size_t>(workers);
  }
};
/// Errors: UsageError when so many ranks do not make the mesh, or leave no worker.
Layout layout_of(const TrainingConfig&, int ranks, int rank);

/// peers: null for a model that knows its sizes but cannot be run.
model::ModelRequest model_request(const TrainingConfig&, const Layout&, DataFacts, model::Peers* peers);
/// A model that knows its sizes but cannot be run: one rank's part.
std::unique_ptr<model::Model> sized_model(const TrainingConfig&, const Layout&, DataFacts);

/// How the ranks of this rank's data axis lie on nodes. node_of: of each rank.
allreduce::Shape axis_shape(const Layout&, std::span<const int> node_of);

/// Why these ranks cannot train with it; empty: they can. node_of: of each rank.
std::string refusal(const TrainingConfig&, DataFacts, const NodeMap&);
/// Bytes that one rank will have resident, without the data set. The configuration must not be refused.
std::size_t resident_bytes(const TrainingConfig&, DataFacts, int ranks);
/// The part of it that is in /dev/shm over all ranks of a node, where these are processes.
std::size_t shm_bytes(const TrainingConfig&, DataFacts, const NodeMap&);
/// The part of it that the training takes: weights, gradients, activations, states of optimizers, what strategy and
/// codec keep, and what exchanges need. The rest is a process with its libraries.
std::size_t training_bytes(const TrainingConfig&, DataFacts, int ranks);

/// Which factors apply to a strategy.
struct Applies {
  bool algorithm = false, codec = false, transport = false, overlap = false, bucket = false;
  Applies& operator|=(const Applies&);
};
Applies factors_of(const dataparallel::StrategyChoice&);
/// None where nothing is exchanged; no transport for a vendor's algorithm, unless a split model sends by it.
Applies factors_of(const TrainingConfig&, const Layout&);
/// What a row says of a training by itself; ranks, their batch, mesh and transport are the caller's.
void fill_training(const TrainingConfig&, const Applies&, core::Factors&);
/// Does the strategy exchange anything among so many workers?
bool exchanges(const TrainingConfig&, const Layout&);
/// Is a thread needed that handles messages from servers, or hides exchanges?
bool needs_progress_thread(const TrainingConfig&, const Layout&);
/// The same on all ranks, whatever their parts.
dataparallel::RankFabricOptions fabric_options(const TrainingConfig&, const Layout&, DataFacts);

}  // namespace gradmeter::bench
