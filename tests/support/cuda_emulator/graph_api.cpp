// SPDX-License-Identifier: Apache-2.0
// Capture of streams, and calls of CUDA's runtime API about graphs.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <set>
#include <utility>

#include "support/cuda_emulator/device.hpp"
#include "support/cuda_emulator/graphs.hpp"
#include "support/cuda_emulator/lock.hpp"
#include "support/cuda_emulator/schedule.hpp"

namespace cuda_emulator {
namespace {

/// A graph that can be launched. Each chain of its nodes has a stream of its own, so that what the graph does not order
/// runs in any order.
struct Executable {
  std::vector<Node> nodes;
  std::vector<std::size_t> chains = {};  ///< of each node
  std::vector<Stream*> streams = {};     ///< of each chain
  MarkPtr last = {};                     ///< two launches never run at once
};

auto& captures = *new std::set<Graph*>;  ///< that go on now

void add_unique(std::vector<std::size_t>& to, const std::vector<std::size_t>& from) {
  for (const std::size_t n : from) {
    if (std::ranges::find(to, n) == to.end()) to.push_back(n);
  }
}

/// All nodes that the tips come after, and they themselves.
std::set<std::size_t> reached_from(const Capture& c) {
  std::set<std::size_t> reached;
  std::vector<std::size_t> next = c.tips;
  while (!next.empty()) {
    const std::size_t n = next.back();
    next.pop_back();
    if (!reached.insert(n).second) continue;
    const auto& after = c.graph->nodes[n].after;
    next.insert(next.end(), after.begin(), after.end());
  }
  return reached;
}

/// No stream records into it any more. False: one had work that the origin did not wait for.
bool end_capture(Stream& origin) {
  Graph* const graph = origin.capture.graph;
  const auto reached = reached_from(origin.capture);
  bool joined = true;
  for (const auto& s : all_streams()) {
    if (s->capture.graph != graph) continue;
    joined &= std::ranges::all_of(s->capture.tips, [&](std::size_t n) { return reached.contains(n); });
    s->capture = {};
  }
  captures.erase(graph);
  return joined;
}

/// A node goes on with the chain of a node that it comes after, if that one is its end.
void make_chains(Executable& e) {
  std::vector<std::size_t> ends;
  for (std::size_t n = 0; n < e.nodes.size(); ++n) {
    const auto& after = e.nodes[n].after;
    const auto end =
        std::ranges::find_if(ends, [&](std::size_t last) { return std::ranges::find(after, last) != after.end(); });
    e.chains.push_back(static_cast<std::size_t>(end - ends.begin()));
    if (end == ends.end()) {
      ends.push_back(n);
      e.streams.push_back(make_stream(false));
    } else {
      *end = n;
    }
  }
}

void launch(Executable& e, Stream& s) {
  std::vector<MarkPtr> before;
  if (e.last) before.push_back(e.last);
  const MarkPtr begin = push(s, {.run = {}, .what = "cudaGraphLaunch", .seconds = 1e-5}, before);
  std::vector<MarkPtr> marks;
  for (std::size_t n = 0; n < e.nodes.size(); ++n) {
    std::vector<MarkPtr> after{begin};
    for (const std::size_t other : e.nodes[n].after) after.push_back(marks[other]);
    Stream& chain = *e.streams[e.chains[n]];
    const StreamWork& work = e.nodes[n].work;
    marks.push_back(push(chain, work.of_launch ? work.of_launch(chain) : work, std::move(after)));
  }
  e.last = push(s, {.run = {}, .what = "the end of a graph"}, std::move(marks));
}

}  // namespace

void add_node(Capture& c, StreamWork work) {
  c.graph->nodes.push_back({.work = std::move(work), .after = c.tips});
  c.tips = {c.graph->nodes.size() - 1};
}

cudaError_t join_capture(Stream& s, const Capture& event) {
  if (!captures.contains(event.graph)) return cudaErrorCapturedEvent;  // it has ended
  if (s.capture.graph && s.capture.graph != event.graph) return cudaErrorStreamCaptureMerge;
  s.capture.graph = event.graph;
  add_unique(s.capture.tips, event.tips);
  return cudaSuccess;
}

void lose_capture(const Capture& c) { c.graph->is_lost = true; }

bool may_wait() {
  bool may = true;
  for (Graph* const g : captures) {
    const bool own = g->thread == std::this_thread::get_id();
    const bool forbids = g->mode == cudaStreamCaptureModeGlobal || (g->mode == cudaStreamCaptureModeThreadLocal && own);
    if (!forbids) continue;
    g->is_lost = true;
    may = false;
  }
  return may;
}

}  // namespace cuda_emulator

