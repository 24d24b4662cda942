// What a strategy works with on one rank: the fabric, its axis of the mesh, a model, its buffers and its optimizer.
#pragma once
#include <functional>
#include <vector>

#include "dataparallel/fabric.hpp"
#include "dataparallel/loss_scale.hpp"
#include "dataparallel/mesh.hpp"
#include "dataparallel/optimizer.hpp"
#include "model/model.hpp"

namespace gradmeter::dataparallel {

class UpdateFormat;

class Worker {
 public:
  /// axis: the ranks with the same part of the model and other data; strategies communicate only with them.
  /// copy: null where one rank holds a replica of the model; parts: see `parts`; the last two:
  /// null where the loss is not scaled, and where gradients stay in fp32.
  Worker(Fabric& fabric, Group axis, model::Model& model, model::Buffers buffers, Optimizer& optimizer,
         const Mesh* copy = nullptr, PartSums* parts = nullptr, LossScaler* scaler = nullptr,
         const UpdateFormat* gradient_format = nullptr)
      : fabric_(fabric),
        axis_(axis),
        model_(model),
        buffers_(buffers),
        optimizer_(optimizer),
        replica_(copy),
        parts_(parts),
        scaler_(scaler),
        gradient_format_(gradient_format) {}
  Fabric& fabric() { return fabric_; }
  Group axis() const { return axis_; }
  int rank() const { return fabric_.rank(axis_); }
  int ranks() const { return fabric_.size(axis_); }
  model::Model& model() { return model_; }
  Optimizer& optimizer() { return optimizer_; }
  /// For optimizers that a strategy makes itself: over the ranks that hold the rest of this model's tensors. Null where
  /// there are none, or where the run's optimizer does not use it.
  PartSums* parts() const { return parts_; }
  /// Null where the loss is not scaled.
  LossScaler* scaler() const { return scaler_; }
  model::Buffers buffers() const { return buffers_; }
  Buffer parameters() const { return buffers_.parameters; }
  Buffer gradients() const { return buffers_.gradients; }
  Buffer gradients(std::size_t offset, std::size_t count) const { return buffers_.gradients.part(offset, count); }
  /// The fabric's, for all that this rank computes.
  runtime::Queue& queue() { return fabric_; }
  /// Forward and backward: the gradients of the batch's mean loss. A scaled loss' are divided before they are ready,
  /// and then rounded to their own format.
  model::PendingOutcome pass(
      const model::Batch&, const model::Model::Ready& ready = [](std::size_t) {});
  /// Sends values from the rank that has the loss to all ranks of this replica of the model. Fabric's memory.
  void tell_replica(const Buffer& values) {
    if (replica_) replica_->send_to_replica(fabric_, values);
  }
  /// Applies the optimizer to one range of the flat buffers. With a loss scale that adapts, ranges wait until all of
  /// them are here: only then is it known whether the step is skipped. So a strategy must give all in each step.
  void update(std::size_t offset, std::size_t count, UpdateStep);
  void update(UpdateStep step) { update(0, parameters().count(), step); }

 private:
  struct Range {
    std::size_t offset, count;
  };
  void finish_gradient(const Buffer&);
  void apply(Range, UpdateStep);

  Fabric& fabric_;
  Group axis_;
  model::Model& model_;
  model::Buffers buffers_;
  Optimizer& optimizer_;
  const Mesh* replica_;
  PartSums* parts_;
  LossScaler* scaler_;
  const UpdateFormat* gradient_format_;
  std::vector<Range> checked_;  ///< ranges that wait
};

}  // namespace gradmeter::dataparallel
