// SPDX-License-Identifier: Apache-2.0
// A GPU behind Device and Queue: kernels and host code in one order, copies, events between queues, transports' memory.
#include "runtime/cuda/device.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <initializer_list>
#include <limits>
#include <numeric>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "runtime/cuda/launch.hpp"
#include "runtime/cuda/stream.hpp"
#include "runtime/host/gpus.hpp"
#include "support/device_seeds.hpp"
#include "support/sanitized.hpp"

namespace gradmeter::runtime {
namespace {

constexpr std::size_t n = 300;

__global__ void double_values(float* values, unsigned count) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) values[i] *= 2;
}

void launch_doubling(const Buffer& b) {
  check_cuda(gpu::launch(double_values, {.grid = dim3(3), .block = dim3(128)}, gpu::stream(),
                         reinterpret_cast<float*>(b.device().device_address()), static_cast<unsigned>(b.count())),
             "double_values");
}

void submit_doubling(Queue& queue, const Buffer& b) {
  queue.submit("double", {}, [b] { launch_doubling(b); });
}
void submit_counting(Queue& queue, const Buffer& b) {
  queue.submit("count", {}, [b] { std::iota(b.values<float>().begin(), b.values<float>().end(), 0.0f); });
}

std::vector<float> read(Queue& queue, const ConstBuffer& b) {
  std::vector<float> out;
  queue.run_and_wait([&] { out.assign(b.values<float>().begin(), b.values<float>().end()); });
  return out;
}

std::vector<float> counted(float factor) {
  std::vector<float> out(n);
  for (std::size_t i = 0; i < n; ++i) out[i] = factor * static_cast<float>(i);
  return out;
}

TEST(CudaDevice, NewMemoryIsZeroAndTheHostsOnlyWithinWork) {
  test::each_device_seed([] {
    CudaDevice device(0);
    const auto queue = device.make_queue();
    const OwnedBuffer b = device.allocate(core::Element::f32, n);
    EXPECT_THROW(b.buffer.host(), std::logic_error);
    EXPECT_EQ(read(*queue, b.buffer), std::vector<float>(n));
    EXPECT_THROW(device.range_of(b.buffer.device().device_address() + 1, n * sizeof(float)), std::logic_error);
  });
}

TEST(CudaDevice, KernelsAndHostCodeRunInTheOrderOfTheirSubmission) {
  test::each_device_seed([] {
    CudaDevice device(0);
    const auto queue = device.make_queue();
    const OwnedBuffer b = device.allocate(core::Element::f32, n);
    submit_counting(*queue, b.buffer);
    submit_doubling(*queue, b.buffer);
    queue->submit("host", {}, [b = b.buffer] {
      for (float& x : b.part(10, n - 10).values<float>()) x += 1;
    });
    submit_doubling(*queue, b.buffer);
    auto expected = counted(4);
    for (std::size_t i = 10; i < n; ++i) expected[i] += 2;
    EXPECT_EQ(read(*queue, b.buffer), expected);
  });
}

TEST(CudaDevice, HostCodeAndKernelsMixInOnePieceOfWork) {
  test::each_device_seed([] {
    CudaDevice device(0);
    const auto queue = device.make_queue();
    const OwnedBuffer b = device.allocate(core::Element::f32, n);
    queue->submit("both", {}, [b = b.buffer] {
      std::iota(b.values<float>().begin(), b.values<float>().end(), 0.0f);
      launch_doubling(b);
      for (float& x : b.values<float>()) x += 3;  // of what the kernel has made
      launch_doubling(b);
    });
    auto expected = counted(4);
    for (float& x : expected) x += 6;
    EXPECT_EQ(read(*queue, b.buffer), expected);
  });
}

