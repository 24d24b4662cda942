// SPDX-License-Identifier: Apache-2.0
// What keeps kernels that wait for each other from running at once: each test has such kernels, which hang by one of a
// device's limits and meet without it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "runtime/cuda/handles.hpp"
#include "runtime/cuda/launch.hpp"
#include "support/cuda_emulator/emulator.hpp"

namespace gradmeter::runtime {
namespace {

using cuda_emulator::Hardware;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// A device without limits.
constexpr Hardware unlimited{.is_shared = false,
                             .queues = 0,
                             .loads_lazily = false,
                             .frees_wait = false,
                             .one_cooperative_grid = false,
                             .pending_work = 0};

/// Says that it is there, and waits until the other is. Another kernel for each number.
template <int number>
__global__ void meet_number(unsigned* own, unsigned* other) {
  if (threadIdx.x != 0) return;
  __threadfence_system();
  atomicExch(own, 1u);
  while (atomicAdd(other, 0u) == 0) gpu::spin_pause();
  __threadfence_system();
}

/// Two kernels that wait for each other, on this hardware.
class Meeting {
 public:
  explicit Meeting(const Hardware& h) : before_(cuda_emulator::current_hardware()), flags_(2), unused_(2) {
    cuda_emulator::set_seed(0);
    cuda_emulator::set_patience(0.3);
    cuda_emulator::set_hardware(h);
    check_cuda(cudaMemset(flags_.span().device_address(), 0, 2 * sizeof(unsigned)), "cudaMemset");
    check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  }
  ~Meeting() {
    EXPECT_THAT(cuda_emulator::take_reports(), IsEmpty());
    cuda_emulator::set_hardware(before_);
    cuda_emulator::set_patience(20);
  }
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;

  template <int number>
  cudaError_t launch(const Stream& stream, std::size_t own, bool cooperative = false) {
    unsigned* const at = flags_.span().device_address();
    return gpu::launch(meet_number<number>, {.grid = dim3(1), .block = dim3(32), .cooperative = cooperative},
                       stream.get(), at + own, at + (1 - own))
        .error;
  }
  void free_something() { unused_ = DeviceBuffer<unsigned>(); }
  unsigned* unused() { return unused_.span().device_address(); }

  /// What is reported until all is done. What hangs is dropped.
  static std::vector<std::string> reports_until_done() {
    const bool ends = cudaDeviceSynchronize() == cudaSuccess;
    auto reports = cuda_emulator::take_reports();
    EXPECT_EQ(ends, reports.empty());
    return reports;
  }

