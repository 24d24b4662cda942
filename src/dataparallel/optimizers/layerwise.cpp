// SPDX-License-Identifier: Apache-2.0
#include "dataparallel/optimizers/layerwise.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "core/format.hpp"
#include "dataparallel/optimizers/optimizer.hpp"
#include "kernels/loops.hpp"
#include "kernels/pointwise/updates.hpp"

namespace gradmeter::dataparallel {
namespace {

/// An optimizer that computes two norms of each tensor before it changes the tensor's weights. If this rank holds only
/// parts of tensors, the host waits for the norms of the parts and combines them over ranks.
class NormOptimizer : public Optimizer {
 public:
  NormOptimizer(std::string name, const OptimizerScope&);
  bool needs_whole_tensors() const final { return true; }
  bool has_tensor_parts() const final { return part_sums_ != nullptr; }
  void measure(runtime::Buffer, runtime::ConstBuffer, std::size_t offset, UpdateStep) final;
  void share_norms() final;
  /// Errors: std::logic_error when parts were not measured.
  void apply(runtime::Buffer, runtime::ConstBuffer, std::size_t offset, UpdateStep) final;

 protected:
  /// The input of one update of a range: weights w, gradient g, the range's offset in the flat buffer, and the tensors
  /// in the range (or the parts of tensors that this rank holds) with offsets from the range's beginning.
  struct UpdateInput {
    runtime::Buffer w;
    runtime::ConstBuffer g;
    std::size_t offset;
    std::span<const kernels::TensorPiece> pieces;
    runtime::Buffer state_range(const runtime::OwnedBuffer& state) const {
      return state.buffer.part(offset, w.count());
    }
  };
  /// Computes what each piece adds to the squares of its tensor's two norms, in float64. Called once a step, before
  /// `update_weights`.
  virtual void take_norms(const UpdateInput&, runtime::Buffer sums, UpdateStep) = 0;
  virtual void update_weights(const UpdateInput&, runtime::ConstBuffer sums, UpdateStep) = 0;

 private:
  /// A tensor, or the part of it that this rank holds.
  struct TensorRange {
    std::size_t offset, count;
    bool is_part = false;
  };
  /// Finds the tensors that lie in [offset, offset + count), ascending. Elements between tensors belong to no tensor. A
  /// part may be empty: other ranks then hold the whole tensor.
  /// Errors: std::logic_error when a tensor lies only partly in the range.
  void find_pieces(std::size_t offset, std::size_t count);
  runtime::Buffer sums() const { return sums_.buffer.part(0, 2 * pieces_.size()); }

