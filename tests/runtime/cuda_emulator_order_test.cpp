// SPDX-License-Identifier: Apache-2.0
// The emulated CUDA runtime with graphs, several host threads, kernels that wait for each other, and other processes.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "runtime/cuda/handles.hpp"
#include "runtime/cuda/launch.hpp"
#include "support/cuda_emulator/emulator.hpp"
#include "support/on_device.hpp"
#include "support/sanitized.hpp"

namespace gradmeter::runtime {
namespace {

using cuda_emulator::set_seed, cuda_emulator::take_reports;

__global__ void scale(float* values, float by, unsigned n) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) values[i] *= by;
}

/// Says that it is there, and waits until the other is.
__global__ void meet(unsigned* own, unsigned* other) {
  if (threadIdx.x != 0) return;
  __threadfence_system();
  atomicExch(own, 1u);
  while (atomicAdd(other, 0u) == 0) gpu::spin_pause();
  __threadfence_system();
}

class PinnedFloats {
 public:
  explicit PinnedFloats(std::size_t n) : n_(n) {
    check_cuda(cudaMallocHost(&memory_, n * sizeof(float)), "cudaMallocHost");
  }
  ~PinnedFloats() { (void)cudaFreeHost(memory_); }
  PinnedFloats(const PinnedFloats&) = delete;
  PinnedFloats& operator=(const PinnedFloats&) = delete;
  std::span<float> span() { return {static_cast<float*>(memory_), n_}; }

 private:
  void* memory_ = nullptr;
  std::size_t n_;
};

struct Events {
  bool filled = true, used = true;  ///< those that the pipeline waits for
};

constexpr unsigned chunk = 100, chunks = 6;

/// Copies in on one stream, doubles and copies out on another, through two buffers in turn.
struct Pipeline {
  Stream in, work;
  std::array<CudaEvent, 2> filled, used;
  CudaEvent forked, joined;
  PinnedFloats from{chunk * chunks}, to{chunk * chunks};
  std::array<DeviceBuffer<float>, 2> buffers = {DeviceBuffer<float>(chunk), DeviceBuffer<float>(chunk)};

  Pipeline() {
    for (std::size_t i = 0; i < from.span().size(); ++i) from.span()[i] = static_cast<float>(i + 1);
  }

  void submit(Events events) {
    for (unsigned c = 0; c < chunks; ++c) {
      auto& buffer = buffers[c % 2];
      if (c >= 2 && events.used) in.wait(used[c % 2]);
      copy<float>(buffer.span(), from.span().subspan(c * chunk, chunk), in);
      filled[c % 2].record(in);
      if (events.filled) work.wait(filled[c % 2]);
      check_cuda(gpu::launch(scale, {.grid = dim3(1), .block = dim3(128)}, work.get(), buffer.span().device_address(),
                             2.0f, chunk),
                 "scale");
      copy<float>(to.span().subspan(c * chunk, chunk), buffer.span(), work);
      used[c % 2].record(work);
    }
  }
  bool is_right() {
    return std::ranges::equal(from.span(), to.span(), {}, [](float f) { return 2 * f; });
  }
};

bool pipeline_is_right(Events events) {
  Pipeline p;
  p.submit(events);
  p.work.synchronize();
  const bool right = p.is_right();
  check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  return right;
}

