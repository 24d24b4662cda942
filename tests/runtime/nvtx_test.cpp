// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/nvtx.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "runtime/host/gpus.hpp"

#ifdef GRADMETER_HAS_CUDA
#include "runtime/cuda/device.hpp"
#endif

namespace gradmeter::runtime {
namespace {

#ifdef GRADMETER_HAS_NVTX
std::vector<std::string>& seen() {
  static std::vector<std::string> calls;
  return calls;
}

nvtxDomainHandle_t create_domain(const char* name) {
  seen().push_back(std::string("domain ") + name);
  return reinterpret_cast<nvtxDomainHandle_t>(&seen());
}
int push(nvtxDomainHandle_t, const nvtxEventAttributes_t* event) {
  seen().push_back(std::string("push ") + event->message.ascii);
  return 0;
}
int pop(nvtxDomainHandle_t) {
  seen().push_back("pop");
  return 0;
}

int attach(NvtxGetExportTableFunc_t export_table) {
  const auto* callbacks = static_cast<const NvtxExportTableCallbacks*>(export_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned size = 0;
  if (!callbacks || !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size)) return 0;
  *table[NVTX_CBID_CORE2_DomainCreateA] = reinterpret_cast<NvtxFunctionPointer>(&create_domain);
  *table[NVTX_CBID_CORE2_DomainRangePushEx] = reinterpret_cast<NvtxFunctionPointer>(&push);
  *table[NVTX_CBID_CORE2_DomainRangePop] = reinterpret_cast<NvtxFunctionPointer>(&pop);
  return 1;
}

// NVTX attaches at its first call to whom this points, where no profiler is loaded (its static injection).
const bool attached = [] {
  InitializeInjectionNvtx2_fnptr = &attach;
  return true;
}();

TEST(NvtxRange, AProfilerSeesTheLabelsNestedInTheProgramsDomain) {
  ASSERT_TRUE(attached);
  { const NvtxRange first("warm up"); }  // whoever comes first creates the domain
  EXPECT_THAT(seen(), ::testing::Contains("domain gradmeter"));
  seen().clear();
  {
    const NvtxRange outer("forward.gemm");
    const NvtxRange inner("forward.bias");
  }
  EXPECT_THAT(seen(), ::testing::ElementsAre("push forward.gemm", "push forward.bias", "pop", "pop"));
}

TEST(NvtxRange, AQueuesWorkHasItsLabel) {
  if (read_cuda().gpus.empty()) GTEST_SKIP() << read_cuda().problem;
  CudaDevice device(0);
  const auto queue = device.make_queue();
  queue->submit("warm up", {}, [] {});
  seen().clear();
  queue->submit("backward.gemm", {}, [] { seen().push_back("work"); });
  EXPECT_THAT(seen(), ::testing::ElementsAre("push backward.gemm", "work", "pop"));
}
#endif

}  // namespace
}  // namespace gradmeter::runtime