using namespace cuda_emulator;

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  const Lock lock;
  Stream* const s = find_stream(stream);
  if (!s) return result(cudaErrorInvalidResourceHandle);
  if (s == &default_stream()) return result(cudaErrorStreamCaptureUnsupported);
  if (s->capture.graph) return result(cudaErrorIllegalState);
  s->capture = {.graph = new Graph{.origin = s, .thread = std::this_thread::get_id(), .mode = mode}};
  captures.insert(s->capture.graph);
  return result(cudaSuccess);
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const Lock lock;
  *graph = nullptr;
  Stream* const s = find_stream(stream);
  if (!s) return result(cudaErrorInvalidResourceHandle);
  Graph* const g = s->capture.graph;
  if (!g) return result(cudaErrorIllegalState);
  if (g->origin != s) return result(cudaErrorStreamCaptureUnmatched);
  const bool thread_fits = g->mode == cudaStreamCaptureModeRelaxed || g->thread == std::this_thread::get_id();
  if (!thread_fits) return result(cudaErrorStreamCaptureWrongThread);
  const bool joined = end_capture(*s);
  if (joined && !g->is_lost) {
    *graph = reinterpret_cast<cudaGraph_t>(g);
    return result(cudaSuccess);
  }
  const cudaError_t why = g->is_lost ? cudaErrorStreamCaptureInvalidated : cudaErrorStreamCaptureUnjoined;
  delete g;
  return result(why);
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  const Lock lock;
  const Stream* const s = find_stream(stream);
  if (!s) return result(cudaErrorInvalidResourceHandle);
  const Graph* const g = s->capture.graph;
  *status = !g           ? cudaStreamCaptureStatusNone
            : g->is_lost ? cudaStreamCaptureStatusInvalidated
                         : cudaStreamCaptureStatusActive;
  return result(cudaSuccess);
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  const Lock lock;
  if (!graph) return result(cudaErrorInvalidValue);
  auto* const e = new Executable{.nodes = reinterpret_cast<const Graph*>(graph)->nodes};
  make_chains(*e);
  *exec = reinterpret_cast<cudaGraphExec_t>(e);
  return result(cudaSuccess);
}
cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) {
  const Lock lock;
  return result(cudaSuccess);
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  const Lock lock;
  Stream* const s = find_stream(stream);
  if (!s || !exec) return result(cudaErrorInvalidResourceHandle);
  if (s->capture.graph) return result(cudaErrorStreamCaptureUnsupported);  // child graphs
  launch(*reinterpret_cast<Executable*>(exec), *s);
  return result(cudaSuccess);
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  const Lock lock;
  auto* const e = reinterpret_cast<Executable*>(exec);
  if (!e) return result(cudaErrorInvalidValue);
  std::ranges::for_each(e->streams, destroy_stream);
  delete e;
  return result(cudaSuccess);
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  const Lock lock;
  delete reinterpret_cast<Graph*>(graph);
  return result(cudaSuccess);
}
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, std::size_t* count) {
  const Lock lock;
  if (!graph || nodes) return result(cudaErrorInvalidValue);  // only their number is known
  *count = reinterpret_cast<const Graph*>(graph)->nodes.size();
  return result(cudaSuccess);
}

}  // extern "C"