/// Twice the same graph.
bool graph_is_right(Events events) {
  Pipeline p;
  check_cuda(cudaStreamBeginCapture(p.work.get(), cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  p.forked.record(p.work);
  p.in.wait(p.forked);
  p.submit(events);
  p.joined.record(p.in);
  p.work.wait(p.joined);
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  check_cuda(cudaStreamEndCapture(p.work.get(), &graph), "cudaStreamEndCapture");
  check_cuda(cudaGraphInstantiate(&exec, graph, 0), "cudaGraphInstantiate");
  bool right = true;
  for (int i = 0; i < 2; ++i) {
    std::ranges::fill(p.to.span(), 0.0f);
    check_cuda(cudaGraphLaunch(exec, p.work.get()), "cudaGraphLaunch");
    p.work.synchronize();
    right &= p.is_right();
  }
  check_cuda(cudaGraphExecDestroy(exec), "cudaGraphExecDestroy");
  check_cuda(cudaGraphDestroy(graph), "cudaGraphDestroy");
  return right;
}

struct Wrong {
  int plain = 0, as_graph = 0;
};
Wrong wrong_of_20_seeds(Events events) {
  Wrong wrong;
  for (unsigned seed = 0; seed < 20; ++seed) {
    set_seed(seed);
    wrong.plain += !pipeline_is_right(events);
    wrong.as_graph += !graph_is_right(events);
  }
  EXPECT_TRUE(take_reports().empty());
  return wrong;
}

TEST(CudaEmulatorOrder, PipelinesNeedTheirEventsAlsoAsGraphs) {
  const Wrong right = wrong_of_20_seeds({});
  EXPECT_EQ(right.plain, 0);
  EXPECT_EQ(right.as_graph, 0);
  if (test::finds_races) return;  // it would find the following
  const Wrong early = wrong_of_20_seeds({.filled = false});
  EXPECT_GT(early.plain, 5);
  EXPECT_GT(early.as_graph, 5);
  const Wrong overwritten = wrong_of_20_seeds({.used = false});
  EXPECT_GT(overwritten.plain, 0);
  EXPECT_GT(overwritten.as_graph, 0);
}

TEST(CudaEmulatorOrder, CaptureRefusesWhatWouldWait) {
  set_seed(0);
  const Stream stream, other;
  const CudaEvent forked;
  cudaGraph_t graph = nullptr;
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  const auto begin = [&] {
    ASSERT_EQ(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal), cudaSuccess);
    ASSERT_EQ(cudaStreamIsCapturing(stream.get(), &status), cudaSuccess);
    EXPECT_EQ(status, cudaStreamCaptureStatusActive);
  };
  begin();
  void* p = nullptr;
  EXPECT_EQ(cudaMalloc(&p, 4), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(cudaStreamEndCapture(stream.get(), &graph), cudaErrorStreamCaptureInvalidated);
  begin();
  EXPECT_EQ(cudaStreamSynchronize(stream.get()), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(cudaStreamEndCapture(stream.get(), &graph), cudaErrorStreamCaptureInvalidated);
  begin();
  forked.record(stream);
  other.wait(forked);
  EXPECT_EQ(cudaEventSynchronize(forked.get()), cudaErrorCapturedEvent);
  EXPECT_EQ(cudaLaunchHostFunc(
                other.get(), [](void*) {}, nullptr),
            cudaSuccess);
  EXPECT_EQ(cudaStreamEndCapture(stream.get(), &graph), cudaErrorStreamCaptureUnjoined);
  EXPECT_EQ(cudaStreamIsCapturing(other.get(), &status), cudaSuccess);
  EXPECT_EQ(status, cudaStreamCaptureStatusNone);
  (void)cudaGetLastError();
  EXPECT_TRUE(take_reports().empty());
}

/// Threads of the host that each drive a stream: kernels that wait for those of the next thread.
TEST(CudaEmulatorOrder, KernelsOfSeveralThreadsMeet) {
  constexpr std::size_t ranks = 3;
  for (unsigned seed = 0; seed < 5; ++seed) {
    set_seed(seed);
    DeviceBuffer<unsigned> flags(ranks);
    ASSERT_EQ(cudaMemset(flags.span().device_address(), 0, ranks * sizeof(unsigned)), cudaSuccess);
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    std::vector<std::jthread> threads;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&, rank] {
        EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
        const Stream stream;
        unsigned* const at = flags.span().device_address();
        check_cuda(
            gpu::launch(meet, {.grid = dim3(2), .block = dim3(32)}, stream.get(), at + rank, at + (rank + 1) % ranks),
            "meet");
        stream.synchronize();
      });
    }
    threads.clear();
    const Stream stream;
    EXPECT_EQ(test::read_back<unsigned>(flags.span(), stream), std::vector<unsigned>(ranks, 1)) << seed;
  }
  EXPECT_TRUE(take_reports().empty());
}

