// SPDX-License-Identifier: Apache-2.0
// Work of a GPU's queue as a CUDA graph: captured once, launched any number of times.
#pragma once
#include <functional>

#include "runtime/cuda/handles.hpp"
#include "runtime/device.hpp"

#ifdef GRADMETER_HAS_CUDA
namespace gradmeter::runtime {

struct GraphExecTraits {
  using type = cudaGraphExec_t;
  static type null() noexcept { return nullptr; }
  static void free(type graph) noexcept { note_cuda_error(cudaGraphExecDestroy(graph), "cudaGraphExecDestroy"); }
};

/// Captured work of one queue as a CUDA graph, and the owner of that graph.
class CudaGraph {
 public:
  /// Captures the work that `body` submits to the queue on this thread, without running it. Other threads may call CUDA
  /// meanwhile. `body` must not wait for the queue, allocate or free. Errors: BackendError with CUDA's own text, also
  /// where `body` made a call that cannot be captured; exceptions of `body`.
  CudaGraph(Queue& queue, const std::function<void()>& body);
  /// Submits the captured work. A launch begins when the previous one is done. The queue and all captured objects must
  /// outlive the graph.
  void launch() const;

 private:
  Queue& queue_;
  Handle<GraphExecTraits> graph_;
};

}  // namespace gradmeter::runtime
#endif
