// SPDX-License-Identifier: Apache-2.0
// Calls of CUDA's runtime API about the device and its errors.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "support/cuda_emulator/device.hpp"
#include "support/cuda_emulator/limits.hpp"
#include "support/cuda_emulator/lock.hpp"
#include "support/cuda_emulator/memory.hpp"
#include "support/cuda_emulator/streams.hpp"

using namespace cuda_emulator;

namespace {

cudaError_t checked(cudaError_t e) {
  const Lock lock;
  return result_without_context(e);
}

/// -1: not known here.
int attribute_value(cudaDeviceAttr attribute) {
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock:
      return limits::threads_of_block;
    case cudaDevAttrMaxSharedMemoryPerBlock:
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      return limits::shared_bytes_of_block;
    case cudaDevAttrMultiProcessorCount:
      return limits::multiprocessors;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      return limits::threads_of_multiprocessor;
    case cudaDevAttrMaxBlocksPerMultiprocessor:
      return limits::blocks_of_multiprocessor;
    case cudaDevAttrWarpSize:
      return 32;
    case cudaDevAttrComputeCapabilityMajor:
      return 9;
    case cudaDevAttrAsyncEngineCount:
      return 2;
    case cudaDevAttrL2CacheSize:
      return 1 << 20;  // small: what exceeds it is soon written
    case cudaDevAttrClockRate:
    case cudaDevAttrMemoryClockRate:
      return 1'000'000;  // kHz
    case cudaDevAttrGlobalMemoryBusWidth:
      return 128;
    case cudaDevAttrConcurrentKernels:
    case cudaDevAttrCooperativeLaunch:
    case cudaDevAttrUnifiedAddressing:
    case cudaDevAttrCanMapHostMemory:
    case cudaDevAttrHostRegisterSupported:
    case cudaDevAttrCanUseHostPointerForRegisteredMem:
    case cudaDevAttrMemoryPoolsSupported:
    case cudaDevAttrStreamPrioritiesSupported:
      return 1;
    case cudaDevAttrComputeCapabilityMinor:
    case cudaDevAttrComputeMode:
    case cudaDevAttrIntegrated:
    case cudaDevAttrManagedMemory:
    case cudaDevAttrConcurrentManagedAccess:
    case cudaDevAttrPageableMemoryAccess:
    case cudaDevAttrPciDomainId:
    case cudaDevAttrPciBusId:
    case cudaDevAttrPciDeviceId:
      return 0;
    default:
      return -1;
  }
}

const char* text_of(cudaError_t e) {
  switch (e) {
    case cudaSuccess:
      return "no error";
    case cudaErrorInvalidValue:
      return "invalid argument";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorInvalidConfiguration:
      return "invalid configuration argument";
    case cudaErrorInsufficientDriver:
      return "CUDA driver version is insufficient for CUDA runtime version";
    case cudaErrorInvalidDevice:
      return "invalid device ordinal";
    case cudaErrorInvalidResourceHandle:
      return "invalid resource handle";
    case cudaErrorInvalidDeviceFunction:
      return "invalid device function";
    case cudaErrorNotReady:
      return "device not ready";
    case cudaErrorIllegalAddress:
      return "an illegal memory access was encountered";
    case cudaErrorLaunchTimeout:
      return "the launch timed out and was terminated";
    case cudaErrorLaunchFailure:
      return "unspecified launch failure";
    case cudaErrorCooperativeLaunchTooLarge:
      return "too many blocks in cooperative launch";
    case cudaErrorNotPermitted:
      return "operation not permitted";
    case cudaErrorHostMemoryAlreadyRegistered:
      return "part or all of the requested memory range is already mapped";
    case cudaErrorHostMemoryNotRegistered:
      return "pointer does not correspond to a registered memory region";
    case cudaErrorMapBufferObjectFailed:
      return "mapping of buffer object failed";
    case cudaErrorCapturedEvent:
      return "operation not permitted on an event last recorded in a capturing stream";
    case cudaErrorStreamCaptureUnjoined:
      return "capturing stream has unjoined work";
    case cudaErrorStreamCaptureInvalidated:
      return "operation failed due to a previous error during capture";
    case cudaErrorStreamCaptureUnsupported:
      return "operation not permitted when stream is capturing";
    default:
      return "an error that the emulator does not name";
  }
}

