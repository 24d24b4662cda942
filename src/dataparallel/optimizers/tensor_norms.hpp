// For optimizers that scale each tensor's step by its size.
#pragma once
#include <array>
#include <functional>
#include <string>
#include <vector>

#include "dataparallel/optimizers/registry.hpp"

namespace gradmeter::dataparallel {

/// Two sums over [0, n), in float64: blocks of a fixed length, then the blocks in order, so that the number of threads
/// changes no bit. block(first, count): the sums over a block; any thread.
struct TwoSums {
  double first = 0, second = 0;
};
TwoSums sum_blocks(std::size_t n, const std::function<TwoSums(std::size_t first, std::size_t count)>& block);

/// Σ a(i)² and Σ b(i)² over [first, first + count), for a block. In lanes of a fixed number, so that the loop fills
/// vectors and has the same bits however wide they are.
template <class A, class B>
TwoSums squares(std::size_t first, std::size_t count, const A& a, const B& b) {
  constexpr std::size_t lanes = 8;
  std::array<double, lanes> as{}, bs{};
  const std::size_t end = first + count, whole = first + count / lanes * lanes;
  for (std::size_t i = first; i < whole; i += lanes) {
    for (std::size_t k = 0; k < lanes; ++k) {
      const double x = double{a(i + k)}, y = double{b(i + k)};
      as[k] += x * x;
      bs[k] += y * y;
    }
  }
  TwoSums s;
  for (std::size_t k = 0; k < lanes; ++k) s.first += as[k], s.second += bs[k];
  for (std::size_t i = whole; i < end; ++i) {
    const double x = double{a(i)}, y = double{b(i)};
    s.first += x * x;
    s.second += y * y;
  }
  return s;
}

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

 private:
  std::vector<Range> tensors_;  ///< ascending
};

/// An optimizer that takes two norms of each tensor before it changes its weights. Where tensors are parts, their norms
/// are combined from all parts.
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
  /// One tensor, or the part of it that is here. offset: in the optimizer's state.
  struct Piece {
    float* w;
    const float* g;
    std::size_t offset, count;
  };
  /// What this piece adds to the squares of its tensor's two norms. Once a step, before `move`.
  virtual TwoSums squares_of(const Piece&, UpdateStep) = 0;
  virtual void move(const Piece&, TwoSums, UpdateStep) = 0;

 private:
  TensorRanges tensors_;
  PartSums* parts_;
  std::vector<TensorRanges::Range> measured_;
  std::vector<TwoSums> sums_;  ///< by tensor that was measured
};

}  // namespace gradmeter::dataparallel