  std::vector<TensorRange> tensors_;  ///< ascending
  SumsOverRanks* part_sums_;
  runtime::OwnedBuffer sums_;               ///< two sums for each piece, in the memory that holds the weights
  std::vector<TensorRange> range_tensors_;  ///< the tensors, or parts of tensors, of the last range
  std::vector<kernels::TensorPiece> pieces_;
  /// Two sums for each piece of the range that was measured last; after `share_norms`, over all parts of a tensor.
  std::vector<double> measured_sums_;
  bool is_measured_ = false;
};

/// If the scope names no tensors, all elements count as one tensor.
NormOptimizer::NormOptimizer(std::string name, const OptimizerScope& scope)
    : Optimizer(std::move(name)), part_sums_(scope.part_sums) {
  for (const auto& t : scope.tensors) tensors_.push_back({t.offset, t.count, t.is_part});
  if (tensors_.empty()) tensors_.push_back({0, scope.elements});
  // A stable sort, so that empty parts keep their place in the order, which must be the same on all ranks.
  std::ranges::stable_sort(tensors_, {}, &TensorRange::offset);
  sums_ = scope.device.allocate(core::Element::f64, 2 * tensors_.size());
}

void NormOptimizer::find_pieces(std::size_t offset, std::size_t count) {
  range_tensors_.clear();
  pieces_.clear();
  const std::size_t end = offset + count;
  for (const TensorRange& t : tensors_) {
    const bool is_empty = t.count == 0 && t.offset >= offset && t.offset <= end;
    if (!is_empty && (t.offset + t.count <= offset || t.offset >= end)) continue;
    if (t.offset < offset || t.offset + t.count > end) {
      throw std::logic_error(
          fmt::format("{} was given elements [{}, {}), which cut the tensor at [{}, {}): it takes "
                      "norms of whole tensors",
                      name(), offset, end, t.offset, t.offset + t.count));
    }
    range_tensors_.push_back(t);
    pieces_.push_back({t.offset - offset, t.count});
  }
}

void NormOptimizer::measure(runtime::Buffer weights, runtime::ConstBuffer gradient, std::size_t offset,
                            UpdateStep step) {
  find_pieces(offset, weights.count());
  take_norms({weights, gradient, offset, pieces_}, sums(), step);
  measured_sums_.resize(2 * pieces_.size());
  is_measured_ = true;
  kernels::loops().copy(sums(), measured_sums_);  // `share_norms` is called only when the queue has done this
}

void NormOptimizer::share_norms() {
  std::vector<double> values;
  for (std::size_t i = 0; i < range_tensors_.size(); ++i) {
    if (range_tensors_[i].is_part) values.insert(values.end(), {measured_sums_[2 * i], measured_sums_[2 * i + 1]});
  }
  if (values.empty()) return;
  part_sums_->sum(values);
  auto next = values.begin();
  for (std::size_t i = 0; i < range_tensors_.size(); ++i) {
    if (!range_tensors_[i].is_part) continue;
    measured_sums_[2 * i] = *next++;
    measured_sums_[2 * i + 1] = *next++;
  }
}

void NormOptimizer::apply(runtime::Buffer weights, runtime::ConstBuffer gradient, std::size_t offset, UpdateStep step) {
  find_pieces(offset, weights.count());
  const UpdateInput input{weights, gradient, offset, pieces_};
  if (!has_tensor_parts()) {
    take_norms(input, sums(), step);
  } else if (std::exchange(is_measured_, false) && measured_sums_.size() == 2 * pieces_.size()) {
    kernels::loops().copy(measured_sums_, sums());
  } else {
    throw std::logic_error(name() + " was given parts of tensors whose norms were not measured before");
  }
  update_weights(input, sums(), step);
}

class Lars final : public NormOptimizer {
 public:
  /// p.step is ignored; each update sets the step size.
  Lars(std::string name, const OptimizerScope& scope, kernels::LarsParameters p)
      : NormOptimizer(std::move(name), scope), parameters_(p), velocity_(scope.state()) {}

  std::vector<runtime::Buffer> state() override { return {velocity_.buffer}; }
  runtime::Cost cost(std::size_t n) const override { return {10.0 * double(n), 28.0 * double(n)}; }
  runtime::Cost measure_cost(std::size_t n) const override { return {4.0 * double(n), 8.0 * double(n)}; }

 private:
  void take_norms(const UpdateInput& input, runtime::Buffer sums, UpdateStep) override {
    kernels::loops().lars_norms(input.w, input.g, input.pieces, sums);
  }
  void update_weights(const UpdateInput& input, runtime::ConstBuffer sums, UpdateStep step) override {
    kernels::LarsParameters p = parameters_;
    p.step = step.step_size;
    kernels::loops().lars(input.w, input.state_range(velocity_), input.g, input.pieces, sums, p, step.update_number());
  }

  kernels::LarsParameters parameters_;
  runtime::OwnedBuffer velocity_;
};

class Lamb final : public NormOptimizer {
 public:
  /// p.step is ignored; each update sets the step size.
  Lamb(std::string name, const OptimizerScope& scope, kernels::LambParameters p)
      : NormOptimizer(std::move(name), scope), parameters_(p), mean_(scope.state()), square_(scope.state()) {}

