// SPDX-License-Identifier: Apache-2.0
// Steps of binding that can fail on single ranks, such as taking memory of a device.
#pragma once
#include <functional>
#include <string>

#include "runtime/communicator.hpp"

namespace gradmeter::allreduce {

/// Runs a step of the binding of the collective `name` and waits until all ranks have run it; if it failed on any rank,
/// all ranks throw. Whatever may fail on one rank alone is run by this function before the next collective call of the
/// binding, in which the other ranks would wait for that rank for ever. The step itself makes no collective calls.
/// Collective over `c`. Errors: Unavailable where that is the step's only error; else BackendError; both name the first
/// rank that failed. The error of a lost GPU is passed on at once, since it ends the job.
void on_all_ranks(const runtime::Communicator& c, const std::string& name, const std::function<void()>& step);

}  // namespace gradmeter::allreduce
