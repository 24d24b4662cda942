// The work of a whole network's pass, kept so that the next pass on the same memory submits it without asking the
// layers: in a loop of training all of them are.
#pragma once
#include <cstddef>
#include <vector>

#include "model/model.hpp"
#include "runtime/recording.hpp"

namespace gradmeter::model {

/// Without the loss, whose outcome is another one in each pass. What layers submit depends on nothing but their
/// operands, and they announce tensors in ascending order (`Model::pass`).
/// Cost of a pass that is submitted again: what lies between its kernels is measured by `bench_harness`. Memory: a copy
/// of what each piece of work captures.
class RecordedPass {
 public:
  /// Whose memory it is says on which device the pass runs.
  struct Operands {
    ConstBuffer parameters = runtime::no_floats, inputs = runtime::no_floats;
    Buffer gradients = runtime::no_floats;
    std::size_t samples = 0;
    int threads = 0;
    bool operator==(const Operands&) const = default;
  };

  bool is_of(const Operands& o) const { return recorded_ && last_ == o; }
  /// Is it worth recording? Where the pass before had the same operands. Remembers them for the next one.
  bool recurs(const Operands&);
  /// Its layers' memory has moved.
  void forget() { recorded_ = false, last_ = {}; }

  /// Records a pass: the layers' work goes to these two; each tensor is announced here first.
  void begin();
  runtime::RecordingQueue forward(Queue& queue) { return {queue, forward_}; }
  runtime::RecordingQueue backward(Queue& queue) { return {queue, backward_}; }
  void announce() { announced_after_.push_back(backward_.size()); }
  void end() { recorded_ = true; }

  void submit_forward(Queue&) const;
  void submit_backward(Queue&, const Model::Ready&) const;

 private:
  Operands last_;
  bool recorded_ = false;  ///< of the last operands
  std::vector<runtime::RecordedWork> forward_, backward_;
  std::vector<std::size_t> announced_after_;  ///< so many pieces of backward work, by tensor
};

}  // namespace gradmeter::model
