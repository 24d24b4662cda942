// SPDX-License-Identifier: Apache-2.0
// Captured exchanges: launched again they have the host's results, on data that changes between launches.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "allreduce/gpu/algorithms.hpp"
#include "allreduce/gpu/stream_collective.hpp"
#include "allreduce/test_data.hpp"
#include "allreduce/vendor/vendor.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "runtime/transport/network.hpp"
#include "support/collectives.hpp"
#include "support/gpu_and_host.hpp"
#include "support/gpu_ranks.hpp"
#include "support/run_to_end.hpp"
#include "support/schedule_shapes.hpp"

namespace gradmeter::allreduce {
namespace {

using runtime::Buffer;
using test::GpuRank;
using ::testing::HasSubstr;

constexpr std::size_t most_captured_bytes = std::size_t{1} << 18;
constexpr const char* gpu_direct = "gpu-direct:small=2048";
/// An odd number of calls: places that are used in turn change from launch to launch.
constexpr GraphShape odd{.calls = 3, .launches = 2};

/// An algorithm as commands bind and capture it.
class Captured {
 public:
  Captured(const GpuRank& r, const std::string& name, CollectiveKind kind, Placement placement)
      : network_(r.world, {.transport = runtime::TransportKind::automatic, .memory_bytes = std::size_t{1} << 20}),
        link_(network_.connect(r.world, 4)) {
    const ExchangeSpec options{.placement = placement, .max_bytes = most_captured_bytes, .queue = &r.queue};
    graphs_ = capture_calls(find_algorithm(name)->bind({r.world, network_, *link_}, options, kind, 0), r.queue, odd);
  }
  const GraphedCollectives* operator->() const { return &graphs_; }

 private:
  runtime::Network network_;
  std::unique_ptr<runtime::Transport> link_;
  GraphedCollectives graphs_;
};

struct GraphCase {
  std::string algorithm;
  CollectiveKind kind = CollectiveKind::all_reduce;
  int ranks = 1;
  Op op = Op::sum;
  std::size_t count = 0;
  bool in_place = false;