TEST(CudaDevice, CapturedWorkIsSubmittedAgainAndAgain) {
  test::each_device_seed([] {
    CudaDevice device(0);
    const auto queue = device.make_queue();
    const OwnedBuffer b = device.allocate(core::Element::f32, n);
    submit_counting(*queue, b.buffer);
    const auto captured = queue->capture([&] {
      submit_doubling(*queue, b.buffer);
      submit_doubling(*queue, b.buffer);
    });
    ASSERT_NE(captured, nullptr);
    EXPECT_EQ(read(*queue, b.buffer), counted(1)) << "a capture runs nothing";
    captured->submit();
    captured->submit();
    EXPECT_EQ(read(*queue, b.buffer), counted(16));
  });
}

TEST(CudaDevice, WorkOfTheHostIsNotCaptured) {
  CudaDevice device(0);
  const auto queue = device.make_queue();
  const OwnedBuffer b = device.allocate(core::Element::f32, n);
  EXPECT_EQ(queue->capture([&] { submit_counting(*queue, b.buffer); }), nullptr);
  submit_counting(*queue, b.buffer);
  EXPECT_EQ(read(*queue, b.buffer), counted(1)) << "the queue goes on";
}

/// Many are taken and dropped, and used again.
TEST(CudaDevice, AnEventOfTheHostsIsNotTheOneBefore) {
  test::each_device_seed([] {
    CudaDevice device(0);
    const auto queue = device.make_queue(), other = device.make_queue();
    const OwnedBuffer a = device.allocate(core::Element::f32, n), b = device.allocate(core::Element::f32, n);
    for (int i = 1; i < 8; ++i) {
      submit_counting(*queue, a.buffer);
      submit_doubling(*queue, a.buffer);
      other->begin_after(queue->record());
      other->copy("copy", a.buffer, b.buffer);
      queue->begin_after(other->record());
      EXPECT_EQ(read(*other, b.buffer), counted(2));
    }
    const EventPtr event = queue->record();
    event->wait();
    EXPECT_TRUE(event->reached());
  });
}

/// One queue writes, another reads a copy; the mistake: no event between.
std::vector<float> over_two_queues(bool waits) {
  CudaDevice device(0);
  const auto writer = device.make_queue(), reader = device.make_queue();
  const OwnedBuffer a = device.allocate(core::Element::f32, n), b = device.allocate(core::Element::f32, n);
  submit_counting(*writer, a.buffer);
  submit_doubling(*writer, a.buffer);
  const EventPtr written = writer->record();
  if (waits) reader->begin_after(written);
  reader->copy("copy", a.buffer, b.buffer);
  return read(*reader, b.buffer);
}

TEST(CudaDevice, EventsOrderTwoQueues) {
  test::each_device_seed([] { EXPECT_EQ(over_two_queues(true), counted(2)); });
}

#ifdef GRADMETER_CUDA_EMULATED
TEST(CudaDevice, WithoutTheEventTheCopyIsTooEarly) {
  if (test::finds_races) GTEST_SKIP() << "the thread sanitizer would find it: see CudaEmulatorRacesDeathTest";
  cuda_emulator::set_seed(0);
  EXPECT_NE(over_two_queues(false), counted(2));
  (void)cuda_emulator::take_reports();  // memory was freed under the writer's work
}
#endif

TEST(CudaDevice, TransportsReachMemoryAllocatedBesideTheirs) {
  test::each_device_seed([] {
    CudaDevice device(0);
    const auto queue = device.make_queue();
    std::vector<float> host(n, -1);
    const std::shared_ptr<void> pinned = device.pin(std::as_writable_bytes(std::span(host)));
    const OwnedBuffer b = device.allocate_beside(core::Element::f32, std::as_writable_bytes(std::span(host)));
    submit_counting(*queue, b.buffer);
    submit_doubling(*queue, b.buffer);
    const Buffer middle = b.buffer.part(100, 50);
    EXPECT_EQ(device.transport_address(middle), reinterpret_cast<std::byte*>(&host[100]));
    queue->to_transport(middle);
    const EventPtr there = queue->record();
    while (!there->reached()) {
    }
    for (std::size_t i = 0; i < n; ++i) EXPECT_EQ(host[i], i >= 100 && i < 150 ? 2.0f * static_cast<float>(i) : -1);
    host[120] = 7;
    queue->from_transport(middle);
    auto expected = counted(2);
    expected[120] = 7;
    EXPECT_EQ(read(*queue, b.buffer), expected);
    const OwnedBuffer private_memory = device.allocate(core::Element::f32, n);
    EXPECT_THROW(device.transport_address(private_memory.buffer), std::logic_error);
  });
}

