// SPDX-License-Identifier: Apache-2.0
// The emulated CUDA runtime finds mistakes: each test makes one, and has the right way beside it.
#include "support/cuda_emulator/emulator.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "runtime/cuda/handles.hpp"
#include "runtime/cuda/launch.hpp"
#include "support/on_device.hpp"
#include "support/sanitized.hpp"

namespace gradmeter::runtime {
namespace {

using cuda_emulator::set_seed, cuda_emulator::take_reports;
using ::gradmeter::test::on_device, ::gradmeter::test::read_back;

constexpr unsigned threads = 96;

__global__ void add_one(float* values, unsigned n) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) values[i] += 1;
}

/// Each thread gives its number to the one on the other end of the block.
__global__ void reverse(int* out, bool waits) {
  GPU_SHARED(int, numbers, [threads]);
  numbers[threadIdx.x] = static_cast<int>(threadIdx.x);
  if (waits) __syncthreads();
  out[threadIdx.x] = numbers[blockDim.x - 1 - threadIdx.x];
}

/// The sum of all warps' numbers, and of their next ones in the same places. The mistake: a warp may write its next
/// number while others still read.
__global__ void sum_twice(int* out, bool waits) {
  GPU_SHARED(int, sums, [threads / 32]);
  int all = 0;
  for (int number = 1; number <= 2; ++number) {
    int mine = number;
    for (int by = 16; by > 0; by /= 2) mine += __shfl_xor_sync(~0u, mine, by);
    if (waits) __syncthreads();
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = mine;
    __syncthreads();
    for (unsigned w = 0; w < blockDim.x / 32; ++w) all += sums[w];
  }
  out[threadIdx.x] = all;
}

__global__ void half_a_barrier() {
  if (threadIdx.x < 32) __syncthreads();
}

__global__ void wrong_mask(unsigned* out) {
  if (threadIdx.x < 16) out[threadIdx.x] = __shfl_sync(~0u, threadIdx.x, 0);
}

__global__ void wait_for_ever(int* flag) {
  if (threadIdx.x == 0) __syncthreads();
  while (threadIdx.x == 1 && *flag == 0) __syncwarp(3);
}

__global__ void sum_of_warp(int* out) {
  int v = static_cast<int>(threadIdx.x);
  for (int by = 16; by > 0; by /= 2) v += __shfl_xor_sync(~0u, v, by);
  v += static_cast<int>(__popc(__ballot_sync(~0u, 1)));
  if (threadIdx.x == 0) *out = v;
}

__global__ void count_blocks(int* counter, int* seen) {
  if (threadIdx.x == 0) atomicAdd(counter, 1);
  gpu::grid_barrier();
  if (threadIdx.x == 0) seen[blockIdx.x] = *counter;
}

__global__ void touch(float* at) { *at = 1; }

gpu::Shape one_block(unsigned n) { return {.grid = dim3(1), .block = dim3(n)}; }

/// Values that a second stream writes and a third reads. The mistake: no event between them.
std::vector<float> over_two_streams(bool waits) {
  const Stream writer, reader;
  const CudaEvent written;
  constexpr unsigned n = 200;
  auto values = on_device<float>(std::vector<float>(n, 1.0f), writer);
  check_cuda(
      gpu::launch(add_one, {.grid = dim3(2), .block = dim3(128)}, writer.get(), values.span().device_address(), n),
      "add_one");
  written.record(writer);
  if (waits) reader.wait(written);
  std::vector<float> out = read_back<float>(values.span(), reader);
  writer.synchronize();
  return out;
}

