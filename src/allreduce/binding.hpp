// SPDX-License-Identifier: Apache-2.0
// Steps of binding that can fail on single ranks, such as taking memory of a device.
#pragma once
#include <functional>
#include <string>

#include "runtime/communicator.hpp"

namespace gradmeter::allreduce {

/// Runs a step of the binding of the collective `name` and waits until all ranks have run it; if it threw Unavailable
/// or BackendError on any rank, all ranks throw. A step that may fail on one rank alone must be run by this function,
/// since the other ranks would otherwise wait for ever in the binding's next collective call. The step itself makes no
/// collective calls. Collective over `c`. Errors: BackendError if the step threw it on any rank, else Unavailable; both
/// name the first rank that failed. If a GPU is lost, this rank rethrows the error at once, without waiting for the
/// others, since the loss ends the job.
void on_all_ranks(const runtime::Communicator& c, const std::string& name, const std::function<void()>& step);

}  // namespace gradmeter::allreduce
