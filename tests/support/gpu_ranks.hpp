// SPDX-License-Identifier: Apache-2.0
// Ranks as threads that each drive a GPU: on a real machine one a rank, emulated all the same.
#pragma once
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <functional>
#include <optional>
#include <string>

#include "core/format.hpp"
#include "runtime/cuda/device.hpp"
#include "runtime/threads/thread_group.hpp"
#include "support/device_seeds.hpp"

namespace gradmeter::test {

/// The most ranks that have a GPU each. On one GPU NCCL refuses two ranks, and kernels of two that wait for each other
/// may hang. The emulated GPU serves eight, or as many as GRADMETER_TEST_GPUS says: "1" shows what a machine with one
/// GPU skips.
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

/// The same for captured calls: a launch of a graph may block those of the process's other GPUs, which it waits for
/// (allreduce::graph_refusal).
inline int most_graph_ranks() {
#ifdef GRADMETER_CUDA_EMULATED
  return most_gpu_ranks();
#else
  return std::min(1, most_gpu_ranks());
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

/// Runs body on `ranks` threads. Rethrows the first exception. Skips the test, with the reason, where there are fewer
/// GPUs; a test that goes on with what the ranks have found asks `lack_of_gpus` itself.
inline void run_gpu_ranks(int ranks, const std::function<void(const GpuRank&)>& body) {
  if (const std::string why = lack_of_gpus(ranks); !why.empty()) GTEST_SKIP() << why;
#ifdef GRADMETER_CUDA_EMULATED
  std::optional<cuda_emulator::SharedDevice> stands_for_all;
  if (ranks > 1) stands_for_all.emplace();
#endif
  runtime::run_thread_ranks(ranks, [&](const runtime::Communicator& world) {
    runtime::CudaDevice device = gpu_of_rank(world.rank());
    const auto queue = device.make_queue();
    body({world, device, *queue});
  });
}

}  // namespace gradmeter::test
