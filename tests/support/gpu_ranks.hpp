// SPDX-License-Identifier: Apache-2.0
// Ranks as threads that each drive a GPU: on a real machine one a rank, emulated all the same.
#pragma once
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <exception>
#include <functional>
#include <string>

#include "runtime/cuda/device.hpp"
#include "runtime/threads/thread_group.hpp"
#include "support/device_seeds.hpp"

namespace gradmeter::test {

/// NCCL refuses two ranks on one GPU.
inline int most_gpu_ranks() {
#ifdef GRADMETER_CUDA_EMULATED
  return 8;
#else
  int devices = 0;
  return cudaGetDeviceCount(&devices) == cudaSuccess ? devices : 0;
#endif
}

/// The text of what a call throws; "no error" where it throws nothing.
inline std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const std::exception& e) {
    return e.what();
  }
  return "no error";
}

struct GpuRank {
  const runtime::Communicator& world;
  runtime::CudaDevice& device;
  runtime::Queue& queue;
};

/// Runs body on `ranks` threads. Rethrows the first exception.
inline void run_gpu_ranks(int ranks, const std::function<void(const GpuRank&)>& body) {
  runtime::run_thread_ranks(ranks, [&](const runtime::Communicator& world) {
#ifdef GRADMETER_CUDA_EMULATED
    runtime::CudaDevice device(0);
#else
    runtime::CudaDevice device(world.rank());
#endif
    const auto queue = device.make_queue();
    body({world, device, *queue});
  });
}

}  // namespace gradmeter::test
