// SPDX-License-Identifier: Apache-2.0
#include "runtime/host/gpus.hpp"

#include <gtest/gtest.h>

#include <array>
#include <regex>
#include <span>

#include "runtime/cuda/handles.hpp"

namespace gradmeter::runtime {
namespace {

TEST(CudaAdapter, SaysEitherWhatThereIsOrWhyNot) {
  const CudaFacts cuda = read_cuda();
  EXPECT_TRUE(!cuda.gpus.empty() || !cuda.problem.empty());
  EXPECT_EQ(cuda.built, !cuda.version.empty());
  if (!cuda.gpus.empty()) {
    EXPECT_FALSE(cuda.driver.empty());
  }
  EXPECT_EQ(cuda.problem.find('\n'), std::string::npos);
  if (cuda.gpus.empty()) {
    EXPECT_NE(cuda.problem.find("--device cpu"), std::string::npos) << cuda.problem;
  }
}

TEST(CudaAdapter, CountsGpusOfAKind) {
  CudaFacts cuda;
  EXPECT_EQ(accelerator_names(cuda), "");
  cuda.gpus = {{.name = "B"}, {.name = "A"}, {.name = "B"}};
  EXPECT_EQ(accelerator_names(cuda), "1 x A, 2 x B");
}

TEST(CudaAdapter, DescribesAGpu) {
  EXPECT_EQ(
      describe({.name = "A", .memory_bytes = std::size_t{16} << 30, .compute_major = 9, .bus_id = "0000:65:00.0"}),
      "A, sm_90, 16 GiB, PCI 0000:65:00.0");
  for (const GpuFacts& gpu : read_cuda().gpus) {
    EXPECT_EQ(gpu.uuid.size(), 32u);
    EXPECT_TRUE(std::regex_match(gpu.bus_id, std::regex("[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\\.0"))) << gpu.bus_id;
  }
}

#ifdef GRADMETER_HAS_CUDA
TEST(CudaHandles, WithoutAGpuTheErrorNamesTheCallAndTheReason) {
  if (!read_cuda().gpus.empty()) GTEST_SKIP() << "there is a GPU";
  try {
    const Stream stream;
    FAIL() << "a stream without a GPU";
  } catch (const core::BackendError& error) {
    EXPECT_EQ(error.library(), "CUDA");
    EXPECT_NE(std::string(error.what()).find("cudaStreamCreate"), std::string::npos) << error.what();
  }
  EXPECT_THROW(DeviceBuffer<float>(16), core::BackendError);
  EXPECT_EQ(DeviceBuffer<float>(0).size(), 0u);
}

TEST(CudaHandles, BytesGoToTheDeviceAndComeBack) {
  if (read_cuda().gpus.empty()) GTEST_SKIP() << read_cuda().problem;
  const Stream stream, other;
  const CudaEvent start, copied;
  std::array<int, 1000> there{}, back{};
  for (std::size_t i = 0; i < there.size(); ++i) there[i] = static_cast<int>(i * i);
  DeviceBuffer<int> first(there.size()), second(there.size());
  start.record(stream);
  copy(first.span(), std::span<const int>(there), stream);
  copy(second.span(), first.span(), stream);
  copied.record(stream);
  other.wait(copied);
  copy(std::span<int>(back), second.span(), other);
  other.synchronize();
  EXPECT_EQ(there, back);
  EXPECT_TRUE(copied.done());
  EXPECT_GT(copied.since(start).value, 0);
  EXPECT_THROW(copy(first.span().first(3), std::span<const int>(there), stream), core::BackendError);
  const DeviceBuffer<int> moved(std::move(first));
  EXPECT_EQ(moved.size(), there.size());
  EXPECT_EQ(first.size(), 0u);  // NOLINT(bugprone-use-after-move)
}
#endif

}  // namespace
}  // namespace gradmeter::runtime
