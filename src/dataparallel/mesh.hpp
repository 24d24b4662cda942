// SPDX-License-Identifier: Apache-2.0
// How ranks are arranged when several of them hold one replica of a model: a box of data × pipeline × tensor ranks, and
// the groups along its axes. Strategies communicate along the data axis only.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "dataparallel/fabric/fabric.hpp"
#include "dataparallel/forecast.hpp"
#include "dataparallel/optimizers/optimizer.hpp"
#include "model/network/part.hpp"

namespace gradmeter::dataparallel {

struct ReplicaWork;

/// One rank's coordinates. Tensor ranks are neighbours, since they communicate most; then come stages, then data.
struct MeshPlace {
  int data = 0, stage = 0, tensor = 0;
  bool operator==(const MeshPlace&) const = default;
};

struct MeshShape {
  int data = 0;  ///< replicas of the model; 0: as many as the ranks allow
  int tensor = 1, pipeline = 1;
  model::PipelineOrder order = model::PipelineOrder::one_f_one_b;

  int replica_ranks() const { return tensor * pipeline; }  ///< number of ranks that hold one replica together
  int ranks() const { return data * replica_ranks(); }     ///< number of ranks of a complete shape
  /// The shape with `data` filled in. Errors: UsageError when the number of ranks does not fit the mesh.
  MeshShape complete(int world) const;
  MeshPlace place(int rank) const;
  int rank(MeshPlace) const;
  /// The part of a model at that place; batch: samples of a replica in a step.
  model::Part part(MeshPlace, std::size_t micro_batches, std::size_t batch, model::Peers* = nullptr) const;
  /// "data=4,tensor=2,pipeline=2,schedule=gpipe": every axis above 1, and every choice that is not the usual one. It is
  /// "data" where there is none of these, or only a data axis whose size is not known yet.
  std::string text() const;
  bool operator==(const MeshShape&) const = default;
};
/// "data", "data=4,tensor=2", "tensor=2,pipeline=2,schedule=gpipe": in any order, each once. The schedule is the
/// pipeline's: 1f1b (usual) or gpipe. Errors: UsageError.
MeshShape parse_mesh(std::string_view text);

/// One rank's groups along the axes of a complete shape. Collective over all ranks.
class Mesh {
 public:
  /// Splits the ranks once for each axis, unless the data axis has all ranks. Errors: UsageError of `complete`.
  Mesh(Fabric&, const MeshShape&);
  const MeshShape& shape() const { return shape_; }
  const MeshPlace& place() const { return place_; }
  Group data() const { return data_; }
  /// `tensor` and `pipeline` may be called only where that axis has more than one rank.
  Group tensor() const { return tensor_.value(); }
  Group pipeline() const { return pipeline_.value(); }
  /// Sends values from the rank that has the loss (tensor rank 0 of the last stage) to all ranks of its replica, which
  /// call it together. It uses messages, so that no algorithm has to be chosen for so few bytes. `values` is the
  /// fabric's memory.
  /// Cost: one message to each of the others.
  void send_to_replica(Fabric&, const Buffer& values) const;
  /// The number of groups besides that of all ranks, to reserve a fabric's memory for them.
  static int groups(const MeshShape&);

 private:
  MeshShape shape_;
  MeshPlace place_;
  Group data_ = everybody;
  std::optional<Group> tensor_, pipeline_;
};

/// A model's peers over a fabric. Their sums are all-reduces without a tensor layout, so no codec is applied to
/// activations. Messages go through the fabric, so a probe around it counts them. Fabric and mesh must outlive it.
class FabricPeers final : public model::Peers {
 public:
  FabricPeers(Fabric& fabric, const Mesh& mesh) : fabric_(fabric), mesh_(mesh) {}
  std::size_t tensor_rank() const override { return static_cast<std::size_t>(mesh_.place().tensor); }
  std::size_t tensor_ranks() const override { return static_cast<std::size_t>(mesh_.shape().tensor); }
  std::size_t stage() const override { return static_cast<std::size_t>(mesh_.place().stage); }
  std::size_t stages() const override { return static_cast<std::size_t>(mesh_.shape().pipeline); }
  void sum(Buffer) override;
  model::TransferPtr send(model::Neighbour, ConstBuffer) override;
  model::TransferPtr receive(model::Neighbour, Buffer, runtime::EventPtr ready) override;
  Buffer memory(std::size_t floats) override { return fabric_.memory(floats); }

 private:
  int rank_of(model::Neighbour) const;
  Fabric& fabric_;
  const Mesh& mesh_;
};

/// The bytes that the tensor ranks of one stage send together in one pass. Algorithm and link are taken from the input,
/// but its ranks are replaced by the tensor ranks.
Forecast forecast_stage(const ForecastInput&, int tensor_ranks, const model::PeerTraffic&);

/// The bytes that the tensor ranks of one stage send together in one step. `replica_floats` count for the last stage.
/// The model is that stage's part.
Forecast forecast_replica(const ForecastInput&, const MeshShape&, int stage, const model::Model&, std::size_t batch,
                          const ReplicaWork&);

}  // namespace gradmeter::dataparallel