TEST(CudaEmulatorOrder, WhoWaitsLeavesTheRuntimeToOthers) {
  set_seed(0);
  const Stream waits, works;
  std::atomic<bool> may_go = false;
  std::atomic<bool> began = false;
  std::jthread waiter([&] {
    EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
    const auto wait = [](void* p) { static_cast<std::atomic<bool>*>(p)->wait(false); };
    EXPECT_EQ(cudaLaunchHostFunc(waits.get(), wait, &may_go), cudaSuccess);
    began = true;
    began.notify_all();
    waits.synchronize();
  });
  began.wait(false);
  for (int i = 0; i < 50; ++i) {
    const auto there = test::on_device<float>(std::vector<float>(10, 1.0f), works);
    EXPECT_EQ(test::read_back<float>(there.span(), works), std::vector<float>(10, 1.0f));
  }
  EXPECT_EQ(cudaStreamQuery(waits.get()), cudaErrorNotReady);
  may_go = true;
  may_go.notify_all();
  waiter.join();
  EXPECT_EQ(cudaStreamQuery(waits.get()), cudaSuccess);
  EXPECT_TRUE(take_reports().empty());
}

TEST(CudaEmulatorOrder, WorkThatNobodyWaitsForRunsAfterAWhile) {
  set_seed(0);
  const Stream stream;
  std::atomic<bool> ran = false;
  const auto values = test::on_device<float>(std::vector<float>(4, 1.0f), stream);
  ASSERT_EQ(cudaLaunchHostFunc(
                stream.get(),
                [](void* p) {
                  auto& done = *static_cast<std::atomic<bool>*>(p);
                  done = true;
                  done.notify_all();
                },
                &ran),
            cudaSuccess);
  ran.wait(false);
  EXPECT_TRUE(ran);
  stream.synchronize();
}

TEST(CudaEmulatorOrder, AKernelThatWaitsForNobodyIsAHang) {
  set_seed(0);
  cuda_emulator::set_patience(0.2);
  {
    const Stream stream;
    const auto flags = test::on_device<unsigned>(std::vector<unsigned>{0, 0}, stream);
    auto* const at = const_cast<unsigned*>(flags.span().device_address());
    ASSERT_EQ(gpu::launch(meet, {.grid = dim3(1), .block = dim3(32)}, stream.get(), at, at + 1).error, cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream.get()), cudaErrorLaunchTimeout);
    const auto reports = take_reports();
    ASSERT_FALSE(reports.empty());
    EXPECT_NE(reports.front().find("hang: a kernel"), std::string::npos);
  }
  cuda_emulator::set_patience(20);
}

/// What the owner of memory tells its peer, by a pipe.
struct Offer {
  cudaIpcMemHandle_t values, flags;
};

/// In a process of its own: adds to the owner's values when its kernel says so, in one kernel that waits for it.
__global__ void add_after_meeting(float* values, unsigned* own, unsigned* other) {
  if (threadIdx.x == 0) {
    while (atomicAdd(other, 0u) == 0) gpu::spin_pause();
    __threadfence_system();
  }
  __syncthreads();
  values[threadIdx.x] += 10;
  __syncthreads();
  if (threadIdx.x != 0) return;
  __threadfence_system();
  atomicExch(own, 1u);
}

__global__ void fill_and_wait(float* values, unsigned* own, unsigned* other) {
  values[threadIdx.x] = static_cast<float>(threadIdx.x);
  __syncthreads();
  if (threadIdx.x != 0) return;
  __threadfence_system();
  atomicExch(own, 1u);
  while (atomicAdd(other, 0u) == 0) gpu::spin_pause();
}

