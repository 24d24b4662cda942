// SPDX-License-Identifier: Apache-2.0
// Calls of CUDA's runtime API about memory.
#include <cuda_runtime_api.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/cuda_emulator/device.hpp"
#include "support/cuda_emulator/emulator.hpp"
#include "support/cuda_emulator/graphs.hpp"
#include "support/cuda_emulator/hardware.hpp"
#include "support/cuda_emulator/lock.hpp"
#include "support/cuda_emulator/memory.hpp"
#include "support/cuda_emulator/running_counts.hpp"
#include "support/cuda_emulator/sanitizers.hpp"
#include "support/cuda_emulator/schedule.hpp"

namespace cuda_emulator {
namespace {

/// Do memory and direction fit?
bool fits(Where to, Where from, cudaMemcpyKind kind) {
  if (to == Where::bad || from == Where::bad) return false;
  if (kind == cudaMemcpyDefault) return true;
  const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  return (to == Where::device) == to_device && (from == Where::device) == from_device;
}

void move_bytes(void* to, const void* from, std::size_t bytes) {
  note_read(from, bytes);
  note_write(to, bytes);
  std::memmove(to, from, bytes);
}

double copy_seconds(std::size_t bytes) { return 8e-6 + static_cast<double>(bytes) / 25e9; }

/// A source in pageable memory is read before the call returns; a target there is written before. cudaMemcpy waits for
/// neither the last part that comes from pageable memory nor for a copy within the device.
cudaError_t copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, Stream* s, bool is_asynchronous) {
  if (!s) return result(cudaErrorInvalidResourceHandle);
  if (bytes == 0) return result(cudaSuccess);
  const Where target = where_is(to, bytes), source = where_is(from, bytes);
  if (!fits(target, source, kind)) {
    report("a copy of %zu bytes: memory and direction do not fit, or it leaves its allocation", bytes);
    return result(cudaErrorInvalidValue);
  }
  const bool is_pageable = target == Where::pageable || source == Where::pageable;
  if (s->capture.graph && (is_pageable || !is_asynchronous)) return result(cudaErrorStreamCaptureUnsupported);
  ++running_counts().copies;
  if (is_asynchronous && is_pageable) ++running_counts().pageable_copies;
  StreamWork work{.run = [=] { move_bytes(to, from, bytes); }, .what = "a copy", .seconds = copy_seconds(bytes)};
  if (source == Where::pageable && target == Where::device) {
    note_read(from, bytes);
    const auto staged = std::make_shared<std::string>(static_cast<const char*>(from), bytes);
    work.run = [=] {
      note_write(to, bytes);
      std::memcpy(to, staged->data(), bytes);
    };
  }
  const MarkPtr done = push(*s, std::move(work));
  if (!is_asynchronous || is_pageable) ++running_counts().waits;  // a device's copy from pageable memory may wait too
  const bool waits =
      target == Where::pageable || (!is_asynchronous && (target == Where::pinned || source == Where::pinned));
  return waits ? wait_for(done) : result(cudaSuccess);
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
  const bool is_pageable = target == Where::pageable || source == Where::pageable;
  if (s->capture.graph && is_pageable) return result(cudaErrorStreamCaptureUnsupported);
  ++running_counts().copies;
  if (is_pageable) ++running_counts().pageable_copies;
  if (is_pageable) ++running_counts().waits;
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
  const auto set = [=] {
    note_write(at, bytes);
    std::memset(at, value, bytes);
  };
  ++running_counts().memsets;
  push(*s, {.run = set, .what = "a memset", .seconds = 5e-6});
  return result(cudaSuccess);
}

/// As a real runtime the call waits for this thread's work, but nobody should rely on it. Another thread's work is not
/// this one's concern.
void wait_for_own_work(const char* call) {
  if (has_failed()) return;  // nothing runs any more
  const auto is_own = [](const QueuedWork& q) { return q.work.run && q.submitted_by == std::this_thread::get_id(); };
  std::vector<MarkPtr> marks;
  for (const auto& s : all_streams()) {
    if (std::ranges::any_of(s->queue, is_own)) marks.push_back(s->last);
  }
  if (!marks.empty()) report("%s while a stream has work: wait for it first", call);
  for (const MarkPtr& m : marks) (void)wait_for(m);
}

cudaError_t malloc_device(void** p, std::size_t bytes) {
  (void)default_stream();
  if (!may_wait()) return result(cudaErrorStreamCaptureUnsupported);
  *p = bytes == 0 ? nullptr : allocate_device(bytes);
  return result(bytes > 0 && !*p ? cudaErrorMemoryAllocation : cudaSuccess);
}

std::uint64_t threshold = 0;  ///< as a device's at first: what is free goes back when a stream is waited for
int the_pool = 0;             ///< only its address counts

bool is_pool(cudaMemPool_t pool) { return static_cast<void*>(pool) == &the_pool; }

}  // namespace

std::uint64_t pool_threshold() {
  const Lock lock;
  return threshold;
}

}  // namespace cuda_emulator

using namespace cuda_emulator;

