// Work of a GPU's queue as a CUDA graph: captured once, launched as often as wanted.
#pragma once
#include <functional>

#include "runtime/cuda/handles.hpp"
#include "runtime/queue.hpp"

#ifdef GRADMETER_HAS_CUDA
namespace gradmeter::runtime {

struct GraphTraits {
  using type = cudaGraph_t;
  static type null() noexcept { return nullptr; }
  static void free(type graph) noexcept { release_cuda(cudaGraphDestroy(graph), "cudaGraphDestroy"); }
};
struct GraphExecTraits {
  using type = cudaGraphExec_t;
  static type null() noexcept { return nullptr; }
  static void free(type graph) noexcept { release_cuda(cudaGraphExecDestroy(graph), "cudaGraphExecDestroy"); }
};

class CudaGraph {
 public:
  /// Captures what `body` submits to the queue, on this thread; none of it runs. The capture is this thread's alone:
  /// others may go on calling CUDA. `body` may not wait for the queue, nor allocate or free.
  /// Errors: BackendError with CUDA's own text, also where `body` made a call that cannot be captured; what it throws.
  CudaGraph(Queue& queue, const std::function<void()>& body);
  /// Submits all of it. A launch begins when the one before is done. The queue outlives it, and so does what was
  /// captured.
  void launch() const;

 private:
  Queue& queue_;
  Handle<GraphExecTraits> graph_;
};

}  // namespace gradmeter::runtime
#endif