int peer(int offers) {
  Offer offer;
  if (read(offers, &offer, sizeof offer) != sizeof offer) return 1;
  void *values = nullptr, *flags = nullptr;
  check_cuda(cudaIpcOpenMemHandle(&values, offer.values, cudaIpcMemLazyEnablePeerAccess), "cudaIpcOpenMemHandle");
  check_cuda(cudaIpcOpenMemHandle(&flags, offer.flags, cudaIpcMemLazyEnablePeerAccess), "cudaIpcOpenMemHandle");
  auto* const f = static_cast<unsigned*>(flags);
  {
    const Stream stream;
    check_cuda(gpu::launch(add_after_meeting, {.grid = dim3(1), .block = dim3(64)}, stream.get(),
                           static_cast<float*>(values), f + 1, f),
               "add_after_meeting");
    stream.synchronize();
  }
  check_cuda(cudaIpcCloseMemHandle(values), "cudaIpcCloseMemHandle");
  check_cuda(cudaIpcCloseMemHandle(flags), "cudaIpcCloseMemHandle");
  return take_reports().empty() ? 0 : 2;
}

int owner(int offers) {
  DeviceBuffer<float> values(64);
  DeviceBuffer<unsigned> flags(2);
  check_cuda(cudaMemset(flags.span().device_address(), 0, 8), "cudaMemset");
  check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  Offer offer;
  check_cuda(cudaIpcGetMemHandle(&offer.values, values.span().device_address()), "cudaIpcGetMemHandle");
  check_cuda(cudaIpcGetMemHandle(&offer.flags, flags.span().device_address()), "cudaIpcGetMemHandle");
  void* own = nullptr;
  if (cudaIpcOpenMemHandle(&own, offer.values, cudaIpcMemLazyEnablePeerAccess) == cudaSuccess) return 3;
  (void)cudaGetLastError();
  if (write(offers, &offer, sizeof offer) != sizeof offer) return 1;
  const Stream stream;
  unsigned* const f = flags.span().device_address();
  check_cuda(gpu::launch(fill_and_wait, {.grid = dim3(1), .block = dim3(64)}, stream.get(),
                         values.span().device_address(), f, f + 1),
             "fill_and_wait");
  const auto back = test::read_back<float>(values.span(), stream);
  for (unsigned i = 0; i < 64; ++i) {
    if (back[i] != static_cast<float>(i) + 10) return 2;
  }
  return 0;
}

/// The child runs this program again: a runtime does not survive a fork.
pid_t start_peer(unsigned seed, int offers) {
  const std::string seeds = std::to_string(seed), descriptor = std::to_string(offers);
  const pid_t child = fork();
  if (child == 0) {
    setenv("GRADMETER_CUDA_EMULATOR_SEED", seeds.c_str(), 1);
    setenv("OMPI_COMM_WORLD_RANK", "1", 1);
    setenv("GRADMETER_TEST_OFFERS", descriptor.c_str(), 1);
    unsetenv("GTEST_TOTAL_SHARDS");
    unsetenv("GTEST_SHARD_INDEX");
    execl("/proc/self/exe", "peer", "--gtest_filter=CudaEmulatorPeer.*", "--gtest_brief=1", nullptr);
    _exit(9);
  }
  return child;
}

TEST(CudaEmulatorPeer, UsesTheOwnersMemory) {
  const char* const offers = std::getenv("GRADMETER_TEST_OFFERS");
  if (!offers) GTEST_SKIP() << "the other process of another test";
  EXPECT_EQ(peer(std::atoi(offers)), 0);
}

TEST(CudaEmulatorOrder, ProcessesUseTheMemoryOfOthers) {
  for (unsigned seed = 0; seed < 4; ++seed) {
    set_seed(seed);
    std::array<int, 2> ends = {};
    ASSERT_EQ(pipe(ends.data()), 0);
    const pid_t child = start_peer(seed, ends[0]);
    EXPECT_EQ(owner(ends[1]), 0) << seed;
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
    close(ends[0]);
    close(ends[1]);
  }
  EXPECT_TRUE(take_reports().empty());
}

}  // namespace
}  // namespace gradmeter::runtime