extern "C" {

cudaError_t cudaMalloc(void** p, std::size_t bytes) {
  const Lock lock;
  ++running_counts().allocations;
  return malloc_device(p, bytes);
}
cudaError_t cudaMallocAsync(void** p, std::size_t bytes, cudaStream_t stream) {
  const Lock lock;
  if (!find_stream(stream)) return result(cudaErrorInvalidResourceHandle);
  return malloc_device(p, bytes);
}
cudaError_t cudaFree(void* p) {
  const Lock lock;
  ++running_counts().allocations;
  if (!p) return result(cudaSuccess);
  if (!may_wait()) return result(cudaErrorStreamCaptureUnsupported);
  wait_for_own_work("cudaFree");
  if (hardware_now().frees_wait) (void)wait_for_waiting_kernels("cudaFree");
  if (free_device(p)) return result(cudaSuccess);
  report("cudaFree of %p, which is no allocation", p);
  return result(cudaErrorInvalidValue);
}
cudaError_t cudaFreeAsync(void* p, cudaStream_t stream) {
  const Lock lock;
  Stream* const s = find_stream(stream);
  if (!s) return result(cudaErrorInvalidResourceHandle);
  if (!p) return result(cudaSuccess);
  if (device_allocation_of(p) != p) return result(cudaErrorInvalidValue);
  push(*s, {.run = [p] { (void)free_device(p); }, .what = "cudaFreeAsync"});
  return result(cudaSuccess);
}
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
  const Lock lock;
  *pool = reinterpret_cast<cudaMemPool_t>(&the_pool);
  return result(device == 0 ? cudaSuccess : cudaErrorInvalidDevice);
}
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  const Lock lock;
  if (!is_pool(pool) || attribute != cudaMemPoolAttrReleaseThreshold) return result(cudaErrorInvalidValue);
  threshold = *static_cast<std::uint64_t*>(value);
  return result(cudaSuccess);
}
/// The pool here keeps nothing.
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, std::size_t) {
  const Lock lock;
  return result(is_pool(pool) ? cudaSuccess : cudaErrorInvalidValue);
}
cudaError_t cudaHostAlloc(void** p, std::size_t bytes, unsigned) {
  const Lock lock;
  ++running_counts().allocations;
  if (!may_wait()) return result(cudaErrorStreamCaptureUnsupported);
  *p = allocate_pinned(bytes);
  return result(*p ? cudaSuccess : cudaErrorMemoryAllocation);
}
cudaError_t cudaHostRegister(void* p, std::size_t bytes, unsigned) {
  const Lock lock;
  ++running_counts().allocations;
  if (!may_wait()) return result(cudaErrorStreamCaptureUnsupported);
  if (!p || bytes == 0 || where_is(p, bytes) == Where::device) return result(cudaErrorInvalidValue);
  return result(register_pinned(p, bytes) ? cudaSuccess : cudaErrorHostMemoryAlreadyRegistered);
}
cudaError_t cudaHostUnregister(void* p) {
  const Lock lock;
  ++running_counts().allocations;
  wait_for_own_work("cudaHostUnregister");
  return result(unregister_pinned(p) ? cudaSuccess : cudaErrorHostMemoryNotRegistered);
}
/// The same address: kernels touch the host's memory where it is.
cudaError_t cudaHostGetDevicePointer(void** device, void* p, unsigned) {
  const Lock lock;
  if (where_is(p, 1) != Where::pinned) return result(cudaErrorInvalidValue);
  *device = p;
  return result(cudaSuccess);
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* a, const void* p) {
  const Lock lock;
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
  const Lock lock;
  ++running_counts().allocations;
  if (!may_wait()) return result(cudaErrorStreamCaptureUnsupported);
  return result(!p || free_pinned(p) ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t n, cudaMemcpyKind kind, cudaStream_t stream) {
  const Lock lock;
  return copy(to, from, n, kind, find_stream(stream), true);
}
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t n, cudaMemcpyKind kind) {
  const Lock lock;
  (void)default_stream();
  if (!may_wait()) return result(cudaErrorStreamCaptureUnsupported);
  return copy(to, from, n, kind, find_stream(nullptr), false);
}
cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                              std::size_t width, std::size_t height, cudaMemcpyKind kind, cudaStream_t stream) {
  const Lock lock;
  return copy_rows(to, {to_pitch, width, height}, from, {from_pitch, width, height}, kind, find_stream(stream));
}
cudaError_t cudaMemsetAsync(void* at, int value, std::size_t bytes, cudaStream_t stream) {
  const Lock lock;
  return fill(at, value, bytes, find_stream(stream));
}
/// Returns before it is done, as on a device.
cudaError_t cudaMemset(void* at, int value, std::size_t bytes) {
  const Lock lock;
  return fill(at, value, bytes, find_stream(nullptr));
}

// A handle holds the pages' place in a file, which the other process opens through /proc.
static_assert(sizeof(SharedPages) <= sizeof(cudaIpcMemHandle_t));

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* p) {
  const Lock lock;
  SharedPages pages;
  if (!share_device_memory(p, pages)) {
    report("cudaIpcGetMemHandle wants the beginning of an allocation of this process");
    return result(cudaErrorInvalidValue);
  }
  *handle = {};
  std::memcpy(handle, &pages, sizeof pages);
  return result(cudaSuccess);
}
/// Not in the process that made it; only with cudaIpcMemLazyEnablePeerAccess. Both as the real one.
cudaError_t cudaIpcOpenMemHandle(void** p, cudaIpcMemHandle_t handle, unsigned flags) {
  const Lock lock;
  (void)default_stream();
  SharedPages pages;
  std::memcpy(static_cast<void*>(&pages), &handle, sizeof pages);
  if (flags != cudaIpcMemLazyEnablePeerAccess) return result(cudaErrorInvalidValue);
  if (pages.process == getpid()) return result(cudaErrorDeviceUninitialized);
  *p = open_device_memory(pages);
  return result(*p ? cudaSuccess : cudaErrorMapBufferObjectFailed);
}
cudaError_t cudaIpcCloseMemHandle(void* p) {
  const Lock lock;
  wait_for_own_work("cudaIpcCloseMemHandle");
  return result(close_device_memory(p) ? cudaSuccess : cudaErrorInvalidValue);
}

}  // extern "C"
