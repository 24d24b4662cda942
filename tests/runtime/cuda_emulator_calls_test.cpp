// SPDX-License-Identifier: Apache-2.0
// The calls of the emulated CUDA runtime that say something or change something beside streams.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "runtime/cuda/handles.hpp"
#include "support/cuda_emulator/emulator.hpp"
#include "support/on_device.hpp"

namespace gradmeter::runtime {
namespace {

using cuda_emulator::set_seed, cuda_emulator::take_reports;

TEST(CudaEmulatorCalls, RegisteredMemoryIsPinned) {
  set_seed(0);
  const Stream stream;
  std::vector<float> values(100, 1.0f);
  const std::size_t bytes = values.size() * sizeof(float);
  DeviceBuffer<float> device(values.size());
  EXPECT_EQ(cudaHostUnregister(values.data()), cudaErrorHostMemoryNotRegistered);
  ASSERT_EQ(cudaHostRegister(values.data(), bytes, cudaHostRegisterDefault), cudaSuccess);
  EXPECT_EQ(cudaHostRegister(values.data() + 5, 4, 0), cudaErrorHostMemoryAlreadyRegistered);
  const auto pageable = cuda_emulator::counts().pageable_copies;
  copy<float>(device.span(), values, stream);
  EXPECT_EQ(cuda_emulator::counts().pageable_copies, pageable);
  void* seen = nullptr;
  EXPECT_EQ(cudaHostGetDevicePointer(&seen, values.data(), 0), cudaSuccess);
  EXPECT_EQ(seen, values.data());
  stream.synchronize();
  EXPECT_EQ(cudaFreeHost(values.data()), cudaErrorInvalidValue) << "it was not allocated there";
  EXPECT_EQ(cudaHostUnregister(values.data()), cudaSuccess);
  EXPECT_EQ(cudaHostGetDevicePointer(&seen, values.data(), 0), cudaErrorInvalidValue);
  EXPECT_TRUE(take_reports().empty());
  (void)cudaGetLastError();
}

TEST(CudaEmulatorCalls, PointersHaveKinds) {
  float pageable = 0;
  const DeviceBuffer<float> device(4);
  void* pinned = nullptr;
  ASSERT_EQ(cudaMallocHost(&pinned, 8), cudaSuccess);
  cudaPointerAttributes a = {};
  EXPECT_EQ(cudaPointerGetAttributes(&a, &pageable), cudaSuccess);
  EXPECT_EQ(a.type, cudaMemoryTypeUnregistered);
  EXPECT_EQ(cudaPointerGetAttributes(&a, pinned), cudaSuccess);
  EXPECT_EQ(a.type, cudaMemoryTypeHost);
  EXPECT_EQ(cudaPointerGetAttributes(&a, device.span().device_address() + 1), cudaSuccess);
  EXPECT_EQ(a.type, cudaMemoryTypeDevice);
  EXPECT_EQ(a.devicePointer, device.span().device_address() + 1);
  EXPECT_EQ(cudaFreeHost(pinned), cudaSuccess);
}

TEST(CudaEmulatorCalls, MemoryEnds) {
  cuda_emulator::set_device_memory(1 << 20);
  std::size_t free = 0, total = 0;
  EXPECT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
  EXPECT_EQ(total, 1u << 20);
  const std::size_t before = free;
  {
    const DeviceBuffer<std::byte> some(1000);
    EXPECT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
    EXPECT_EQ(free, before - 1000);
    EXPECT_THROW(DeviceBuffer<std::byte>{std::size_t{1} << 20}, core::BackendError);
  }
  EXPECT_EQ(DeviceBuffer<std::byte>{before}.size(), before);
  cuda_emulator::set_device_memory(std::size_t{1} << 34);
}

TEST(CudaEmulatorCalls, MemoryOfStreamsLivesUntilItsStreamGetsThere) {
  set_seed(0);
  const Stream stream;
  void* p = nullptr;
  ASSERT_EQ(cudaMallocAsync(&p, 64, stream.get()), cudaSuccess);
  EXPECT_EQ(cudaMemsetAsync(p, 7, 64, stream.get()), cudaSuccess);
  std::array<std::uint8_t, 64> back = {};
  void* pinned = nullptr;
  ASSERT_EQ(cudaHostAlloc(&pinned, 64, cudaHostAllocDefault), cudaSuccess);
  EXPECT_EQ(cudaMemcpyAsync(pinned, p, 64, cudaMemcpyDeviceToHost, stream.get()), cudaSuccess);
  EXPECT_EQ(cudaFreeAsync(p, stream.get()), cudaSuccess);
  stream.synchronize();
  std::copy_n(static_cast<const std::uint8_t*>(pinned), back.size(), back.begin());
  EXPECT_EQ(std::accumulate(back.begin(), back.end(), 0), 7 * 64);
  EXPECT_EQ(cudaMemset(p, 0, 64), cudaErrorInvalidValue) << "it is freed";
  EXPECT_EQ(cudaFreeHost(pinned), cudaSuccess);
  EXPECT_EQ(take_reports().size(), 1u);
}

TEST(CudaEmulatorCalls, RowsAreCopied) {
  const Stream stream;
  std::vector<int> rows(6 * 10);
  std::iota(rows.begin(), rows.end(), 0);
  DeviceBuffer<int> device(6 * 4);
  ASSERT_EQ(cudaMemcpy2DAsync(device.span().device_address(), 4 * sizeof(int), rows.data() + 3, 10 * sizeof(int),
                              4 * sizeof(int), 6, cudaMemcpyHostToDevice, stream.get()),
            cudaSuccess);
  const auto back = test::read_back<int>(device.span(), stream);
  for (int row = 0; row < 6; ++row) {
    for (int i = 0; i < 4; ++i) EXPECT_EQ(back[static_cast<std::size_t>(4 * row + i)], 10 * row + 3 + i);
  }
  EXPECT_EQ(cudaMemcpy2DAsync(device.span().device_address(), 4 * sizeof(int), rows.data(), 10 * sizeof(int),
                              4 * sizeof(int), 7, cudaMemcpyHostToDevice, stream.get()),
            cudaErrorInvalidValue)
      << "one row too many";
  EXPECT_EQ(take_reports().size(), 1u);
  (void)cudaGetLastError();
}

TEST(CudaEmulatorCalls, HostFunctionsRunInTheirStreamAndMayNotCallCuda) {
  for (const unsigned seed : {0u, 1u, 2u}) {
    set_seed(seed);
    const Stream stream;
    struct State {
      float value = 0;
      cudaError_t error = cudaSuccess;
    } state;
    void* pinned = nullptr;
    ASSERT_EQ(cudaMallocHost(&pinned, sizeof(float)), cudaSuccess);
    const auto device = test::on_device<float>(std::vector<float>{3}, stream);
    copy<float>(std::span<float>(static_cast<float*>(pinned), 1), device.span(), stream);
    struct Both {
      State* state;
      const float* pinned;
    } both{&state, static_cast<const float*>(pinned)};
    ASSERT_EQ(cudaLaunchHostFunc(
                  stream.get(),
                  [](void* p) {
                    const auto& b = *static_cast<Both*>(p);
                    b.state->value = *b.pinned;
                    b.state->error = cudaDeviceSynchronize();
                  },
                  &both),
              cudaSuccess);
    stream.synchronize();
    EXPECT_EQ(state.value, 3) << seed;
    EXPECT_EQ(state.error, cudaErrorNotPermitted);
    EXPECT_EQ(cudaFreeHost(pinned), cudaSuccess);
    EXPECT_EQ(take_reports().size(), 1u);
  }
}

/// The mistake is cudaMemcpy, whose last part is under way when it returns, and whose stream no other one waits for.
TEST(CudaEmulatorCalls, ACopyFromPageableMemoryHasNotEndedWhenItReturns) {
  const std::vector<float> values(100, 3.0f);
  for (const bool waits : {true, false}) {
    set_seed(0);
    const Stream reader;
    DeviceBuffer<float> to(values.size());
    auto* const address = reinterpret_cast<std::byte*>(to.span().device_address());
    if (waits) {
      upload(DeviceSpan<std::byte>(address, to.span().bytes()), std::as_bytes(std::span(values)));
    } else {
      ASSERT_EQ(cudaMemcpy(address, values.data(), to.span().bytes(), cudaMemcpyHostToDevice), cudaSuccess);
    }
    EXPECT_EQ(test::read_back<float>(to.span(), reader) == values, waits);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }
  EXPECT_TRUE(take_reports().empty());
}

TEST(CudaEmulatorCalls, AThreadThatHasChosenNoGpuIsReported) {
  set_seed(0);
  const CudaEvent event;
  for (const bool chooses : {true, false}) {
    const auto before = cuda_emulator::counts().unchosen;
    std::jthread([&] {
      int devices = 0;
      EXPECT_EQ(cudaGetDeviceCount(&devices), cudaSuccess) << "needs no context";
      if (chooses) {
        EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
      }
      EXPECT_TRUE(event.done());
    }).join();
    EXPECT_EQ(cuda_emulator::counts().unchosen - before, chooses ? 0 : 1);
    EXPECT_EQ(take_reports().size(), chooses ? 0U : 1U);
  }
}

TEST(CudaEmulatorCalls, TheDeviceSaysWhatItIs) {
  int least = 1, greatest = 1, value = 0, blocks = 0;
  EXPECT_EQ(cudaDeviceGetStreamPriorityRange(&least, &greatest), cudaSuccess);
  EXPECT_LT(greatest, least);
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
  EXPECT_EQ(cudaDeviceGetAttribute(&value, cudaDevAttrCooperativeLaunch, 0), cudaSuccess);
  EXPECT_EQ(value, 1);
  EXPECT_EQ(cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, 1), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, nullptr, 512, 0), cudaSuccess);
  EXPECT_EQ(blocks, 4);
  std::array<char, 32> bus = {};
  EXPECT_EQ(cudaDeviceGetPCIBusId(bus.data(), static_cast<int>(bus.size()), 0), cudaSuccess);
  EXPECT_EQ(std::string(bus.data()), "0000:00:00.0");
  (void)cudaGetLastError();
}

}  // namespace
}  // namespace gradmeter::runtime
