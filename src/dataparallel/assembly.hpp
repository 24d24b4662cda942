// SPDX-License-Identifier: Apache-2.0
// All that one rank trains with, put together over any fabric: real ranks, or virtual time; for measurements and tests.
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "dataparallel/fabric/decorators/probe.hpp"
#include "dataparallel/mesh.hpp"
#include "dataparallel/optimizers/number_format.hpp"
#include "dataparallel/optimizers/optimizer.hpp"
#include "dataparallel/strategy.hpp"

namespace gradmeter::dataparallel {

struct AssemblyOptions {
  MeshShape mesh = {};
  /// Makes this rank's part of the model. The peers live as long as the assembly.
  std::function<std::unique_ptr<model::Model>(const Mesh&, model::Peers&)> model;
  std::uint64_t seed = 1;  ///< seed of the initial weights
  /// Optimizer of all weights. A strategy may make optimizers of its own; the worker's then keeps no state.
  std::string optimizer = "sgd";
  StrategyPtr strategy;
  StrategyOptions strategy_options = {};  ///< the worker takes its loss scale and its format of gradients from these
  /// true: norms are those of whole tensors, even if ranks share a tensor. false: each rank takes the norm of its part.
  bool combines_norms = true;
};

/// True where optimizers of this name take norms that ranks of this mesh must combine.
bool shares_norms(const MeshShape&, const std::string& optimizer);

/// Takes memory from the fabric: first what the model's peers and the norms need, then parameters and gradients. All
/// calls go through the probe. The caller calls `strategy().begin`.
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
  std::unique_ptr<PartSums> norms_;  ///< sums of norms over the tensor ranks; null: the optimizer takes no norms
  std::unique_ptr<LossScaler> scaler_;
  std::unique_ptr<UpdateFormat> gradient_format_;
  std::unique_ptr<Optimizer> optimizer_;
  model::Buffers buffers_;
  Worker worker_;
  std::unique_ptr<Strategy> strategy_;
};

}  // namespace gradmeter::dataparallel
