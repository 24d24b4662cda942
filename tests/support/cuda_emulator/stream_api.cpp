// SPDX-License-Identifier: Apache-2.0
// Calls of CUDA's runtime API about streams, events and launches.
#include <cuda_runtime_api.h>

#include <cstdlib>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "support/cuda_emulator/device.hpp"
#include "support/cuda_emulator/emulator.hpp"
#include "support/cuda_emulator/graphs.hpp"
#include "support/cuda_emulator/grid.hpp"
#include "support/cuda_emulator/hardware.hpp"
#include "support/cuda_emulator/limits.hpp"
#include "support/cuda_emulator/lock.hpp"
#include "support/cuda_emulator/running_counts.hpp"
#include "support/cuda_emulator/sanitizers.hpp"
#include "support/cuda_emulator/schedule.hpp"

namespace cuda_emulator {
namespace {

struct Event {
  MarkPtr mark = {};  ///< null: never recorded, which counts as done
  bool has_time = true;
  Capture captured = {};  ///< where it was recorded, when that was in a capture
};

auto& kernels = *new std::unordered_map<const void*, Binder>;
auto& events = *new std::set<Event*>;

/// How many launches from now on the one is that fails; 0: none does.
std::uint64_t& launches_to_failure() {
  static const char* const text = std::getenv("GRADMETER_CUDA_EMULATOR_FAIL_KERNEL");
  static std::uint64_t left = text ? std::strtoull(text, nullptr, 10) : 0;
  return left;
}

Event* find_event(cudaEvent_t handle) {
  auto* const e = reinterpret_cast<Event*>(handle);
  if (events.contains(e)) return e;
  report("an event that was destroyed, or never made, is used");
  return nullptr;
}

/// Work on which nobody may wait now: recorded, not running.
cudaError_t refused(Stream& s) {
  lose_capture(s.capture);
  return result(cudaErrorStreamCaptureUnsupported);
}

bool fits_device(const GridShape& shape) {
  const auto& [grid, block] = std::pair(shape.grid, shape.block);
  const std::uint64_t threads = std::uint64_t{block.x} * block.y * block.z;
  return threads > 0 && threads <= limits::threads_of_block && std::uint64_t{grid.x} * grid.y * grid.z > 0 &&
         grid.y <= 65535 && grid.z <= 65535 && shape.shared_bytes <= limits::shared_bytes_of_block;
}

std::uint64_t all_threads(const GridShape& shape) {
  const auto& [grid, block] = std::pair(shape.grid, shape.block);
  return std::uint64_t{block.x} * block.y * block.z * grid.x * grid.y * grid.z;
}

cudaError_t launch(const void* function, const GridShape& shape, void** arguments, cudaStream_t stream) {
  constexpr std::uint64_t most_resident = limits::multiprocessors * limits::threads_of_multiprocessor;
  const Lock lock;
  const auto kernel = kernels.find(function);
  if (kernel == kernels.end()) return result(cudaErrorInvalidDeviceFunction);
  Stream* const s = find_stream(stream);
  if (!s) return result(cudaErrorInvalidResourceHandle);
  if (!fits_device(shape)) return result(cudaErrorInvalidConfiguration);
  if (shape.cooperative && all_threads(shape) > most_resident) return result(cudaErrorCooperativeLaunchTooLarge);
  if (const cudaError_t e = load(function, *s); e != cudaSuccess) return e;
  if (const cudaError_t e = wait_for_place(*s); e != cudaSuccess) return e;
  ++running_counts().kernels;
  const bool fails = launches_to_failure() > 0 && --launches_to_failure() == 0;
  push(*s, {.run =
                [shape, fails, call = kernel->second(function, arguments)] {
                  fails ? fail(cudaErrorIllegalAddress) : run_grid(call, shape);
                },
            .what = "a kernel",
            .seconds = 5e-6 + 6e-11 * static_cast<double>(all_threads(shape)),
            .is_cooperative = shape.cooperative});
  return result(cudaSuccess);
}

}  // namespace

void know_kernel(const void* function, Binder binder) {
  const Lock lock;
  kernels.emplace(function, binder);
}

void fail_kernel(std::uint64_t n) {
  const Lock lock;
  launches_to_failure() = n;
}

Counts& running_counts() {
  static Counts counts;
  return counts;
}

Counts counts() {
  const Lock lock;
  running_counts().threads = threads_run();
  return running_counts();
}

}  // namespace cuda_emulator

using namespace cuda_emulator;

