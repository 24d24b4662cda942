// SPDX-License-Identifier: Apache-2.0
// Puts together all that one rank trains with. The fabric may have real ranks or virtual time, so measurements and
// tests share this code.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "dataparallel/fabric/decorators/probe.hpp"
#include "dataparallel/mesh.hpp"
#include "dataparallel/optimizers/optimizer.hpp"
#include "dataparallel/optimizers/weight_format.hpp"
#include "dataparallel/strategy.hpp"

namespace gradmeter::dataparallel {

struct AssemblyOptions {
  MeshShape mesh = {};
  /// Makes this rank's part of the model. The peers, by which it reaches the ranks with the other parts, live as long
  /// as the assembly.
  std::function<std::unique_ptr<model::Model>(const Mesh&, model::Peers&)> model;
  /// Seed of the initial weights; empty: none are drawn, for simulations in which nothing is computed.
  std::optional<std::uint64_t> seed = 1;
  /// The optimizer of all weights. If the strategy makes optimizers of its own, the worker gets stateless sgd.
  std::string optimizer = "sgd";
  StrategyPtr strategy;
  StrategyOptions strategy_options = {};  ///< the worker takes its loss scale and its format of gradients from these
  /// True if an optimizer's norms are those of whole tensors even if a tensor is split over ranks. If false, each rank
  /// takes the norm of its own part.
  bool sums_norms_over_ranks = true;
};

/// True if an optimizer of this name uses norms of whole tensors, and this mesh splits tensors over ranks.
bool needs_norm_sums(const MeshShape&, const std::string& optimizer);

/// What one rank trains with. All calls go through the probe. The caller must call `strategy().begin`.
/// The assembly takes memory from the fabric in this order: for the model's exchanges with its peers, for the sums of
/// norms, for parameters and gradients.
class Assembly {
 public:
  /// Collective over the fabric, which must outlive the assembly. Errors: UsageError for a number of ranks that does
  /// not fit the mesh, and for names and parameters that the model or the optimizer does not know.
  Assembly(Fabric&, const AssemblyOptions&);

  Probe& probe() { return probe_; }
  const Mesh& mesh() const { return mesh_; }
  model::Model& model() { return *model_; }
  const model::Model& model() const { return *model_; }
  const model::Buffers& buffers() const { return buffers_; }
  Worker& worker() { return worker_; }
  Strategy& strategy() { return *strategy_; }
  const Strategy& strategy() const { return *strategy_; }
  /// Null if the loss is not scaled.
  LossScaler* scaler() { return scaler_.get(); }

 private:
  Probe probe_;
  Mesh mesh_;
  FabricPeers peers_;
  std::unique_ptr<model::Model> model_;
  std::unique_ptr<SumsOverRanks> part_sums_;  ///< sums norms over the tensor ranks; null: no norms need to be summed
  std::unique_ptr<LossScaler> scaler_;
  std::unique_ptr<UpdateFormat> gradient_format_;
  std::unique_ptr<Optimizer> optimizer_;
  model::Buffers buffers_;
  Worker worker_;
  std::unique_ptr<Strategy> strategy_;
};

}  // namespace gradmeter::dataparallel
