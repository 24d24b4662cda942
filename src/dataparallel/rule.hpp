// How a change becomes new weights: a gradient by an optimizer, a block's mean change by an outer rule, a delta as it
// is.
#pragma once
#include <cstdint>
#include <string>

#include "model/compute.hpp"
#include "runtime/buffer.hpp"

namespace gradmeter::dataparallel {

/// One step of training as a rule sees it. number: counted from 1.
struct UpdateStep {
  float size = 0;
  std::uint64_t number = 1;
};

/// Keeps its state for the whole flat buffer; ranges are applied one by one, each once a step.
class Rule {
 public:
  explicit Rule(std::string name) : name_(std::move(name)) {}
  virtual ~Rule() = default;
  const std::string& name() const { return name_; }  ///< canonical: "momentum:mu=0.9"
  /// Of whole tensors (their norms): must not be given parts of them.
  virtual bool needs_whole_tensors() const { return false; }
  /// weights and change [count], at `offset` of the flat buffer that the rule was made for. change is a gradient where
  /// the rule is an optimizer, a difference of weights where it is an outer rule.
  virtual void apply(runtime::Buffer weights, runtime::ConstBuffer change, std::size_t offset, UpdateStep) = 0;
  virtual model::Cost cost(std::size_t count) const = 0;

 private:
  std::string name_;
};

}  // namespace gradmeter::dataparallel
