// SPDX-License-Identifier: Apache-2.0
// Steps of binding that can fail on single ranks, such as taking memory of a device.
#pragma once
#include <functional>
#include <string>

#include "runtime/communicator.hpp"

namespace gradmeter::allreduce {

/// Runs a step of the binding of the collective `name` and waits until all ranks have run it; if it threw Unavailable
/// or BackendError on any rank, all ranks throw. Whatever may fail on one rank alone must be run by this function
/// before the next collective call of the binding, in which other ranks would wait for ever. The step itself makes no
/// collective calls. Collective over `c`. Errors: BackendError if the step threw it on any rank, else Unavailable; both
/// name the first rank that failed. The error of a lost GPU is passed on at once, since it ends the job.
void on_all_ranks(const runtime::Communicator& c, const std::string& name, const std::function<void()>& step);

}  // namespace gradmeter::allreduce
