// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/graph.hpp"

#include "runtime/cuda/stream.hpp"

namespace gradmeter::runtime {
namespace {

struct GraphTraits {
  using type = cudaGraph_t;
  static type null() noexcept { return nullptr; }
  static void free(type graph) noexcept { note_cuda_error(cudaGraphDestroy(graph), "cudaGraphDestroy"); }
};

/// A capture of the queue's stream, from the constructor to `end`, at the latest to the destructor.
class StreamCapture {
 public:
  explicit StreamCapture(Queue& queue) : queue_(queue) {
    queue_.submit("graph.capture", {}, [] {
      check_cuda(cudaStreamBeginCapture(gpu::stream(), cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    });
  }
  ~StreamCapture() {
    if (!is_capturing_) return;
    Handle<GraphTraits> graph;
    queue_.submit("graph.captured", {}, [&graph] {
      (void)cudaStreamEndCapture(gpu::stream(), graph.out_address());  // an earlier error is reported instead
    });
    cudaGetLastError();
  }
  StreamCapture(const StreamCapture&) = delete;
  StreamCapture& operator=(const StreamCapture&) = delete;

  Handle<GraphTraits> end() {
    Handle<GraphTraits> graph;
    is_capturing_ = false;  // the capture is over even if the call fails
    queue_.submit("graph.captured", {}, [&graph] {
      check_cuda(cudaStreamEndCapture(gpu::stream(), graph.out_address()), "cudaStreamEndCapture");
    });
    return graph;
  }

 private:
  Queue& queue_;
  bool is_capturing_ = true;
};

}  // namespace

CudaGraph::CudaGraph(Queue& queue, const std::function<void()>& body) : queue_(queue) {
  StreamCapture capture(queue);
  body();
  const auto captured = capture.end();
  check_cuda(cudaGraphInstantiate(graph_.out_address(), captured.get(), 0), "cudaGraphInstantiate");
  queue.submit("graph.upload", {}, [this] {
    // uploads the graph now; otherwise the first launch would
    check_cuda(cudaGraphUpload(graph_.get(), gpu::stream()), "cudaGraphUpload");
  });
}

void CudaGraph::launch() const {
  queue_.submit("graph.launch", {},
                [this] { check_cuda(cudaGraphLaunch(graph_.get(), gpu::stream()), "cudaGraphLaunch"); });
}

}  // namespace gradmeter::runtime
