// Calls of a collective as CUDA graphs.
#pragma once
#include <cstddef>
#include <memory>

#include "allreduce/collective.hpp"

namespace gradmeter::allreduce {

/// What an iteration is: a graph of so many calls, one after another, launched so many times.
struct GraphShape {
  std::size_t calls = 1, launches = 1;
};

/// Both capture a call at the first on its buffers, and launch that graph for every one after it. Graphs are kept for
/// calls of one length. The first call is launched too: whoever times them makes one before.
/// Source: CUDA C++ Programming Guide, "CUDA Graphs"; NCCL User Guide, "Using NCCL with CUDA Graphs"
struct GraphedCollectives {
  std::unique_ptr<Collective> one;        ///< a call is one launch of a graph of one call
  std::unique_ptr<Collective> iteration;  ///< a call is an iteration
};
/// One call at a time, of either. The queue outlives them. Errors: BackendError where the collective does not run in
/// its queue's stream, or was built without CUDA; that of a call which cannot be captured, at the call.
GraphedCollectives capture_calls(std::unique_ptr<Collective>, runtime::Queue&, GraphShape iteration);

}  // namespace gradmeter::allreduce
