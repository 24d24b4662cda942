// SPDX-License-Identifier: Apache-2.0
// Arranges ranks if several of them together hold one replica of a model: in a box of data × pipeline × tensor ranks,
// with a group for each axis. Strategies communicate along the data axis only.
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

/// The coordinates of a rank. Ranks are numbered along the tensor axis first, so that tensor ranks, which communicate
/// most, are neighbours; then along the stages, then along the data axis.
struct MeshPlace {
  int data = 0, stage = 0, tensor = 0;
  bool operator==(const MeshPlace&) const = default;
};

struct MeshShape {
  int data = 0;  ///< number of replicas of the model; by convention 0 means as many as the ranks allow
  int tensor = 1, pipeline = 1;
  model::PipelineOrder order = model::PipelineOrder::one_f_one_b;

  int replica_ranks() const { return tensor * pipeline; }  ///< number of ranks that hold one replica together
  int ranks() const { return data * replica_ranks(); }     ///< number of ranks of a complete shape
  /// The shape with `data` filled in. Errors: UsageError when the number of ranks does not fit the mesh.
  MeshShape complete(int world_ranks) const;
  MeshPlace place(int rank) const;
  int rank(MeshPlace) const;
  /// The part of a model at this place of the mesh. batch: samples of a replica in a step.
  model::Part part(MeshPlace, std::size_t micro_batches, std::size_t batch, model::Peers* = nullptr) const;
  /// "data=4,tensor=2,pipeline=2,schedule=gpipe": all axes with more than one rank, and the schedule unless it is 1f1b;
  /// "data" if the text would be empty.
  std::string text() const;
  bool operator==(const MeshShape&) const = default;
};
/// Reads "data", "data=4,tensor=2", "tensor=2,pipeline=2,schedule=gpipe": the items in any order, each at most once.
/// The schedule is that of the pipeline: 1f1b (the default) or gpipe. Errors: UsageError.
MeshShape parse_mesh(std::string_view text);

/// One rank's groups along the axes of the mesh.
class Mesh {
 public:
  /// Completes the shape and splits the ranks into groups: along the data axis unless that axis has all ranks, and
  /// along every other axis with more than one rank. Collective over all ranks. Errors: those of `complete`.
  Mesh(Fabric&, const MeshShape&);
  const MeshShape& shape() const { return shape_; }
  const MeshPlace& place() const { return place_; }
  Group data() const { return data_; }
  /// `tensor` and `pipeline` may be called only if that axis has more than one rank.
  Group tensor() const { return tensor_.value(); }
  Group pipeline() const { return pipeline_.value(); }
  /// Sends values from the rank that has the loss (tensor rank 0 of the last stage) to all other ranks of its replica;
  /// all of these ranks must call it. `values` must be memory of the fabric. Cost: a broadcast over the tensor ranks of
  /// the last stage, then one over the stages; each other rank receives the values once.
  void send_to_replica(Fabric&, const Buffer& values) const;
  /// The number of groups that the constructor will make, besides that of all ranks. A fabric reserves memory for them.
  static int groups(const MeshShape&);

 private:
  MeshShape shape_;
  MeshPlace place_;
  Group data_ = everybody;
  std::optional<Group> tensor_, pipeline_;
};

/// Lets a model reach its peers (the ranks that hold its other parts) over a fabric. Sums over peers are all-reduces
/// without a tensor layout, so no codec is applied to activations. Messages go through the fabric too, so a probe
/// counts them. Fabric and mesh must outlive this object.
class FabricPeers final : public model::Peers {
 public:
  FabricPeers(Fabric& fabric, const Mesh& mesh) : fabric_(fabric), mesh_(mesh) {}
  std::size_t tensor_rank() const override { return static_cast<std::size_t>(mesh_.place().tensor); }
  std::size_t tensor_ranks() const override { return static_cast<std::size_t>(mesh_.shape().tensor); }
  std::size_t stage() const override { return static_cast<std::size_t>(mesh_.place().stage); }
  std::size_t stages() const override { return static_cast<std::size_t>(mesh_.shape().pipeline); }
  void sum(Buffer) override;
  model::TransferPtr send(model::OtherStage, ConstBuffer) override;
  model::TransferPtr receive(model::OtherStage, Buffer, runtime::EventPtr ready) override;
  Buffer memory(std::size_t floats) override { return fabric_.memory(floats); }

 private:
  int rank_of(model::OtherStage) const;
  Fabric& fabric_;
  const Mesh& mesh_;
};

/// The bytes that the tensor ranks of one stage send together in one pass. Algorithm and machine are taken from the
/// input; `tensor_ranks` replaces its number of ranks, all of which are taken to be on one node.
Forecast forecast_stage(const ForecastInput&, int tensor_ranks, const model::PeerTraffic&);

/// The bytes that the tensor ranks of stage number `stage` send together in one step. `model` is this stage's part of
/// the model. `ReplicaWork::replica_floats` are counted with the last stage.
Forecast forecast_replica(const ForecastInput&, const MeshShape&, int stage, const model::Model&, std::size_t batch,
                          const ReplicaWork&);

}  // namespace gradmeter::dataparallel
