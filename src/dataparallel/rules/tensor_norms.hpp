// What rules need that scale each tensor's step by its size.
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "dataparallel/rules/registry.hpp"

namespace gradmeter::dataparallel {

/// Two sums over [0, n), in float64: blocks of a fixed length, then the blocks in order, so that the number of threads
/// changes no bit. block(first, count): the sums over a block; any thread.
struct TwoSums {
  double first = 0, second = 0;
};
TwoSums sum_blocks(std::size_t n, const std::function<TwoSums(std::size_t first, std::size_t count)>& block);

/// The tensors of a rule, found again in the ranges that it is given.
class TensorRanges {
 public:
  /// No tensors: all elements are one.
  explicit TensorRanges(const RuleScope&);
  struct Range {
    std::size_t offset, count;
  };
  /// The tensors of [offset, offset + count); what lies between tensors belongs to none.
  /// Errors: std::logic_error when one of them is only partly in it.
  std::vector<Range> in(const std::string& rule, std::size_t offset, std::size_t count) const;

 private:
  std::vector<Range> tensors_;  ///< ascending
};

}  // namespace gradmeter::dataparallel
