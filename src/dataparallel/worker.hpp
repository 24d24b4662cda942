// What a strategy works with on one rank: the fabric, this rank's axis of the mesh, a model, its buffers and its rule.
#pragma once
#include <functional>

#include "dataparallel/fabric.hpp"
#include "dataparallel/rule.hpp"
#include "model/model.hpp"

namespace gradmeter::dataparallel {

/// Also the model's way to ask for computation.
class Worker final : public model::Computer {
 public:
  /// axis: the ranks that hold the same part of the model and differ in their data; strategies speak to no others.
  Worker(Fabric& fabric, Group axis, model::Model& model, model::Buffers buffers, Rule& optimizer)
      : fabric_(fabric), axis_(axis), model_(model), buffers_(buffers), optimizer_(optimizer) {}
  Fabric& fabric() { return fabric_; }
  Group axis() const { return axis_; }
  int rank() const { return fabric_.rank(axis_); }
  int ranks() const { return fabric_.size(axis_); }
  model::Model& model() { return model_; }
  Rule& optimizer() { return optimizer_; }
  model::Buffers buffers() const { return buffers_; }
  Buffer parameters() const { return buffers_.parameters; }
  Buffer gradients() const { return buffers_.gradients; }
  Buffer gradients(std::size_t offset, std::size_t count) const { return buffers_.gradients.part(offset, count); }
  void compute(std::string_view label, model::Cost cost, const std::function<void()>& work) override {
    fabric_.compute(label, cost, work);
  }
  /// Forward and backward: the gradients of the batch's mean loss.
  model::Outcome pass(
      const model::Batch& b, const model::Model::Ready& ready = [](std::size_t) {}) {
    return model_.pass(*this, buffers_, b, ready);
  }
  /// Applies the optimizer to one range of the flat buffers.
  void update(std::size_t offset, std::size_t count, UpdateStep);
  void update(UpdateStep step) { update(0, parameters().count(), step); }

 private:
  Fabric& fabric_;
  Group axis_;
  model::Model& model_;
  model::Buffers buffers_;
  Rule& optimizer_;
};

}  // namespace gradmeter::dataparallel
