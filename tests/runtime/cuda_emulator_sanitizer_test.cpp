// SPDX-License-Identifier: Apache-2.0
// What the sanitizers find over the emulated CUDA runtime. Each test makes a mistake in a process of its own; that they
// find nothing where there is none is what all other device tests show. Without a sanitizer a part is found too.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "runtime/cuda/handles.hpp"
#include "runtime/cuda/launch.hpp"
#include "support/cuda_emulator/emulator.hpp"
#include "support/on_device.hpp"

namespace gradmeter::runtime {
namespace {

using cuda_emulator::set_seed;

constexpr unsigned few = 40;

[[maybe_unused]] __global__ void write_at(std::uint8_t* bytes, int at) { bytes[at] = 1; }
[[maybe_unused]] __global__ void read_at(const std::uint8_t* bytes, int at, std::uint8_t* out) { *out = bytes[at]; }

[[maybe_unused]] __global__ void write_shared(int at, std::uint8_t* out) {
  GPU_SHARED(std::uint8_t, bytes, [13]);
  bytes[at] = 1;
  *out = bytes[0];
}
[[maybe_unused]] __global__ void write_dynamic_shared(int at) { gpu::dynamic_shared<std::uint8_t>()[at] = 1; }

__global__ void turn_round(int* out, bool waits) {
  GPU_SHARED(int, numbers, [few]);
  numbers[threadIdx.x] = static_cast<int>(threadIdx.x);
  if (waits) __syncthreads();
  out[threadIdx.x] = numbers[blockDim.x - 1 - threadIdx.x];
}

/// Values in shared memory that the warp's lanes read: shuffles order nothing, __syncwarp does.
__global__ void shift_in_warp(int* out, bool waits) {
  GPU_SHARED(int, numbers, [32]);
  numbers[threadIdx.x] = static_cast<int>(__shfl_xor_sync(~0u, threadIdx.x, 1));
  if (waits) __syncwarp();
  out[threadIdx.x] = numbers[(threadIdx.x + 1) % 32];
}

__global__ void write_block(int* out, bool apart) {
  if (threadIdx.x == 0) out[apart ? blockIdx.x : 0] = 7;  // the same value: the result is right either way
}

__global__ void sum_blocks(int* parts, int* out, bool waits) {
  if (threadIdx.x == 0) parts[blockIdx.x] = 1;
  if (waits) gpu::grid_barrier();
  if (blockIdx.x != 0 || threadIdx.x != 0) return;
  *out = 0;
  for (unsigned b = 0; b < gridDim.x; ++b) *out += parts[b];
}

__global__ void add_one_to(float* values) { values[threadIdx.x] += 1; }

/// Launches and waits.
template <class... P>
void run(const gpu::Shape& shape, void (*kernel)(P...), std::type_identity_t<P>... arguments) {
  const Stream stream;
  check_cuda(gpu::launch(kernel, shape, stream.get(), arguments...), "a kernel");
  stream.synchronize();
}

[[maybe_unused]] void miss_a_barrier(bool right) {
  DeviceBuffer<int> out(few);
  run({.grid = dim3(1), .block = dim3(few)}, turn_round, out.span().device_address(), right);
}
[[maybe_unused]] void miss_a_warp_barrier(bool right) {
  DeviceBuffer<int> out(32);
  run({.grid = dim3(1), .block = dim3(32)}, shift_in_warp, out.span().device_address(), right);
}
[[maybe_unused]] void write_one_place_from_two_blocks(bool right) {
  DeviceBuffer<int> out(2);
  run({.grid = dim3(2), .block = dim3(32)}, write_block, out.span().device_address(), right);
}
[[maybe_unused]] void miss_a_grid_barrier(bool right) {
  DeviceBuffer<int> parts(4), out(1);
  run({.grid = dim3(4), .block = dim3(32), .cooperative = true}, sum_blocks, parts.span().device_address(),
      out.span().device_address(), right);
}

/// The copy runs after the kernel at seed 0, so that the result is right without the event too.
[[maybe_unused]] void miss_an_event(bool right) {
  const Stream writer, reader;
  const CudaEvent written;
  DeviceBuffer<float> values(few), copied(few);
  check_cuda(
      gpu::launch(add_one_to, {.grid = dim3(1), .block = dim3(few)}, writer.get(), values.span().device_address()),
      "add_one_to");
  written.record(writer);
  if (right) reader.wait(written);
  copy<float>(copied.span(), values.span(), reader);
  writer.synchronize();  // before the copy begins
  reader.synchronize();
}

[[maybe_unused]] void read_pinned_memory_too_early(bool right) {
  const Stream stream;
  void* pinned = nullptr;
  check_cuda(cudaMallocHost(&pinned, sizeof(float)), "cudaMallocHost");
  {
    const auto there = test::on_device<float>(std::vector<float>{3}, stream);
    copy<float>(std::span<float>(static_cast<float*>(pinned), 1), there.span(), stream);
    if (right) stream.synchronize();
    const volatile float early = *static_cast<const float*>(pinned);
    (void)early;
    stream.synchronize();
  }
  check_cuda(cudaFreeHost(pinned), "cudaFreeHost");
}

[[maybe_unused]] void write_pinned_memory_under_a_copy(bool right) {
  const Stream stream;
  void* pinned = nullptr;
  check_cuda(cudaMallocHost(&pinned, sizeof(float)), "cudaMallocHost");
  {
    DeviceBuffer<float> there(1);
    *static_cast<float*>(pinned) = 1;
    copy<float>(there.span(), std::span<const float>(static_cast<float*>(pinned), 1), stream);
    if (right) stream.synchronize();
    *static_cast<float*>(pinned) = 2;
    stream.synchronize();
  }
  check_cuda(cudaFreeHost(pinned), "cudaFreeHost");
}

#ifdef __SANITIZE_THREAD__

/// The mistake ends the process with the sanitizer's exit code; the right way beside it is silent.
void expect_race(void (*mistake)(bool right), const std::string& where) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        set_seed(0);
        mistake(false);
        std::exit(0);
      },
      ::testing::ExitedWithCode(66), "ThreadSanitizer: data race.*" + where);
  set_seed(0);
  mistake(true);
}

