// SPDX-License-Identifier: Apache-2.0
// Linked with tests of CUDA code: all are skipped where there is no GPU.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

namespace {

class NeedsDevice final : public ::testing::Environment {
 public:
  void SetUp() override {
    int devices = 0;
    const cudaError_t found = cudaGetDeviceCount(&devices);
    if (found != cudaSuccess || devices == 0) GTEST_SKIP() << "no GPU: " << cudaGetErrorString(found);
  }
};

[[maybe_unused]] const ::testing::Environment* const registered =
    ::testing::AddGlobalTestEnvironment(new NeedsDevice);  // googletest owns it

}  // namespace
