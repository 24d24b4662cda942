// SPDX-License-Identifier: Apache-2.0
// When work runs: only when somebody waits for it, when the order of a seed says so, or when nobody has called CUDA for
// a while. Under a lock, as all.
#pragma once
#include "support/cuda_emulator/streams.hpp"

namespace cuda_emulator {

enum class Step {
  none,    ///< there is nothing to run
  waited,  ///< all that there is waits for other threads, other processes or a function of the host's
  ran
};
/// Runs one piece of work until it ends or pauses: one that this stream needs, if there is. Null: any.
Step run_one(const Stream* needed_by);

/// Runs work until the condition holds, or an error has come that stays. What this stream needs is run first; null:
/// what is waited for may come from other threads and processes. Other threads' calls go on meanwhile. False: it will
/// never hold, or nothing has moved for as long as timeout lasts.
bool run_until(const std::function<bool()>& holds, const Stream* needed_by = nullptr);
/// Until the mark is done; null: nothing to wait for. Errors: what a kernel left, or a hang, which is reported.
cudaError_t wait_for(MarkPtr);
/// For all that was submitted before.
cudaError_t wait_for_all();
/// For who asks without waiting: a step, so that who asks again and again gets on.
cudaError_t query(const MarkPtr&);

/// Inside a piece of work: lets other streams, threads and processes do something; for loops that wait for them.
void pause_work();
/// Inside work that goes on after a pause: what other work waits for may be there now.
void note_progress();
/// Fibers for the threads of a kernel that is the work which runs now.
FiberPool& kernel_fibers();

/// Starts the thread that runs the host's functions, and work that nobody waits for.
void begin_driver();

}  // namespace cuda_emulator