TEST(CudaEmulator, AMissingEventGivesWrongData) {
  if (test::finds_races) GTEST_SKIP() << "the thread sanitizer would find it: see CudaEmulatorRacesDeathTest";
  int wrong = 0;
  for (unsigned seed = 0; seed < 40; ++seed) {
    set_seed(seed);
    EXPECT_EQ(over_two_streams(true), std::vector<float>(200, 2.0f)) << seed;
    wrong += over_two_streams(false) != std::vector<float>(200, 2.0f);
    if (seed == 0) {
      EXPECT_EQ(wrong, 1) << "as late as dependencies allow";
    }
  }
  EXPECT_GT(wrong, 10);
  EXPECT_TRUE(take_reports().empty());
}

std::vector<int> numbers_of(void (*kernel)(int*, bool), bool waits) {
  const Stream stream;
  DeviceBuffer<int> out(threads);
  check_cuda(gpu::launch(kernel, one_block(threads), stream.get(), out.span().device_address(), waits), "a kernel");
  return read_back<int>(out.span(), stream);
}

TEST(CudaEmulator, AMissingBarrierGivesWrongData) {
  if (test::finds_races) GTEST_SKIP() << "the thread sanitizer would find it: see CudaEmulatorRacesDeathTest";
  std::vector<int> right(threads);
  std::iota(right.rbegin(), right.rend(), 0);
  for (unsigned seed = 0; seed < 10; ++seed) {
    set_seed(seed);
    EXPECT_EQ(numbers_of(reverse, true), right) << seed;
    EXPECT_NE(numbers_of(reverse, false), right) << seed << ": shared memory that nobody has written yet";
  }
}

TEST(CudaEmulator, AWarpThatRunsAheadGivesWrongData) {
  if (test::finds_races) GTEST_SKIP() << "the thread sanitizer would find it: see CudaEmulatorRacesDeathTest";
  const std::vector<int> right(threads, 3 * static_cast<int>(threads));
  int wrong = 0;
  for (unsigned seed = 0; seed < 20; ++seed) {
    set_seed(seed);
    EXPECT_EQ(numbers_of(sum_twice, true), right) << seed;
    wrong += numbers_of(sum_twice, false) != right;
  }
  EXPECT_GE(wrong, 3);
}

/// The first report of a kernel, and its error.
template <class... P>
std::string report_of(void (*kernel)(P...), const gpu::Shape& shape, std::type_identity_t<P>... arguments) {
  set_seed(0);
  const Stream stream;
  check_cuda(gpu::launch(kernel, shape, stream.get(), arguments...), "a kernel");
  EXPECT_EQ(cudaStreamSynchronize(stream.get()), cudaErrorLaunchFailure);
  const auto reports = take_reports();
  return reports.empty() ? "" : reports.front();
}

TEST(CudaEmulator, BarriersAndMasksThatCannotBeAreReported) {
  EXPECT_NE(report_of(half_a_barrier, one_block(64)).find("at the barrier of line"), std::string::npos);
  DeviceBuffer<unsigned> out(16);
  EXPECT_NE(report_of(wrong_mask, one_block(16), out.span().device_address()).find("mask ffffffff has lanes"),
            std::string::npos);
  const Stream stream;
  const auto flag = on_device<int>(std::vector<int>{0}, stream);
  stream.synchronize();
  const auto* const address = flag.span().device_address();
  EXPECT_NE(report_of(wait_for_ever, one_block(2), const_cast<int*>(address)).find("hang: 2 of 2 threads"),
            std::string::npos);
}

TEST(CudaEmulator, WarpsAndGridsMeet) {
  for (unsigned seed = 0; seed < 5; ++seed) {
    set_seed(seed);
    const Stream stream;
    DeviceBuffer<int> sum(1), seen(6);
    auto counter = on_device<int>(std::vector<int>{0}, stream);
    check_cuda(gpu::launch(sum_of_warp, one_block(32), stream.get(), sum.span().device_address()), "sum");
    EXPECT_EQ(read_back<int>(sum.span(), stream), std::vector<int>{31 * 16 + 32});
    check_cuda(gpu::launch(count_blocks, {.grid = dim3(6), .block = dim3(40), .cooperative = true}, stream.get(),
                           counter.span().device_address(), seen.span().device_address()),
               "count");
    EXPECT_EQ(read_back<int>(seen.span(), stream), std::vector<int>(6, 6));
  }
  EXPECT_TRUE(take_reports().empty());
}

