// SPDX-License-Identifier: Apache-2.0
// Ranks as threads that each drive a GPU: on a real machine one a rank, emulated all the same.
#pragma once
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <exception>
#include <functional>
#include <string>

#include "core/format.hpp"
#include "runtime/cuda/device.hpp"
#include "runtime/threads/thread_group.hpp"
#include "support/device_seeds.hpp"

namespace gradmeter::test {

/// The most ranks that have a GPU each. On one GPU NCCL refuses two ranks, and kernels of two that wait for each other may
/// hang. The emulated GPU serves eight, or as many as GRADMETER_TEST_GPUS says: "1" shows what a machine with one GPU skips.
inline int most_gpu_ranks() {
#ifdef GRADMETER_CUDA_EMULATED
  const char* const wanted = std::getenv("GRADMETER_TEST_GPUS");
  return wanted ? std::atoi(wanted) : 8;
#else
  int devices = 0;
  return cudaGetDeviceCount(&devices) == cudaSuccess ? devices : 0;
#endif
}

/// Why so many ranks cannot have a GPU each; empty: they can.
inline std::string lack_of_gpus(int ranks) {
  const int gpus = most_gpu_ranks();
  if (ranks <= gpus) return {};
  return fmt::format("{} ranks need a GPU each, and this machine has {}", ranks, gpus);
}

/// Errors: BackendError where this rank has none.
inline runtime::CudaDevice gpu_of_rank(int rank) {
#ifdef GRADMETER_CUDA_EMULATED
  return runtime::CudaDevice(rank < most_gpu_ranks() ? 0 : rank);
#else
  return runtime::CudaDevice(rank);
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

/// Runs body on `ranks` threads. Rethrows the first exception. Skips the test, with the reason, where there are fewer GPUs;
/// a test that goes on with what the ranks have found asks `lack_of_gpus` itself.
inline void run_gpu_ranks(int ranks, const std::function<void(const GpuRank&)>& body) {
  if (const std::string why = lack_of_gpus(ranks); !why.empty()) GTEST_SKIP() << why;
  runtime::run_thread_ranks(ranks, [&](const runtime::Communicator& world) {
    runtime::CudaDevice device = gpu_of_rank(world.rank());
    const auto queue = device.make_queue();
    body({world, device, *queue});
  });
}

}  // namespace gradmeter::test