/// As CUDA counts: 12020 is 12.2. By default the runtime's own.
int driver_version() {
  const char* const text = std::getenv("GRADMETER_CUDA_EMULATOR_DRIVER");
  return text ? std::atoi(text) : CUDART_VERSION;
}

}  // namespace

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 0;
  if (driver_version() < CUDART_VERSION) return checked(cudaErrorInsufficientDriver);
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  if (device == 0) note_choice();
  return checked(device == 0 ? cudaSuccess : cudaErrorInvalidDevice);
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int device) {
  if (device != 0) return checked(cudaErrorInvalidDevice);
  *p = {};
  std::snprintf(p->name, sizeof p->name, "emulated: times mean nothing");
  p->totalGlobalMem = device_memory().total;
  p->major = 9;
  p->warpSize = 32;
  p->multiProcessorCount = limits::multiprocessors;
  p->maxThreadsPerBlock = limits::threads_of_block;
  p->maxThreadsPerMultiProcessor = limits::threads_of_multiprocessor;
  p->maxBlocksPerMultiProcessor = limits::blocks_of_multiprocessor;
  p->sharedMemPerBlock = limits::shared_bytes_of_block;
  p->l2CacheSize = attribute_value(cudaDevAttrL2CacheSize);
  p->memoryBusWidth = attribute_value(cudaDevAttrGlobalMemoryBusWidth);
  p->cooperativeLaunch = p->concurrentKernels = p->unifiedAddressing = p->canMapHostMemory = 1;
  p->asyncEngineCount = 2;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  if (device != 0) return checked(cudaErrorInvalidDevice);
  const int known = attribute_value(attribute);
  if (known < 0) {
    report("cudaDeviceGetAttribute: the emulator does not know attribute %d", static_cast<int>(attribute));
    return checked(cudaErrorInvalidValue);
  }
  *value = known;
  return checked(cudaSuccess);
}
cudaError_t cudaDeviceGetPCIBusId(char* id, int length, int device) {
  if (device != 0) return checked(cudaErrorInvalidDevice);
  constexpr char bus[] = "0000:00:00.0";
  if (length < static_cast<int>(sizeof bus)) return checked(cudaErrorInvalidValue);
  std::memcpy(id, bus, sizeof bus);
  return checked(cudaSuccess);
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  if (least) *least = limits::least_priority;
  if (greatest) *greatest = limits::greatest_priority;
  return checked(cudaSuccess);
}
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  const Lock lock;
  const DeviceMemory memory = device_memory();
  *free = memory.total - std::min(memory.used, memory.total);
  *total = memory.total;
  return result(cudaSuccess);
}
/// By threads and shared memory alone: registers are not known here.
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void*, int threads,
                                                          std::size_t shared_bytes) {
  if (threads <= 0 || threads > limits::threads_of_block) return checked(cudaErrorInvalidValue);
  const int by_shared =
      static_cast<int>(limits::shared_bytes_of_multiprocessor / std::max<std::size_t>(shared_bytes, 1));
  *blocks = shared_bytes > limits::shared_bytes_of_block
                ? 0
                : std::min({limits::blocks_of_multiprocessor, limits::threads_of_multiprocessor / threads, by_shared});
  return checked(cudaSuccess);
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = driver_version();
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

const char* cudaGetErrorString(cudaError_t e) { return text_of(e); }
const char* cudaGetErrorName(cudaError_t e) { return e == cudaSuccess ? "cudaSuccess" : "cudaError"; }
cudaError_t cudaGetLastError() {
  const Lock lock;
  return take_last_error();
}
cudaError_t cudaPeekAtLastError() {
  const Lock lock;
  return last_error_now();
}

/// There is one device, and it needs no access to itself.
cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) {
  const Lock lock;
  return result(cudaErrorInvalidDevice);
}

}  // extern "C"