TEST(CudaDevice, MemoryOfAnotherSizeAtTheSamePlaceIsSeenAsItIs) {
  test::each_device_seed([] {
    CudaDevice device(0);
    const auto queue = device.make_queue();
    for (const std::size_t count : {n, n / 3, 2 * n, n}) {
      const OwnedBuffer b = device.allocate(core::Element::f32, count);
      submit_counting(*queue, b.buffer);
      const auto values = read(*queue, b.buffer);
      EXPECT_EQ(values.back(), static_cast<float>(count - 1));
    }
  });
}

/// By streams that are not the queue's, which does not wait for them.
TEST(CudaDevice, WhatIsUploadedOrFilledIsThereForEveryQueue) {
  test::each_device_seed([] {
    CudaDevice device(0);
    const auto queue = device.make_queue();
    const OwnedBuffer b = device.allocate(core::Element::f32, n);
    const auto values = counted(3);
    upload(b.buffer.device(), std::as_bytes(std::span(values)));
    EXPECT_EQ(read(*queue, b.buffer), values);
    submit_doubling(*queue, b.buffer);
    EXPECT_EQ(read(*queue, b.buffer), counted(6));
    queue->synchronise();
    fill(b.buffer.device(), 0);
    submit_doubling(*queue, b.buffer);
    EXPECT_EQ(read(*queue, b.buffer), counted(0));
    EXPECT_THROW(upload(b.buffer.part(0, 1).device(), std::as_bytes(std::span(values))), core::BackendError);
  });
}

/// What its work uses goes next.
TEST(CudaDevice, AQueueEndsWithItsWork) {
  test::each_device_seed([] {
    CudaDevice device(0);
    const OwnedBuffer b = device.allocate(core::Element::f32, n);
    submit_doubling(*device.make_queue(), b.buffer);
  });
}

TEST(CudaDevice, AQueueWaitsForEventsThatAreNoStreams) {
  struct Later final : Event {
    bool reached() const override { return ++polls > 3; }
    mutable int polls = 0;
  };
  CudaDevice device(0);
  const auto later = std::make_shared<Later>();
  device.make_queue()->begin_after(later);
  EXPECT_EQ(later->polls, 4);
}

/// What a thread that drives no GPU may do, as the progress thread does: ask for events, and be the last to drop events
/// and memory.
TEST(CudaDevice, AnyThreadMayAskAndDrop) {
  test::each_device_seed([] {
    CudaDevice device(0);
    const auto queue = device.make_queue();
    std::vector<float> host(n);
    for (const int what : {0, 1, 2, 3}) {
      OwnedBuffer b = device.allocate(core::Element::f32, n);
      submit_counting(*queue, b.buffer);
      EventPtr begin = queue->record();
      submit_doubling(*queue, b.buffer);
      EventPtr end = queue->record();
      queue->synchronise();
      std::shared_ptr<void> pinned = device.pin(std::as_writable_bytes(std::span(host)));
      std::jthread([&] {
        EXPECT_EQ(selected_gpu(), -1);
        const bool is_reached = what == 0 && end->reached();
        const double seconds = what == 1 ? begin->until(*end) : 0;
        if (what == 2) begin = end = nullptr;
        if (what == 3) b = {}, pinned = nullptr;
        EXPECT_EQ(is_reached, what == 0);
        EXPECT_GE(seconds, 0);
        EXPECT_EQ(selected_gpu(), 0);
      }).join();
    }
  });
}

