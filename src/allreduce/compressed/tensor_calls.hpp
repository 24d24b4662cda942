// A call that exchanges several tensors, as one call for each of them.
#pragma once
#include <span>
#include <vector>

#include "allreduce/collective.hpp"

namespace gradmeter::allreduce {

/// Each tensor's own call: its part of the buffers, of the residuals and of the difference; its place in all that is
/// exchanged as the key of its draws and of what is kept. No tensors: the buffer is one. Not to be copied, since calls
/// refer to members. Cost: O(tensors).
class TensorCalls {
 public:
  TensorCalls() = default;
  TensorCalls(const TensorCalls&) = delete;
  TensorCalls& operator=(const TensorCalls&) = delete;
  void assign(const Call&);
  std::span<const Call> calls() const { return calls_; }
  bool differences_asked() const { return whole_ != nullptr; }
  /// Once the tensors' differences are filled in: adds their squares to those of the whole call.
  void add_squares();

 private:
  std::vector<TensorPart> tensors_;
  std::vector<CodingDifference> differences_;
  std::vector<Call> calls_;
  CodingDifference* whole_ = nullptr;
};

}  // namespace gradmeter::allreduce
