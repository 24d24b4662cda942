// CUDA's runtime API, as far as gradmeter calls it.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "support/cuda_emulator/emulator.hpp"
#include "support/cuda_emulator/grid.hpp"
#include "support/cuda_emulator/limits.hpp"
#include "support/cuda_emulator/memory.hpp"
#include "support/cuda_emulator/order.hpp"
#include "support/cuda_emulator/streams.hpp"

namespace cuda_emulator {
namespace {

struct Event {
  MarkPtr mark = {};  ///< null: never recorded, which counts as done
  bool has_time = true;
};

std::unordered_map<const void*, Binder> kernels;
std::set<Event*> events;
Counts tally;

using Lock = std::lock_guard<std::recursive_mutex>;

Event* find_event(cudaEvent_t handle) {
  auto* const e = reinterpret_cast<Event*>(handle);
  if (events.contains(e)) return e;
  report("an event that was destroyed, or never made, is used");
  return nullptr;
}

/// Do memory and direction fit?
bool fits(Where to, Where from, cudaMemcpyKind kind) {
  if (to == Where::bad || from == Where::bad) return false;
  if (kind == cudaMemcpyDefault) return true;
  const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  return (to == Where::device) == to_device && (from == Where::device) == from_device;
}

double copy_seconds(std::size_t bytes) { return 8e-6 + static_cast<double>(bytes) / 25e9; }

/// A source in pageable memory is read before the call returns; a target there is written before.
cudaError_t copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, Stream* s, bool is_asynchronous) {
  if (!s) return result(cudaErrorInvalidResourceHandle);
  if (bytes == 0) return result(cudaSuccess);
  const Where target = where_is(to, bytes), source = where_is(from, bytes);
  if (!fits(target, source, kind)) {
    report("a copy of %zu bytes: memory and direction do not fit, or it leaves its allocation", bytes);
    return result(cudaErrorInvalidValue);
  }
  ++tally.copies;
  const bool is_pageable = target == Where::pageable || source == Where::pageable;
  if (is_asynchronous && is_pageable) ++tally.pageable_copies;
  StreamWork work{[=] { std::memmove(to, from, bytes); }, "a copy", copy_seconds(bytes)};
  if (source == Where::pageable && target == Where::device) {
    const auto staged = std::make_shared<std::string>(static_cast<const char*>(from), bytes);
    work.run = [=] { std::memcpy(to, staged->data(), bytes); };
  }
  const MarkPtr done = push(*s, std::move(work));
  return is_asynchronous && target != Where::pageable ? result(cudaSuccess) : wait_for(done);
}

struct Rows {
  std::size_t pitch = 0, width = 0, count = 0;
  std::size_t extent() const { return (count - 1) * pitch + width; }
};

/// Rows of host memory that is not pinned are copied before the call returns.
cudaError_t copy_rows(void* to, const Rows& t, const void* from, const Rows& f, cudaMemcpyKind kind, Stream* s) {
  if (!s) return result(cudaErrorInvalidResourceHandle);
  if (t.width == 0 || t.count == 0) return result(cudaSuccess);
  const Where target = where_is(to, t.extent()), source = where_is(from, f.extent());
  if (t.width > t.pitch || f.width > f.pitch || !fits(target, source, kind)) {
    report("a copy of %zu rows: memory and direction do not fit, or it leaves its allocation", t.count);
    return result(cudaErrorInvalidValue);
  }
  ++tally.copies;
  const bool is_pageable = target == Where::pageable || source == Where::pageable;
  if (is_pageable) ++tally.pageable_copies;
  const auto run = [=] {
    for (std::size_t i = 0; i < t.count; ++i) {
      std::memcpy(static_cast<std::byte*>(to) + i * t.pitch, static_cast<const std::byte*>(from) + i * f.pitch,
                  t.width);
    }
  };
  const MarkPtr done = push(*s, {.run = run, .what = "a copy of rows", .seconds = copy_seconds(t.width * t.count)});
  return is_pageable ? wait_for(done) : result(cudaSuccess);
}

cudaError_t fill(void* at, int value, std::size_t bytes, Stream* s) {
  if (!s) return result(cudaErrorInvalidResourceHandle);
  if (bytes == 0) return result(cudaSuccess);
  if (where_is(at, bytes) != Where::device) {
    report("a memset of %zu bytes that are not of one allocation", bytes);
    return result(cudaErrorInvalidValue);
  }
  push(*s, {.run = [=] { std::memset(at, value, bytes); }, .what = "a memset", .seconds = 5e-6});
  return result(cudaSuccess);
}

cudaError_t launch(const void* function, const GridShape& shape, void** arguments, cudaStream_t stream) {
  const Lock lock(runtime_mutex());
  const auto kernel = kernels.find(function);
  if (kernel == kernels.end()) return result(cudaErrorInvalidDeviceFunction);
  Stream* const s = find_stream(stream);
  if (!s) return result(cudaErrorInvalidResourceHandle);
  const auto& [grid, block] = std::pair(shape.grid, shape.block);
  const std::uint64_t threads = std::uint64_t{block.x} * block.y * block.z;
  const std::uint64_t blocks = std::uint64_t{grid.x} * grid.y * grid.z;
  constexpr std::uint64_t most_threads = limits::threads_of_block, most_shared = limits::shared_bytes_of_block,
                          most_resident = limits::multiprocessors * limits::threads_of_multiprocessor;
  if (threads == 0 || threads > most_threads || blocks == 0 || grid.y > 65535 || grid.z > 65535 ||
      shape.shared_bytes > most_shared) {
    return result(cudaErrorInvalidConfiguration);
  }
  if (shape.cooperative && threads * blocks > most_resident) return result(cudaErrorCooperativeLaunchTooLarge);
  ++tally.kernels;
  push(*s, {.run = [shape, call = kernel->second(function, arguments)] { run_grid(call, shape); },
            .what = "a kernel",
            .seconds = 5e-6 + 6e-11 * static_cast<double>(threads * blocks)});
  return result(cudaSuccess);
}

}  // namespace

