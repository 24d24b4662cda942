// SPDX-License-Identifier: Apache-2.0
// Linked with tests of CUDA code: all are skipped where there is no GPU.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include "runtime/host/gpus.hpp"

namespace {

class NeedsDevice final : public ::testing::Environment {
 public:
  void SetUp() override {
#ifndef GRADMETER_CUDA_EMULATED
    gradmeter::runtime::set_cuda_defaults();  // the emulated device keeps its limits
#endif
    int devices = 0;
    const cudaError_t found = cudaGetDeviceCount(&devices);
    if (found != cudaSuccess || devices == 0) GTEST_SKIP() << "no GPU: " << cudaGetErrorString(found);
  }
};

[[maybe_unused]] const ::testing::Environment* const registered =
    ::testing::AddGlobalTestEnvironment(new NeedsDevice);  // googletest owns it

}  // namespace