 private:
  const Hardware before_;
  DeviceBuffer<unsigned> flags_, unused_;
};

TEST(CudaEmulatorHardware, HasAllLimitsAtFirst) {
  const Hardware h = cuda_emulator::current_hardware();
  EXPECT_EQ(h.queues, 8);
  EXPECT_EQ(h.pending_work, 1024);
  EXPECT_TRUE(h.loads_lazily && h.frees_wait && h.one_cooperative_grid && !h.is_shared);
}

/// The first and the third of three streams share one of two queues.
TEST(CudaEmulatorHardware, AKernelBehindOneThatWaitsInItsQueueIsAHang) {
  for (const int queues : {3, 2}) {
    Hardware h = unlimited;
    h.queues = queues;
    Meeting meeting(h);
    const Stream first, between, third;
    ASSERT_EQ(meeting.launch<0>(first, 0), cudaSuccess);
    ASSERT_EQ(meeting.launch<0>(third, 1), cudaSuccess);
    const auto reports = Meeting::reports_until_done();
    if (queues == 3) {
      EXPECT_THAT(reports, IsEmpty());
    } else {
      EXPECT_THAT(reports, Contains(HasSubstr("stands behind it in one of 2 hardware queues")));
    }
  }
}

TEST(CudaEmulatorHardware, ASecondCooperativeGridIsAHang) {
  for (const bool limited : {false, true}) {
    Hardware h = unlimited;
    h.one_cooperative_grid = limited;
    Meeting meeting(h);
    const Stream first, second;
    ASSERT_EQ(meeting.launch<0>(first, 0, true), cudaSuccess);
    ASSERT_EQ(meeting.launch<0>(second, 1, true), cudaSuccess);
    const auto reports = Meeting::reports_until_done();
    if (limited) {
      EXPECT_THAT(reports, Contains(HasSubstr("a device runs one at a time")));
    } else {
      EXPECT_THAT(reports, IsEmpty());
    }
  }
}

/// A kernel that is launched for the first time while one that may wait is queued; and one that was loaded before.
TEST(CudaEmulatorHardware, AFirstLaunchThatWaitsIsAHang) {
  Hardware h = unlimited;
  const Stream first, second;
  {
    Meeting meeting(h);
    ASSERT_EQ(meeting.launch<1>(first, 0, true), cudaSuccess);
    ASSERT_EQ(meeting.launch<2>(second, 1), cudaSuccess);
    EXPECT_THAT(Meeting::reports_until_done(), IsEmpty());
  }
  h.loads_lazily = true;
  {
    Meeting meeting(h);
    ASSERT_EQ(meeting.launch<1>(first, 0, true), cudaSuccess);
    ASSERT_EQ(meeting.launch<2>(second, 1), cudaSuccess);
    EXPECT_THAT(Meeting::reports_until_done(), IsEmpty()) << "both were loaded before";
  }
  Meeting meeting(h);
  ASSERT_EQ(meeting.launch<1>(first, 0, true), cudaSuccess);
  EXPECT_EQ(meeting.launch<3>(second, 1), cudaErrorLaunchTimeout);
  EXPECT_THAT(Meeting::reports_until_done(), Contains(HasSubstr("hang: the first launch of a kernel")));
}

/// Memory of this thread, and a kernel of another one.
TEST(CudaEmulatorHardware, AFreeThatWaitsIsAHang) {
  for (const bool limited : {false, true}) {
    Hardware h = unlimited;
    h.frees_wait = limited;
    Meeting meeting(h);
    const Stream first, second;
    std::thread([&] {
      check_cuda(cudaSetDevice(0), "cudaSetDevice");
      EXPECT_EQ(meeting.launch<0>(first, 0, true), cudaSuccess);
    }).join();
    meeting.free_something();
    if (limited) {
      EXPECT_THAT(Meeting::reports_until_done(), Contains(HasSubstr("hang: cudaFree waits for a kernel")));
    } else {
      ASSERT_EQ(meeting.launch<0>(second, 1), cudaSuccess);
      EXPECT_THAT(Meeting::reports_until_done(), IsEmpty());
    }
  }
}

/// A kernel that waits for one that is launched when its own stream is full. Without a wait, launches cost nothing.
TEST(CudaEmulatorHardware, ALaunchIntoAFullStreamWaits) {
  for (const int most : {0, 3, 4}) {
    Hardware h = unlimited;
    h.pending_work = most;
    Meeting meeting(h);
    const Stream first, second;
    const auto before = cuda_emulator::counts().full_streams;
    ASSERT_EQ(meeting.launch<0>(first, 0), cudaSuccess);
    for (std::size_t i = 1; i < 3; ++i) check_cuda(cudaMemsetAsync(meeting.unused(), 0, 4, first.get()), "memset");
    const bool is_full = most == 3;
    EXPECT_EQ(meeting.launch<0>(first, 0), is_full ? cudaErrorLaunchTimeout : cudaSuccess);
    EXPECT_EQ(cuda_emulator::counts().full_streams - before, is_full ? 1U : 0U);
    if (!is_full) {
      ASSERT_EQ(meeting.launch<0>(second, 1), cudaSuccess);
    }
    const auto reports = Meeting::reports_until_done();
    if (is_full) {
      EXPECT_THAT(reports, Contains(HasSubstr("hang: a launch waits behind 3 others in its stream")));
    } else {
      EXPECT_THAT(reports, IsEmpty());
    }
  }
}

/// As many devices as ranks have none of these limits between them.
TEST(CudaEmulatorHardware, ASharedDeviceHasNone) {
  Meeting meeting({.is_shared = false, .queues = 1});
  const cuda_emulator::SharedDevice shared;
  const Stream first, second;
  ASSERT_EQ(meeting.launch<4>(first, 0, true), cudaSuccess);
  ASSERT_EQ(meeting.launch<5>(second, 1, true), cudaSuccess);
  EXPECT_THAT(Meeting::reports_until_done(), IsEmpty());
}

}  // namespace
}  // namespace gradmeter::runtime