TEST(CudaEmulator, PinnedMemoryIsReadWhenTheCopyRuns) {
  if (test::finds_races) GTEST_SKIP() << "the thread sanitizer would find it: see CudaEmulatorRacesDeathTest";
  for (const bool waits : {true, false}) {
    set_seed(0);
    const Stream stream;
    void* pinned = nullptr;
    check_cuda(cudaHostAlloc(&pinned, sizeof(float), cudaHostAllocDefault), "cudaHostAlloc");
    auto* const value = static_cast<float*>(pinned);
    *value = 1;
    DeviceBuffer<float> on(1);
    copy<float>(on.span(), std::span<const float>(value, 1), stream);
    if (waits) stream.synchronize();
    *value = 2;  // the mistake, unless the stream was waited for
    EXPECT_EQ(read_back<float>(on.span(), stream).front(), waits ? 1 : 2);
    check_cuda(cudaFreeHost(pinned), "cudaFreeHost");
  }
}

TEST(CudaEmulator, NewMemoryIsNoise) {
  set_seed(1);
  const Stream stream;
  const DeviceBuffer<std::uint32_t> a(64), b(64);
  const auto first = read_back<std::uint32_t>(a.span(), stream), second = read_back<std::uint32_t>(b.span(), stream);
  EXPECT_NE(first, second);
  EXPECT_EQ(std::ranges::count(first, 0u), 0);
}

TEST(CudaEmulator, WrongUseIsRefused) {
  set_seed(0);
  const Stream stream;
  DeviceBuffer<float> four(4);
  std::vector<float> five(5);
  EXPECT_EQ(cudaMemcpyAsync(four.span().device_address(), five.data(), 20, cudaMemcpyHostToDevice, stream.get()),
            cudaErrorInvalidValue)
      << "past the end";
  EXPECT_EQ(cudaMemcpyAsync(five.data(), five.data(), 16, cudaMemcpyHostToDevice, stream.get()), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidValue);
  EXPECT_EQ(gpu::launch(touch, one_block(1025), stream.get(), nullptr).error, cudaErrorInvalidConfiguration);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess) << "CUDA was not asked";
  EXPECT_EQ(cudaLaunchKernel(reinterpret_cast<const void*>(&touch), dim3(1, 65536), dim3(1), nullptr, 0, stream.get()),
            cudaErrorInvalidConfiguration);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidConfiguration);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess) << "it is told once";
  void* freed = nullptr;
  ASSERT_EQ(cudaMalloc(&freed, 16), cudaSuccess);
  EXPECT_EQ(cudaMemsetAsync(freed, 0, 16, stream.get()), cudaSuccess);
  EXPECT_EQ(cudaFree(freed), cudaSuccess);
  const auto reports = take_reports();
  EXPECT_TRUE(std::ranges::any_of(reports, [](const auto& r) { return r.find("while a stream has work") != r.npos; }));
}

using CudaEmulatorDeathTest = ::testing::Test;

TEST(CudaEmulatorDeathTest, NeitherSideTouchesTheOthersMemory) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  set_seed(0);
  const Stream stream;
  DeviceBuffer<float> device(1);
  float* const address = device.span().device_address();
  EXPECT_EXIT(*static_cast<volatile float*>(address) = 1, ::testing::ExitedWithCode(86),
              "the host touched device memory");
  EXPECT_EXIT(
      {
        (void)gpu::launch(touch, one_block(1), stream.get(), address + 1024);
        (void)cudaStreamSynchronize(stream.get());
      },
      ::testing::ExitedWithCode(86), "a kernel touched .*, which is no allocation");
}

}  // namespace
}  // namespace gradmeter::runtime