extern "C" {

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* s, unsigned flags) {
  const Lock lock;
  Stream* const made = make_stream((flags & cudaStreamNonBlocking) == 0);
  made->hardware_queue = take_hardware_queue();
  *s = reinterpret_cast<cudaStream_t>(made);
  return result(cudaSuccess);
}
/// Priorities are hints: the order does not heed them.
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* s, unsigned flags, int) {
  return cudaStreamCreateWithFlags(s, flags);
}
cudaError_t cudaStreamCreate(cudaStream_t* s) { return cudaStreamCreateWithFlags(s, cudaStreamDefault); }
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const Lock lock;
  Stream* const s = find_stream(stream);
  if (!s) return result(cudaErrorInvalidResourceHandle);
  destroy_stream(s);
  return result(cudaSuccess);
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  const Lock lock;
  ++running_counts().waits;
  Stream* const s = find_stream(stream);
  if (!s) return result(cudaErrorInvalidResourceHandle);
  if (s->capture.graph) return refused(*s);
  return may_wait() ? wait_for(s->last) : result(cudaErrorStreamCaptureUnsupported);
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  const Lock lock;
  Stream* const s = find_stream(stream);
  if (!s) return result(cudaErrorInvalidResourceHandle);
  if (s->capture.graph) return refused(*s);
  return may_wait() ? query(s->last) : result(cudaErrorStreamCaptureUnsupported);
}
cudaError_t cudaDeviceSynchronize() {
  const Lock lock;
  ++running_counts().waits;
  (void)default_stream();
  return may_wait() ? wait_for_all() : result(cudaErrorStreamCaptureUnsupported);
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  const Lock lock;
  Stream* const s = find_stream(stream);
  if (!s) return result(cudaErrorInvalidResourceHandle);
  const auto run = [=] {
    const Watched watched;
    function(data);
  };
  ++running_counts().host_functions;
  push(*s, {.run = run, .what = "a host function", .seconds = 5e-6, .is_host = true});
  return result(cudaSuccess);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* e, unsigned flags) {
  const Lock lock;
  auto* const event = new Event{.has_time = (flags & cudaEventDisableTiming) == 0};
  events.insert(event);
  *e = reinterpret_cast<cudaEvent_t>(event);
  return result(cudaSuccess);
}
cudaError_t cudaEventCreate(cudaEvent_t* e) { return cudaEventCreateWithFlags(e, cudaEventDefault); }
cudaError_t cudaEventDestroy(cudaEvent_t e) {
  const Lock lock;
  Event* const event = find_event(e);
  if (!event) return result(cudaErrorInvalidResourceHandle);
  events.erase(event);
  delete event;
  return result(cudaSuccess);
}
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t stream) {
  const Lock lock;
  Event* const event = find_event(e);
  Stream* const s = find_stream(stream);
  if (!event || !s) return result(cudaErrorInvalidResourceHandle);
  event->captured = s->capture;
  if (!s->capture.graph) event->mark = push(*s, {.run = {}, .what = "cudaEventRecord"});
  return result(cudaSuccess);
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t e, unsigned) {
  const Lock lock;
  const Event* const event = find_event(e);
  Stream* const s = find_stream(stream);
  if (!event || !s) return result(cudaErrorInvalidResourceHandle);
  if (event->captured.graph) return result(join_capture(*s, event->captured));
  if (s->capture.graph) return result(cudaErrorStreamCaptureIsolation);  // an event of before the capture
  if (event->mark) push(*s, {.run = {}, .what = "cudaStreamWaitEvent"}, {event->mark});
  return result(cudaSuccess);
}
cudaError_t cudaEventQuery(cudaEvent_t e) {
  const Lock lock;
  const Event* const event = find_event(e);
  if (!event) return result(cudaErrorInvalidResourceHandle);
  if (event->captured.graph) return result(cudaErrorCapturedEvent);
  return may_wait() ? query(event->mark) : result(cudaErrorStreamCaptureUnsupported);
}
cudaError_t cudaEventSynchronize(cudaEvent_t e) {
  const Lock lock;
  ++running_counts().waits;
  const Event* const event = find_event(e);
  if (!event) return result(cudaErrorInvalidResourceHandle);
  if (event->captured.graph) return result(cudaErrorCapturedEvent);
  return may_wait() ? wait_for(event->mark) : result(cudaErrorStreamCaptureUnsupported);
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t begin, cudaEvent_t end) {
  const Lock lock;
  const Event *const b = find_event(begin), *const e = find_event(end);
  if (!b || !e || !b->mark || !e->mark || !b->has_time || !e->has_time) return result(cudaErrorInvalidResourceHandle);
  if (!b->mark->done || !e->mark->done) return result(cudaErrorNotReady);
  *ms = static_cast<float>(1e3 * (e->mark->seconds - b->mark->seconds));
  return result(cudaSuccess);
}

cudaError_t cudaLaunchKernel(const void* f, dim3 grid, dim3 block, void** arguments, std::size_t shared,
                             cudaStream_t s) {
  return launch(f, {grid, block, static_cast<unsigned>(shared), false}, arguments, s);
}
cudaError_t cudaLaunchCooperativeKernel(const void* f, dim3 grid, dim3 block, void** arguments, std::size_t shared,
                                        cudaStream_t s) {
  return launch(f, {grid, block, static_cast<unsigned>(shared), true}, arguments, s);
}
/// More dynamic shared memory than the usual is refused at the launch, as is any that a device would not have.
cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) {
  const Lock lock;
  return result(cudaSuccess);
}

}  // extern "C"
