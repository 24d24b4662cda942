// For optimizers that scale each tensor's step by its size.
#pragma once
#include <string>
#include <vector>

#include "dataparallel/optimizers/registry.hpp"
#include "kernels/norm_updates.hpp"

namespace gradmeter::dataparallel {

/// The tensors of an optimizer, found again in the ranges that it is given.
class TensorRanges {
 public:
  /// No tensors: all elements are one tensor.
  explicit TensorRanges(const OptimizerScope&);
  struct Range {
    std::size_t offset, count;
    bool is_part = false;
  };
  /// The tensors of [offset, offset + count), ascending; elements between tensors belong to none. Parts may be empty:
  /// then other ranks hold all of the tensor.
  /// Errors: std::logic_error when one of them is only partly in it.
  std::vector<Range> in(const std::string& rule, std::size_t offset, std::size_t count) const;
  std::size_t count() const { return tensors_.size(); }

 private:
  std::vector<Range> tensors_;  ///< ascending
};

/// An optimizer that takes two norms of each tensor before it changes its weights. Where tensors are parts, their norms
/// are combined from all parts, by the host, which waits for them.
class NormOptimizer : public Optimizer {
 public:
  NormOptimizer(std::string name, const OptimizerScope&);
  bool needs_whole_tensors() const final { return true; }
  bool shares() const final { return parts_ != nullptr; }
  void measure(runtime::Buffer, runtime::ConstBuffer, std::size_t offset, UpdateStep) final;
  void share() final;
  /// Errors: std::logic_error when parts were not measured.
  void apply(runtime::Buffer, runtime::ConstBuffer, std::size_t offset, UpdateStep) final;

 protected:
  /// What one update is given. Pieces are its tensors, or the parts of them that are here, counted from its beginning.
  struct Range {
    runtime::Buffer w;
    runtime::ConstBuffer g;
    std::size_t offset;
    std::span<const kernels::TensorPiece> pieces;
    runtime::Buffer of(const runtime::OwnedBuffer& state) const { return state.buffer.part(offset, w.count()); }
  };
  /// What each piece adds to the squares of its tensor's two norms, in float64. Once a step, before `move`.
  virtual void take_norms(const Range&, runtime::Buffer sums, UpdateStep) = 0;
  virtual void move(const Range&, runtime::ConstBuffer sums, UpdateStep) = 0;

 private:
  void find_pieces(std::size_t offset, std::size_t count);
  runtime::Buffer sums() const { return sums_.buffer.part(0, 2 * pieces_.size()); }

  TensorRanges tensors_;
  PartSums* parts_;
  runtime::OwnedBuffer sums_;  ///< two of each piece, where the weights are
  std::vector<TensorRanges::Range> found_;
  std::vector<kernels::TensorPiece> pieces_;
  std::vector<double> shared_;  ///< of the range that was measured, as all parts have them
  bool is_measured_ = false;
};

}  // namespace gradmeter::dataparallel