TEST(CudaEmulatorRacesDeathTest, AMissingBarrierIsFound) { expect_race(miss_a_barrier, "in turn_round"); }
TEST(CudaEmulatorRacesDeathTest, AMissingWarpBarrierIsFound) { expect_race(miss_a_warp_barrier, "in shift_in_warp"); }
TEST(CudaEmulatorRacesDeathTest, TwoBlocksThatWriteOnePlaceAreFound) {
  expect_race(write_one_place_from_two_blocks, "in write_block");
}
TEST(CudaEmulatorRacesDeathTest, AMissingGridBarrierIsFound) { expect_race(miss_a_grid_barrier, "in sum_blocks"); }
TEST(CudaEmulatorRacesDeathTest, AMissingEventIsFound) { expect_race(miss_an_event, "add_one_to"); }
TEST(CudaEmulatorRacesDeathTest, PinnedMemoryThatIsReadTooEarlyIsFound) {
  expect_race(read_pinned_memory_too_early, "read_pinned_memory_too_early");
}
TEST(CudaEmulatorRacesDeathTest, PinnedMemoryThatIsWrittenTooEarlyIsFound) {
  expect_race(write_pinned_memory_under_a_copy, "write_pinned_memory_under_a_copy");
}

#elif defined(__SANITIZE_ADDRESS__)

/// `access` reads or writes one byte there.
template <class F>
void expect_overrun(F access, int inside, int outside) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  set_seed(0);
  access(inside);
  EXPECT_DEATH(access(outside), "AddressSanitizer: (use-after-poison|heap-buffer-overflow)");
}

TEST(CudaEmulatorOverrunsDeathTest, OneByteBesideDeviceMemoryIsFound) {
  const auto write = [](int at) {
    DeviceBuffer<std::uint8_t> bytes(13);
    run({.grid = dim3(1), .block = dim3(1)}, write_at, bytes.span().device_address(), at);
  };
  const auto read = [](int at) {
    DeviceBuffer<std::uint8_t> bytes(13), out(1);
    run({.grid = dim3(1), .block = dim3(1)}, read_at, bytes.span().device_address(), at, out.span().device_address());
  };
  expect_overrun(write, 12, 13);
  expect_overrun(write, 0, -1);
  expect_overrun(read, 12, 13);
  expect_overrun(read, 0, -1);
}

TEST(CudaEmulatorOverrunsDeathTest, OneByteBesideSharedMemoryIsFound) {
  const auto write = [](int at) {
    DeviceBuffer<std::uint8_t> out(1);
    run({.grid = dim3(1), .block = dim3(1)}, write_shared, at, out.span().device_address());
  };
  const auto write_dynamic = [](int at) {
    run({.grid = dim3(1), .block = dim3(1), .shared_bytes = 21}, write_dynamic_shared, at);
  };
  expect_overrun(write, 12, 13);
  expect_overrun(write, 0, -1);
  expect_overrun(write_dynamic, 20, 21);
  expect_overrun(write_dynamic, 0, -1);
}

TEST(CudaEmulatorOverrunsDeathTest, FreedMemoryIsFound) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  set_seed(0);
  void* freed = nullptr;
  ASSERT_EQ(cudaMalloc(&freed, 8), cudaSuccess);
  ASSERT_EQ(cudaFree(freed), cudaSuccess);
  EXPECT_DEATH(run({.grid = dim3(1), .block = dim3(1)}, write_at, static_cast<std::uint8_t*>(freed), 3),
               "AddressSanitizer: use-after-poison");
}

#else

std::vector<std::string> reports_of_write(int at) {
  set_seed(0);
  {
    DeviceBuffer<std::uint8_t> bytes(13);
    run({.grid = dim3(1), .block = dim3(1)}, write_at, bytes.span().device_address(), at);
  }
  return cuda_emulator::take_reports();
}

TEST(CudaEmulatorOverruns, BytesThatWereWrittenBesideDeviceMemoryAreReported) {
  EXPECT_TRUE(reports_of_write(0).empty());
  EXPECT_TRUE(reports_of_write(12).empty());
  for (const int at : {-1, 13, 255}) {
    const auto reports = reports_of_write(at);
    ASSERT_EQ(reports.size(), 1u) << at;
    EXPECT_NE(reports.front().find("an allocation of 13 bytes"), std::string::npos);
  }
}

#endif

}  // namespace
}  // namespace gradmeter::runtime