  std::vector<runtime::Buffer> state() override { return {mean_.buffer, square_.buffer}; }
  runtime::Cost cost(std::size_t n) const override { return {28.0 * double(n), 40.0 * double(n)}; }
  runtime::Cost measure_cost(std::size_t n) const override { return {20.0 * double(n), 24.0 * double(n)}; }

 private:
  void take_norms(const UpdateInput& input, runtime::Buffer sums, UpdateStep step) override {
    kernels::loops().lamb_norms(input.w, input.state_range(mean_), input.state_range(square_), input.g, input.pieces,
                                sums, parameters_for(step), step.update_number());
  }
  void update_weights(const UpdateInput& input, runtime::ConstBuffer sums, UpdateStep step) override {
    kernels::loops().lamb(input.w, input.state_range(mean_), input.state_range(square_), input.pieces, sums,
                          parameters_for(step), step.update_number());
  }
  kernels::LambParameters parameters_for(UpdateStep step) const {
    kernels::LambParameters p = parameters_;
    p.step = step.step_size;
    return p;
  }

  kernels::LambParameters parameters_;
  runtime::OwnedBuffer mean_, square_;
};

}  // namespace

std::unique_ptr<Optimizer> make_lars(const core::ParsedName& name, const OptimizerScope& scope) {
  const kernels::LarsParameters p{.step = 0,
                                  .mu = optimizer_parameter(name, "mu", 0, 1),
                                  .eta = optimizer_parameter(name, "eta", 0, 1000),
                                  .decay = optimizer_parameter(name, "decay", 0, 1)};
  return std::make_unique<Lars>(name.canonical(), scope, p);
}

std::unique_ptr<Optimizer> make_lamb(const core::ParsedName& name, const OptimizerScope& scope) {
  const kernels::LambParameters p{.step = 0,
                                  .beta1 = optimizer_parameter(name, "beta1", 0, 1),
                                  .beta2 = optimizer_parameter(name, "beta2", 0, 1),
                                  .epsilon = optimizer_parameter(name, "epsilon", 0, 1),
                                  .decay = optimizer_parameter(name, "decay", 0, 1)};
  return std::make_unique<Lamb>(name.canonical(), scope, p);
}

GroupSums::GroupSums(Fabric& fabric, Group group, std::size_t most)
    : fabric_(fabric), group_(group), words_(fabric.memory(gathered_floats(fabric.size(group), most))) {}

std::size_t GroupSums::memory_bytes(int ranks, std::size_t most) {
  return gathered_floats(ranks, most) * sizeof(float) + memory_page_bytes;
}

Forecast GroupSums::predict(const ForecastInput& input, std::size_t values) {
  return forecast_collective(input, allreduce::CollectiveKind::all_gather,
                             gathered_floats(static_cast<int>(input.ranks), values));
}

void GroupSums::sum(std::span<double> values) {
  const int ranks = fabric_.size(group_);
  const std::size_t floats_per_rank = 2 * values.size(), all_floats = gathered_floats(ranks, values.size());
  if (all_floats > words_.count()) throw std::logic_error("more norms are to be summed than there is memory for");
  if (ranks == 1 || values.empty()) return;
  const Buffer words = words_.part(0, all_floats);
  const std::size_t own_begin = floats_per_rank * static_cast<std::size_t>(fabric_.rank(group_));
  fabric_.run_and_wait([&] { std::memcpy(&words.values<float>()[own_begin], values.data(), values.size_bytes()); });
  fabric_.wait(fabric_.all_gather(group_, words));
  std::ranges::fill(values, 0.0);
  fabric_.run_and_wait([&] {
    const std::span<const float> gathered = words.values<float>();
    for (std::size_t rank_begin = 0; rank_begin < all_floats; rank_begin += floats_per_rank) {
      for (std::size_t i = 0; i < values.size(); ++i) {
        double value = 0;
        std::memcpy(&value, &gathered[rank_begin + 2 * i], sizeof value);
        values[i] += value;
      }
    }
  });
}

}  // namespace gradmeter::dataparallel