std::string launch_error(const gpu::Shape& shape) {
  try {
    const Stream stream;
    check_cuda(gpu::launch(double_values, shape, stream.get(), nullptr, 0), "double_values");
    stream.synchronize();
  } catch (const core::BackendError& e) {
    return e.what();
  }
  return "no error";
}

TEST(CudaLaunch, AGridBeyondTheLimitsIsRefusedWithTheKernelsName) {
  const CudaDevice device(0);
  EXPECT_EQ(launch_error({.grid = dim3(2, 65535), .block = dim3(1)}), "no error");
  for (const gpu::Shape& shape : std::initializer_list<gpu::Shape>{{.grid = dim3(1, 65536), .block = dim3(1)},
                                                                   {.grid = dim3(1, 1, 65536), .block = dim3(1)},
                                                                   {.grid = dim3(2'147'483'648U), .block = dim3(1)},
                                                                   {.grid = dim3(0), .block = dim3(1)},
                                                                   {.grid = dim3(1), .block = dim3(32, 33)}}) {
    const std::string error = launch_error(shape);
    EXPECT_NE(error.find("CUDA: double_values failed: no device takes a grid of "), std::string::npos) << error;
  }
  EXPECT_EQ(gpu::blocks_of(256, 256), 1U);
  EXPECT_EQ(gpu::blocks_of(257, 256), 2U);
  EXPECT_EQ(gpu::blocks_of(0, 256), 0U);
  EXPECT_EQ(gpu::blocks_of(std::numeric_limits<std::size_t>::max(), 256), std::numeric_limits<unsigned>::max());
}

#ifdef GRADMETER_CUDA_EMULATED
/// A kernel's illegal access shows in a later call, and every call after it fails.
TEST(CudaDevice, ALostOneIsToldWithWhatItWasGiven) {
  cuda_emulator::set_seed(0);
  {
    CudaDevice device(0);
    const auto queue = device.make_queue();
    const OwnedBuffer b = device.allocate(core::Element::f32, n);
    EXPECT_EQ(lost_gpu(), "");
    EXPECT_THROW(device.range_of(nullptr, 1), std::logic_error) << "an error that is not the GPU's";
    EXPECT_THROW(DeviceBuffer<std::byte>{std::size_t{1} << 50}, core::BackendError);
    EXPECT_EQ(lost_gpu(), "") << "too little memory is no loss";
    cuda_emulator::fail_kernel(2);
    submit_doubling(*queue, b.buffer);
    submit_doubling(*queue, b.buffer);
    EXPECT_THROW(queue->synchronise(), core::BackendError);
    const std::string lost = lost_gpu();
    EXPECT_NE(lost.find("GPU 0 answers no call any more (an illegal memory access"), std::string::npos) << lost;
    EXPECT_NE(lost.find("this thread gave it last: double, double_values"), std::string::npos) << lost;
    std::jthread([] { EXPECT_EQ(lost_gpu(), "") << "of a thread that drives none"; }).join();
    EXPECT_TRUE(cuda_emulator::take_reports().empty());
    EXPECT_EQ(lost_gpu(), "");
  }
}
#endif

TEST(CudaDevice, OneThatIsNotThereIsRefused) {
  try {
    CudaDevice device(1000);
    ADD_FAILURE() << "no error";
  } catch (const core::BackendError& e) {
    EXPECT_NE(std::string(e.what()).find("no GPU 1000"), std::string::npos) << e.what();
  }
}

/// Freed twice: the second time its owner notes it.
TEST(CudaDeviceDeathTest, AReleaseThatFailsIsNoted) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto run = [] {
    {
      const Handle<DeviceAllocationTraits> owner(allocate_device_memory(64));
      check_cuda(cudaFree(owner.get()), "cudaFree");
    }
    std::_Exit(core::has_failed_release() ? 3 : 0);  // the emulated device would end the program its own way
  };
  EXPECT_EXIT(run(), ::testing::ExitedWithCode(3), "gradmeter: CUDA: cudaFree failed in the end: ");
}

}  // namespace
}  // namespace gradmeter::runtime