  KnownCollective data(std::uint64_t seed) const {
    return {.collective_kind = kind,
            .data = {.pattern = Pattern::exact,
                     .element = core::Element::f32,
                     .op = op,
                     .ranks = static_cast<std::size_t>(ranks),
                     .seed = seed},
            .count = count,
            .root = 0};
  }
};

/// One call, or an iteration, on the data of this seed; empty: right on this rank.
std::string fault(const GpuRank& r, const GraphCase& c, Collective& call, const Buffer& in, const Buffer& out,
                  std::uint64_t seed) {
  const KnownCollective known = c.data(seed);
  const auto rank = static_cast<std::size_t>(r.world.rank());
  r.queue.submit("give", {}, [&] { write_input(known, rank, {in.host(), in.bytes()}); });
  call.start({.in = in, .out = out, .op = c.op});
  test::run_to_end(call);
  CheckResult verdict;
  r.device.make_queue()->run_and_wait([&] { verdict = check(known, rank, {out.host(), out.bytes()}); });
  if (verdict.wrong == 0) return {};
  return fmt::format("{} {} of {}, seed {}: {} wrong, the first at {}", c.algorithm, name(c.kind), c.count, seed,
                     verdict.wrong, verdict.first_wrong);
}

void expect_right(const GpuRank& r, const GraphCase& c) {
  const auto placement = c.in_place ? Placement::in_place : Placement::out_of_place;
  const Captured captured(r, c.algorithm, c.kind, placement);
  const auto first = r.device.allocate(core::Element::f32, c.count);
  const auto second = r.device.allocate(core::Element::f32, c.count);
  const Buffer in = first.buffer, out = c.in_place ? in : second.buffer;
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    EXPECT_EQ(fault(r, c, *captured->one, in, out, seed), "");
    if (c.in_place) continue;  // an iteration adds to its own results
    EXPECT_EQ(fault(r, c, *captured->iteration, in, out, 100 + seed), "");
  }
  r.world.barrier();
}

void expect_right(const GraphCase& c) {
  if (c.ranks > test::most_graph_ranks()) GTEST_SKIP() << "graphs of several GPUs in one process may block each other";
  test::each_device_seed<2>([&] { test::run_gpu_ranks(c.ranks, [&](const GpuRank& r) { expect_right(r, c); }); });
}

TEST(CapturedCalls, OfNcclHaveTheHostsResults) {
  for (const int ranks : {1, 2, 3, 4}) {
    for (const CollectiveKind kind : test::all_goals) {
      const std::size_t count = 257 * static_cast<std::size_t>(ranks);
      expect_right({.algorithm = "nccl", .kind = kind, .ranks = ranks, .count = count});
      expect_right({.algorithm = "nccl", .kind = kind, .ranks = ranks, .count = count, .in_place = true});
    }
    expect_right({.algorithm = "nccl", .ranks = ranks, .op = Op::average, .count = 9001});
    expect_right({.algorithm = "nccl", .ranks = ranks, .count = 0});
  }
}

// 2048 bytes are 512 floats; beyond them two shots.
TEST(CapturedCalls, OfGpuDirectHaveTheHostsResults) {
  for (const int ranks : {1, 2, 3, 4}) {
    for (const std::size_t count : {0U, 1U, 512U, 513U, 5000U}) {
      expect_right({.algorithm = gpu_direct, .ranks = ranks, .count = count});
      expect_right({.algorithm = gpu_direct, .ranks = ranks, .op = Op::average, .count = count, .in_place = true});
    }
  }
}

// A root that is not the first; fewer elements than ranks, and several blocks of threads.
TEST(CapturedCalls, OfGpuRingHaveTheHostsResults) {
  for (const int ranks : {1, 2, 3, 4}) {
    for (const CollectiveKind kind : test::all_goals) {
      if (kind == CollectiveKind::all_to_all) continue;
      for (const std::size_t count : {1U, 4100U})
        expect_right({.algorithm = "gpu-ring", .kind = kind, .ranks = ranks, .count = count});
      expect_right({.algorithm = "gpu-ring", .kind = kind, .ranks = ranks, .count = 999, .in_place = true});
    }
  }
}

// Many groups of messages in one graph, with our sums between them.
TEST(CapturedCalls, OfSchedulesOverNcclHaveTheHostsResults) {
  for (const int ranks : {1, 2, 3, 4}) {
    for (const char* const schedule : {"ring", "one-shot"}) {
      const auto name = fmt::format("nccl-messages:schedule={},message=1024", schedule);
      expect_right({.algorithm = name, .ranks = ranks, .op = Op::average, .count = 1801});
      expect_right({.algorithm = name, .ranks = ranks, .count = 1801, .in_place = true});
    }
    expect_right({.algorithm = "nccl-messages", .kind = CollectiveKind::all_gather, .ranks = ranks, .count = 997});
  }
}

/// Of a graph that is launched again, as of calls that are made again.
TEST(CapturedCalls, CountWhatTheirLaunchesSend) {
  if (test::most_graph_ranks() < 2) GTEST_SKIP() << "graphs of several GPUs in one process may block each other";
  test::run_gpu_ranks(2, [&](const GpuRank& r) {
    const Captured captured(r, "nccl-messages:schedule=ring", CollectiveKind::all_reduce, Placement::out_of_place);
    const auto in = r.device.allocate(core::Element::f32, 100), out = r.device.allocate(core::Element::f32, 100);
    const auto sent_after = [&](Collective& c) {
      c.start({in.buffer, out.buffer});
      test::run_to_end(c);
      EXPECT_EQ(c.sent()->bytes, c.bytes_required());
      return std::pair(c.sent()->bytes, c.sent()->messages);
    };
    EXPECT_EQ(sent_after(*captured->one), std::pair(400UL, 2UL));
    EXPECT_EQ(sent_after(*captured->one), std::pair(800UL, 4UL));
    EXPECT_EQ(sent_after(*captured->iteration), std::pair(3200UL, 16UL));
    EXPECT_EQ(sent_after(*captured->iteration), std::pair(5600UL, 28UL));
    r.world.barrier();
  });
}

/// A call before, between and after others, of one length and another: each has its own data.
TEST(CapturedCalls, StandBesidePlainOnesAndOtherLengths) {
  for (const char* const algorithm : {"nccl", "nccl-messages", "gpu-ring", gpu_direct}) {
    if (test::most_graph_ranks() < 2) GTEST_SKIP() << "graphs of several GPUs in one process may block each other";
    test::each_device_seed([&] {
      test::run_gpu_ranks(2, [&](const GpuRank& r) {
        const Captured captured(r, algorithm, CollectiveKind::all_reduce, Placement::out_of_place);
        const Captured other(r, algorithm, CollectiveKind::all_reduce, Placement::out_of_place);
        const auto in = r.device.allocate(core::Element::f32, 700), out = r.device.allocate(core::Element::f32, 700);
        std::uint64_t seed = 1;
        for (const std::size_t count : {700U, 300U, 700U}) {
          const GraphCase c{.algorithm = algorithm, .ranks = 2, .count = count};
          for (const auto* call : {&captured, &other, &captured}) {
            EXPECT_EQ(fault(r, c, *(*call)->one, in.buffer.part(0, count), out.buffer.part(0, count), ++seed), "");
          }
        }
        r.world.barrier();
      });
    });
  }
}

/// What follows NCCL's call in a graph uses memory that goes with the collective.
TEST(CapturedCalls, UnderWayCanBeGivenUp) {
  if (test::most_graph_ranks() < 2) GTEST_SKIP() << "graphs of several GPUs in one process may block each other";
  for (const int polls : {0, 1, 2}) {
    test::each_device_seed([&] {
      test::run_gpu_ranks(2, [&](const GpuRank& r) {
        const auto memory = r.device.allocate(core::Element::f32, 30'000);
        const Captured captured(r, "nccl", CollectiveKind::send_receive, Placement::in_place);
        captured->one->start({memory.buffer, memory.buffer});
        for (int i = 0; i < polls; ++i) (void)captured->one->advance();
      });
    });
  }
}

/// A launch that a peer does not make ends as such a call does, by the kernel's own clock.
TEST(CapturedCalls, OfKernelsThatWaitInVainEnd) {
  if (test::most_graph_ranks() < 2) GTEST_SKIP() << "graphs of several GPUs in one process may block each other";
  test::each_device_seed([] {
    test::run_gpu_ranks(2, [](const GpuRank& r) {
      runtime::Network network(r.world, {.transport = runtime::TransportKind::shm, .memory_bytes = 4096});
      const auto link = network.connect(r.world, 1);
      const auto in = r.device.allocate(core::Element::f32, 700), out = r.device.allocate(core::Element::f32, 700);
      const PeerOptions o{.max_bytes = most_captured_bytes, .timeout = core::Seconds{0.3}};
      const auto graphs = capture_calls(make_gpu_direct({r.world, network, *link}, r.queue, o, 2048), r.queue, odd);
      const Call call{in.buffer, out.buffer};
      graphs.iteration->start(call);
      test::run_to_end(*graphs.iteration);
      r.world.barrier();
      if (r.world.rank() == 0) {
        graphs.iteration->start(call);
        EXPECT_THAT(test::error_of([&] { test::run_to_end(*graphs.iteration); }), HasSubstr("for rank 1"));
      }
      r.world.barrier();
    });
  });
}

TEST(CapturedCalls, OfSeveralGpusOfOneProcessAreRefused) {
  EXPECT_EQ(graph_refusal(std::vector<int>{0}), "");
  EXPECT_EQ(graph_refusal(std::vector<int>{3, 3}), "");
  EXPECT_THAT(graph_refusal(std::vector<int>{0, 1}), HasSubstr("start a process a GPU"));
}

TEST(CapturedCalls, WhatNeedsTheHostIsRefused) {
  test::run_gpu_ranks(1, [](const GpuRank& r) {
    EXPECT_THAT(
        test::error_of([&] { const Captured c(r, "ring", CollectiveKind::all_reduce, Placement::out_of_place); }),
        HasSubstr("ring needs the host between its parts, and cannot be captured"));
  });
}

#ifdef GRADMETER_CUDA_EMULATED
/// Once captured, no kernel is launched by itself.
TEST(CapturedCalls, AreLaunchedAgainAsGraphs) {
  test::run_gpu_ranks(1, [](const GpuRank& r) {
    const Captured captured(r, gpu_direct, CollectiveKind::all_reduce, Placement::out_of_place);
    const auto in = r.device.allocate(core::Element::f32, 100), out = r.device.allocate(core::Element::f32, 100);
    const auto call = [&](Collective& c) {
      const auto before = cuda_emulator::counts().kernels;
      c.start({in.buffer, out.buffer});
      test::run_to_end(c);
      return cuda_emulator::counts().kernels - before;
    };
    EXPECT_EQ(call(*captured->iteration), odd.calls);
    EXPECT_EQ(call(*captured->iteration), 0);
    EXPECT_EQ(call(*captured->one), 1);
    EXPECT_EQ(call(*captured->iteration), 0);
  });
  EXPECT_THAT(cuda_emulator::take_reports(), ::testing::IsEmpty());
}

/// The others are told, and graphs go before NCCL's communicator: it waits for them.
TEST(CapturedCalls, OfAPeerThatDoesNotComeEnd) {
  std::string error;
  test::run_gpu_ranks(2, [&](const GpuRank& r) {
    runtime::OwnedBuffer in = r.device.allocate(core::Element::f32, 100),
                         out = r.device.allocate(core::Element::f32, 100);
    auto nccl = std::make_unique<NcclCollective>(
        "nccl", r.world, runtime::NcclOptions{.algorithm = {}, .protocol = {}, .timeout = core::Seconds{0.4}},
        CollectiveKind::all_reduce, 0, r.queue);
    const auto graphs = capture_calls(std::move(nccl), r.queue, odd);
    const Call call{in.buffer, out.buffer};
    graphs.one->start(call);
    test::run_to_end(*graphs.one);
    r.world.barrier();
    if (r.world.rank() == 0) graphs.one->start(call);
    r.world.barrier();
    if (r.world.rank() == 1) return std::this_thread::sleep_for(std::chrono::seconds(1));
    EXPECT_EQ(graphs.one->waiting().peer, 1);
    error = test::error_of([&] { test::run_to_end(*graphs.one); });
  });
  EXPECT_THAT(error, HasSubstr("ncclAllReduce"));
  EXPECT_THAT(error, HasSubstr("without this call so far: rank 1"));
  EXPECT_THAT(cuda_emulator::take_reports(), ::testing::IsEmpty());
}
#endif

}  // namespace
}  // namespace gradmeter::allreduce