void know_kernel(const void* function, Binder binder) {
  const Lock lock(runtime_mutex());
  kernels.emplace(function, binder);
}

Counts counts() {
  const Lock lock(runtime_mutex());
  tally.threads = threads_run();
  return tally;
}

}  // namespace cuda_emulator

using namespace cuda_emulator;

extern "C" {

cudaError_t cudaMalloc(void** p, std::size_t bytes) {
  const Lock lock(runtime_mutex());
  (void)find_stream(nullptr);
  *p = bytes == 0 ? nullptr : allocate_device(bytes);
  return result(bytes > 0 && !*p ? cudaErrorMemoryAllocation : cudaSuccess);
}
cudaError_t cudaFree(void* p) {
  const Lock lock(runtime_mutex());
  if (!p) return result(cudaSuccess);
  if (has_work_of_this_thread() && run_one(nullptr)) report("cudaFree while a stream has work: wait for it first");
  if (free_device(p)) return result(cudaSuccess);
  report("cudaFree of %p, which is no allocation", p);
  return result(cudaErrorInvalidValue);
}
cudaError_t cudaMallocAsync(void** p, std::size_t bytes, cudaStream_t stream) {
  const Lock lock(runtime_mutex());
  if (!find_stream(stream)) return result(cudaErrorInvalidResourceHandle);
  return cudaMalloc(p, bytes);
}
cudaError_t cudaFreeAsync(void* p, cudaStream_t stream) {
  const Lock lock(runtime_mutex());
  Stream* const s = find_stream(stream);
  if (!s) return result(cudaErrorInvalidResourceHandle);
  if (!p) return result(cudaSuccess);
  if (device_allocation_of(p) != p) return result(cudaErrorInvalidValue);
  push(*s, {.run = [p] { (void)free_device(p); }, .what = "cudaFreeAsync"});
  return result(cudaSuccess);
}
cudaError_t cudaHostAlloc(void** p, std::size_t bytes, unsigned) {
  const Lock lock(runtime_mutex());
  *p = allocate_pinned(bytes);
  return result(*p ? cudaSuccess : cudaErrorMemoryAllocation);
}
cudaError_t cudaHostRegister(void* p, std::size_t bytes, unsigned) {
  const Lock lock(runtime_mutex());
  if (!p || bytes == 0 || where_is(p, bytes) == Where::device) return result(cudaErrorInvalidValue);
  return result(register_pinned(p, bytes) ? cudaSuccess : cudaErrorHostMemoryAlreadyRegistered);
}
cudaError_t cudaHostUnregister(void* p) {
  const Lock lock(runtime_mutex());
  if (has_work_of_this_thread() && run_one(nullptr)) report("cudaHostUnregister while a stream has work: wait for it first");
  return result(unregister_pinned(p) ? cudaSuccess : cudaErrorHostMemoryNotRegistered);
}
/// The same address: kernels touch the host's memory where it is.
cudaError_t cudaHostGetDevicePointer(void** device, void* p, unsigned) {
  const Lock lock(runtime_mutex());
  if (where_is(p, 1) != Where::pinned) return result(cudaErrorInvalidValue);
  *device = p;
  return result(cudaSuccess);
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* a, const void* p) {
  const Lock lock(runtime_mutex());
  const Where where = where_is(p, 1);
  auto* const at = const_cast<void*>(p);
  const bool on_device = where == Where::device, pinned = where == Where::pinned;
  *a = {};
  a->type = on_device ? cudaMemoryTypeDevice : pinned ? cudaMemoryTypeHost : cudaMemoryTypeUnregistered;
  a->device = on_device || pinned ? 0 : cudaInvalidDeviceId;
  a->devicePointer = on_device || pinned ? at : nullptr;
  a->hostPointer = on_device ? nullptr : at;
  return result(where == Where::bad ? cudaErrorInvalidValue : cudaSuccess);
}
cudaError_t cudaMallocHost(void** p, std::size_t bytes) { return cudaHostAlloc(p, bytes, cudaHostAllocDefault); }
cudaError_t cudaFreeHost(void* p) {
  const Lock lock(runtime_mutex());
  return result(!p || free_pinned(p) ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t n, cudaMemcpyKind kind, cudaStream_t stream) {
  const Lock lock(runtime_mutex());
  return copy(to, from, n, kind, find_stream(stream), true);
}
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t n, cudaMemcpyKind kind) {
  const Lock lock(runtime_mutex());
  return copy(to, from, n, kind, find_stream(nullptr), false);
}
cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                              std::size_t width, std::size_t height, cudaMemcpyKind kind, cudaStream_t stream) {
  const Lock lock(runtime_mutex());
  return copy_rows(to, {to_pitch, width, height}, from, {from_pitch, width, height}, kind, find_stream(stream));
}
cudaError_t cudaMemsetAsync(void* at, int value, std::size_t bytes, cudaStream_t stream) {
  const Lock lock(runtime_mutex());
  return fill(at, value, bytes, find_stream(stream));
}
/// Returns before it is done, as on a device.
cudaError_t cudaMemset(void* at, int value, std::size_t bytes) {
  const Lock lock(runtime_mutex());
  return fill(at, value, bytes, find_stream(nullptr));
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* s, unsigned flags) {
  const Lock lock(runtime_mutex());
  *s = reinterpret_cast<cudaStream_t>(make_stream((flags & cudaStreamNonBlocking) == 0));
  return result(cudaSuccess);
}
/// Priorities are hints: the order does not heed them.
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* s, unsigned flags, int) {
  return cudaStreamCreateWithFlags(s, flags);
}
cudaError_t cudaStreamCreate(cudaStream_t* s) { return cudaStreamCreateWithFlags(s, cudaStreamDefault); }
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const Lock lock(runtime_mutex());
  Stream* const s = find_stream(stream);
  if (!s) return result(cudaErrorInvalidResourceHandle);
  destroy_stream(s);
  return result(cudaSuccess);
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  const Lock lock(runtime_mutex());
  const Stream* const s = find_stream(stream);
  return s ? wait_for(last_of(*s)) : result(cudaErrorInvalidResourceHandle);
}
/// Each question lets one piece of work run, so that who asks again and again gets on.
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  const Lock lock(runtime_mutex());
  const Stream* const s = find_stream(stream);
  if (!s) return result(cudaErrorInvalidResourceHandle);
  const MarkPtr last = last_of(*s);
  if (last && !last->done) (void)run_needed(*s);
  return result(!last || last->done ? cudaSuccess : cudaErrorNotReady);
}
cudaError_t cudaDeviceSynchronize() {
  const Lock lock(runtime_mutex());
  return wait_for_all();
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  const Lock lock(runtime_mutex());
  Stream* const s = find_stream(stream);
  if (!s) return result(cudaErrorInvalidResourceHandle);
  push(*s, {.run = [=] { function(data); }, .what = "a host function", .seconds = 5e-6, .is_host = true});
  return result(cudaSuccess);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* e, unsigned flags) {
  const Lock lock(runtime_mutex());
  auto* const event = new Event{.has_time = (flags & cudaEventDisableTiming) == 0};
  events.insert(event);
  *e = reinterpret_cast<cudaEvent_t>(event);
  return result(cudaSuccess);
}
cudaError_t cudaEventCreate(cudaEvent_t* e) { return cudaEventCreateWithFlags(e, cudaEventDefault); }
cudaError_t cudaEventDestroy(cudaEvent_t e) {
  const Lock lock(runtime_mutex());
  Event* const event = find_event(e);
  if (!event) return result(cudaErrorInvalidResourceHandle);
  events.erase(event);
  delete event;
  return result(cudaSuccess);
}
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t stream) {
  const Lock lock(runtime_mutex());
  Event* const event = find_event(e);
  Stream* const s = find_stream(stream);
  if (!event || !s) return result(cudaErrorInvalidResourceHandle);
  event->mark = push(*s, {.run = [] {}, .what = "cudaEventRecord"});
  return result(cudaSuccess);
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t e, unsigned) {
  const Lock lock(runtime_mutex());
  const Event* const event = find_event(e);
  Stream* const s = find_stream(stream);
  if (!event || !s) return result(cudaErrorInvalidResourceHandle);
  if (event->mark) push(*s, {.run = [] {}, .what = "cudaStreamWaitEvent"}, {event->mark});
  return result(cudaSuccess);
}
cudaError_t cudaEventQuery(cudaEvent_t e) {
  const Lock lock(runtime_mutex());
  const Event* const event = find_event(e);
  if (!event) return result(cudaErrorInvalidResourceHandle);
  if (event->mark && !event->mark->done) (void)run_needed(*event->mark->stream);
  return result(!event->mark || event->mark->done ? cudaSuccess : cudaErrorNotReady);
}
cudaError_t cudaEventSynchronize(cudaEvent_t e) {
  const Lock lock(runtime_mutex());
  const Event* const event = find_event(e);
  return event ? wait_for(event->mark) : result(cudaErrorInvalidResourceHandle);
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t begin, cudaEvent_t end) {
  const Lock lock(runtime_mutex());
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

}  // extern "C"
