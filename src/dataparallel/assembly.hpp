// What one rank trains with, put together over any fabric: on real ranks and in virtual time, for measurements and
// tests.
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "dataparallel/decorators/probe.hpp"
#include "dataparallel/mesh.hpp"
#include "dataparallel/optimizer.hpp"
#include "dataparallel/optimizers/number_format.hpp"
#include "dataparallel/strategy.hpp"

namespace gradmeter::dataparallel {

struct AssemblyOptions {
  MeshShape mesh = {};
  /// Makes this rank's part of the model. The peers live as long as the assembly.
  std::function<std::unique_ptr<model::Model>(const Mesh&, model::Peers&)> model;
  std::uint64_t seed = 1;         ///< of the initial weights
  std::string optimizer = "sgd";  ///< of all weights; a strategy that makes its own leaves the worker without state
  StrategyPtr strategy;
  StrategyOptions strategy_options = {};  ///< whose loss scale and format of gradients are the worker's
  /// Norms of tensors that are cut are those of the whole tensors. false: each rank takes its part for the tensor.
  bool combines_norms = true;
};

/// Do optimizers of this name take norms that ranks of this mesh must combine?
bool shares_norms(const MeshShape&, const std::string& optimizer);

/// Takes memory from the fabric: what the model's peers and the norms need, then parameters and gradients. Everything
/// goes through the probe. `strategy().begin` is the caller's.
class Assembly {
 public:
  /// Collective over the fabric, which must outlive it. Errors: UsageError for ranks that do not fit the mesh, and for
  /// names and parameters that model or optimizer do not take.
  Assembly(Fabric&, const AssemblyOptions&);

  Probe& probe() { return probe_; }
  const Mesh& mesh() const { return mesh_; }
  model::Model& model() { return *model_; }
  const model::Model& model() const { return *model_; }
  const model::Buffers& buffers() const { return buffers_; }
  Worker& worker() { return worker_; }
  Strategy& strategy() { return *strategy_; }
  const Strategy& strategy() const { return *strategy_; }
  /// Null where the loss is not scaled.
  LossScaler* scaler() { return scaler_.get(); }

 private:
  Probe probe_;
  Mesh mesh_;
  FabricPeers peers_;
  std::unique_ptr<model::Model> model_;
  std::unique_ptr<PartSums> norms_;  ///< over the tensor ranks; null: the optimizer takes none
  std::unique_ptr<LossScaler> scaler_;
  std::unique_ptr<UpdateFormat> gradient_format_;
  std::unique_ptr<Optimizer> optimizer_;
  model::Buffers buffers_;
  Worker worker_;
  std::unique_ptr<Strategy> strategy_;
};

}  // namespace gradmeter::dataparallel
