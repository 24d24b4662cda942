// SPDX-License-Identifier: Apache-2.0
// The all-reduce that reads its peers' memory: with the bits of the sum in rank order, on ranks as threads. Over
// processes: tests/cli/device_test.py.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "allreduce/gpu/algorithms.hpp"
#include "allreduce/reduce.hpp"
#include "allreduce/registry.hpp"
#include "core/element.hpp"
#include "core/error.hpp"
#include "core/random.hpp"
#include "runtime/cuda/device.hpp"
#include "runtime/threads/thread_group.hpp"
#include "support/collectives.hpp"
#include "support/device_seeds.hpp"
#include "support/gpu_ranks.hpp"
#include "support/run_to_end.hpp"

namespace gradmeter::allreduce {
namespace {

using core::Element;
using test::GpuRank;
using ::testing::HasSubstr;
using Bytes = std::vector<std::byte>;

struct DirectCase {
  int ranks;
  Element element = Element::f32;
  Op op = Op::sum;
  std::size_t count = 0;
  Element accumulate = Element::f32;
  bool in_place = false;
  std::string algorithm = "gpu-direct:small=2048";
};

/// What rank `rank` gives in call `number`: of all values, those of neighbours differ.
Bytes given(const DirectCase& c, int rank, int number) {
  const core::Random random(11, static_cast<std::uint64_t>(100 * number + rank));
  Bytes b(c.count * core::size_of(c.element));
  for (std::size_t i = 0; i < c.count; ++i)
    core::store(c.element, b.data() + i * core::size_of(c.element), static_cast<double>(random.below(i, 15)) - 6);
  return b;
}

Bytes expected(const DirectCase& c, int number) {
  std::vector<Bytes> all;
  std::vector<const std::byte*> sources;
  for (int r = 0; r < c.ranks; ++r) all.push_back(given(c, r, number));
  for (const Bytes& b : all) sources.push_back(b.data());
  Bytes out = all.front();
  if (c.ranks > 1) reduce(c.element, c.accumulate, c.op, out.data(), sources, c.count);
  finish(c.element, c.op, out.data(), out.data(), c.count, c.ranks);
  return out;
}

constexpr std::size_t most_bytes = std::size_t{256} << 10;
constexpr int calls = 3;  // places are used in turn

/// A transport between the ranks, though these collectives need none.
class OfRank {
 public:
  explicit OfRank(const GpuRank& r)
      : world_(r.world),
        network_(world_, {.transport = runtime::TransportKind::shm, .memory_bytes = 4096}),
        link_(network_.connect(world_, 1)) {}
  GroupConnection connection() const { return {world_, network_, *link_}; }

 private:
  const runtime::Communicator& world_;
  mutable runtime::Network network_;
  std::unique_ptr<runtime::Transport> link_;
};

/// By rank and call.
std::vector<std::vector<Bytes>> results(const DirectCase& c) {
  std::vector<std::vector<Bytes>> all(static_cast<std::size_t>(c.ranks));
  test::run_gpu_ranks(c.ranks, [&](const GpuRank& r) {
    const runtime::Communicator& world = r.world;
    runtime::CudaDevice& device = r.device;
    // Another queue than the call's, which nothing orders but that the call says it is done.
    const auto other = device.make_queue();
    const OfRank connection(r);
    const auto direct =
        find_algorithm(c.algorithm)->bind(connection.connection(), {.max_bytes = most_bytes, .queue = &r.queue});
    const std::size_t bytes = c.count * core::size_of(c.element);
    const auto in = device.allocate(Element::i8, bytes), out = device.allocate(Element::i8, bytes);
    const auto typed = [&](const runtime::OwnedBuffer& b) { return runtime::Buffer(c.element, b.buffer.device()); };
    for (int call = 0; call < calls; ++call) {
      Bytes b = given(c, world.rank(), call);
      other->run_and_wait([&] { std::memcpy(in.buffer.host(), b.data(), bytes); });
      direct->start({.in = typed(in), .out = typed(c.in_place ? in : out), .op = c.op, .accumulate = c.accumulate});
      while (!direct->advance()) std::this_thread::yield();
      other->run_and_wait([&] { std::memcpy(b.data(), (c.in_place ? in : out).buffer.host(), bytes); });
      all[static_cast<std::size_t>(world.rank())].push_back(b);
    }
    world.barrier();
  });
  return all;
}

void expect_sums_in_rank_order(const DirectCase& c) {
  if (const auto why = test::lack_of_gpus(c.ranks); !why.empty()) GTEST_SKIP() << why;
  test::each_device_seed([&] {
    const auto found = results(c);
    for (int call = 0; call < calls; ++call) {
      const Bytes right = expected(c, call);
      for (int r = 0; r < c.ranks; ++r)
        EXPECT_TRUE(found[static_cast<std::size_t>(r)][static_cast<std::size_t>(call)] == right)
            << c.count << " of " << core::info(c.element).name << ", call " << call << ", rank " << r << " of "
            << c.ranks;
    }
  });
}

// 2048 bytes are 512 floats; beyond them two shots.
TEST(GpuDirect, SumsInRankOrderInOneAndTwoShots) {
  for (const int ranks : {1, 2, 3, 4})
    for (const std::size_t count : {0U, 1U, 5U, 511U, 512U, 513U, 1600U, 60000U})
      expect_sums_in_rank_order({.ranks = ranks, .count = count});
}

TEST(GpuDirect, HasEveryTypeAndOperation) {
  for (const Element e : {Element::f64, Element::i64, Element::i32, Element::i8, Element::f16, Element::bf16}) {
    for (const Op op : {Op::sum, Op::min, Op::max, Op::product, Op::average}) {
      if (op == Op::average && core::is_integer(e)) continue;
      // One shot for the one, two for the other.
      const std::size_t count = op == Op::min || op == Op::average ? 101 : 3001;
      expect_sums_in_rank_order({.ranks = 3, .element = e, .op = op, .count = count, .accumulate = e});
    }
  }
  for (const Element e : {Element::f16, Element::bf16})
    expect_sums_in_rank_order({.ranks = 3, .element = e, .op = Op::average, .count = 2999, .accumulate = Element::f32});
}

TEST(GpuDirect, WorksInPlace) {
  for (const std::size_t count : {300U, 2000U})
    expect_sums_in_rank_order({.ranks = 3, .count = count, .in_place = true});
}

/// Each rank gives its call up, and with it the memory that peers' kernels may still read.
TEST(GpuDirect, MayEndWhileACallIsUnderWay) {
  if (test::most_gpu_ranks() < 3) GTEST_SKIP() << "fewer GPUs than ranks";
  test::each_device_seed([] {
    test::run_gpu_ranks(3, [](const GpuRank& r) {
      const OfRank connection(r);
      const auto in = r.device.allocate(Element::f32, 60000), out = r.device.allocate(Element::f32, 60000);
      for (const std::size_t count : {100U, 60000U}) {
        const auto direct = find_algorithm("gpu-direct:small=2048")
                                ->bind(connection.connection(), {.max_bytes = most_bytes, .queue = &r.queue});
        direct->start({.in = in.buffer.part(0, count), .out = out.buffer.part(0, count)});
      }
      r.queue.synchronise();
    });
  });
}

// Sums that NVLink's switches make. Numbers add up exactly, so that their order does not matter.

TEST(GpuMultimem, SumsOnEveryNumberOfRanks) {
  for (const int ranks : {2, 3, 4})
    for (const std::size_t count : {0U, 1U, 5U, 513U, 60000U, 65535U})
      for (const Op op : {Op::sum, Op::average})
        expect_sums_in_rank_order({.ranks = ranks, .op = op, .count = count, .algorithm = "gpu-multimem"});
}

TEST(GpuMultimem, SumsSixteenBitsInFp32AndInPlace) {
  for (const Element e : {Element::f16, Element::bf16})
    for (const bool in_place : {false, true})
      expect_sums_in_rank_order({.ranks = 3,
                                 .element = e,
                                 .op = Op::average,
                                 .count = 70'001,
                                 .accumulate = Element::f32,
                                 .in_place = in_place,
                                 .algorithm = "gpu-multimem"});
}

TEST(GpuMultimem, RefusesWhatSwitchesHaveNot) {
  const auto why = [](Element e, Op op, bool wide = false) {
    const auto row = find_algorithm("gpu-multimem");
    return row->refusal({4, 4}, CollectiveKind::all_reduce, {.element = e, .op = op, .wide = wide});
  };
  EXPECT_EQ(why(Element::f32, Op::average), "");
  EXPECT_EQ(why(Element::bf16, Op::sum, true), "");
  EXPECT_THAT(why(Element::bf16, Op::sum), HasSubstr("accumulate in fp32"));
  EXPECT_THAT(why(Element::f32, Op::max), HasSubstr("no max"));
  EXPECT_THAT(why(Element::f64, Op::sum), HasSubstr("add no fp64 by 16 bytes"));
  EXPECT_EQ(find_algorithm("gpu-multimem")->refusal({4, 2}), "gpu-multimem needs all ranks on one node");
}

/// A collective that was bound for sums gets calls that switches cannot make.
TEST(GpuMultimem, RefusesACallThatSwitchesHaveNot) {
  if (const auto why = test::lack_of_gpus(2); !why.empty()) GTEST_SKIP() << why;
  test::run_gpu_ranks(2, [](const GpuRank& r) {
    const OfRank connection(r);
    const auto floats = r.device.allocate(Element::f32, 64), doubles = r.device.allocate(Element::f64, 64);
    const auto sums =
        find_algorithm("gpu-multimem")->bind(connection.connection(), {.max_bytes = most_bytes, .queue = &r.queue});
    EXPECT_THROW(sums->start({.in = floats.buffer, .out = floats.buffer, .op = Op::max}), core::BackendError);
    EXPECT_THROW(sums->start({.in = doubles.buffer, .out = doubles.buffer}), core::BackendError);
    r.world.barrier();
  });
}

#ifdef GRADMETER_CUDA_EMULATED
/// As on GPUs before Hopper, and where Fabric Manager does not run.
TEST(GpuMultimem, IsUnavailableWithTheReasonWhereThereAreNoSwitches) {
  const auto before = cuda_emulator::current_hardware();
  auto without = before;
  without.has_switches = false;
  cuda_emulator::set_hardware(without);
  std::vector<std::string> errors(3);
  test::run_gpu_ranks(3, [&](const GpuRank& r) {
    const OfRank connection(r);
    try {
      (void)find_algorithm("gpu-multimem")->bind(connection.connection(), {.max_bytes = most_bytes, .queue = &r.queue});
    } catch (const core::Unavailable& e) {
      errors[static_cast<std::size_t>(r.world.rank())] = e.what();
    }
    r.world.barrier();
  });
  cuda_emulator::set_hardware(before);
  EXPECT_EQ(errors[0],
            "gpu-multimem needs multicast memory: rank 0: this GPU has none: it takes Hopper or later on NVLink "
            "switches, with Fabric Manager running");
  EXPECT_THAT(errors, ::testing::Each(errors[0]));
}
#endif

// Kernels that wait for peers which do not come: they leave, and the call ends with one line.

std::unique_ptr<Collective> made(const std::string& row, const GroupConnection& connection, runtime::Queue& queue,
                                 core::Seconds timeout) {
  const PeerOptions o{.max_bytes = most_bytes, .timeout = timeout};
  if (row == "gpu-direct") return make_gpu_direct(connection, queue, o, 2048);
  return make_gpu_ring(connection, queue, o, CollectiveKind::all_reduce);
}

class GpuPeers : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (test::most_gpu_ranks() < 3) GTEST_SKIP() << "fewer GPUs than ranks";
  }
};

/// In the middle of a queue of calls: the later ones leave too.
TEST_P(GpuPeers, ThatDoNotComeAreNamedWithinThePatience) {
  for (const std::size_t count : {100U, 60000U}) {
    test::each_device_seed([&] {
      test::run_gpu_ranks(3, [&](const GpuRank& r) {
        const OfRank connection(r);
        const auto in = r.device.allocate(Element::f32, count), out = r.device.allocate(Element::f32, count);
        const auto c = made(GetParam(), connection.connection(), r.queue, core::Seconds{0.3});
        const Call call{.in = in.buffer, .out = out.buffer};
        c->start(call);
        test::run_to_end(*c);
        r.world.barrier();
        if (r.world.rank() != 2) {
          c->start(call);
          const std::string error = test::error_of([&] { test::run_to_end(*c); });
          EXPECT_THAT(error, HasSubstr(GetParam()));
          EXPECT_THAT(error, HasSubstr("all_reduce"));
          EXPECT_THAT(error, HasSubstr("rank " + std::to_string(r.world.rank()) + " of 3"));
          if (r.world.rank() == 0) {
            EXPECT_THAT(error, HasSubstr("waited 300 ms for rank 2"));
          }
          EXPECT_EQ(error.find('\n'), std::string::npos);
        }
        r.world.barrier();
      });
    });
  }
}

TEST_P(GpuPeers, ThatFailEndTheOthersCalls) {
  test::each_device_seed([&] {
    const auto run = [&] {
      test::run_gpu_ranks(3, [&](const GpuRank& r) {
        const OfRank connection(r);
        const auto in = r.device.allocate(Element::f32, 60000), out = r.device.allocate(Element::f32, 60000);
        const auto c = made(GetParam(), connection.connection(), r.queue, core::Seconds{600});
        r.world.barrier();
        if (r.world.rank() == 1) throw core::BackendError("a test", "a call", "it fails");
        c->start({.in = in.buffer, .out = out.buffer});
        test::run_to_end(*c);
      });
    };
    EXPECT_THAT(test::error_of(run), HasSubstr("it fails"));
  });
}

/// The rank's kernel is told to leave: otherwise it would wait for ten minutes, and the rank for it.
TEST_P(GpuPeers, MayNotComeToACallThatIsGivenUp) {
  test::each_device_seed([&] {
    test::run_gpu_ranks(3, [&](const GpuRank& r) {
      const OfRank connection(r);
      const auto in = r.device.allocate(Element::f32, 60000), out = r.device.allocate(Element::f32, 60000);
      const auto c = made(GetParam(), connection.connection(), r.queue, core::Seconds{600});
      if (r.world.rank() == 0) c->start({.in = in.buffer, .out = out.buffer});
    });
  });
}

INSTANTIATE_TEST_SUITE_P(Rows, GpuPeers, ::testing::Values("gpu-direct", "gpu-ring"),
                         [](const auto& p) { return test::test_name(p.param); });

/// Nothing promises that their kernels run at once.
TEST(GpuDirect, RefusesRanksThatShareAGpu) {
  for (const char* const row : {"gpu-direct", "gpu-ring"}) {
    std::vector<std::string> errors(3);
    runtime::run_thread_ranks(3, [&](const runtime::Communicator& world) {
      runtime::CudaDevice device(0);
      const auto queue = device.make_queue();
      const OfRank connection({world, device, *queue});
      errors[static_cast<std::size_t>(world.rank())] = test::error_of([&] {
        (void)find_algorithm(row)->bind(connection.connection(), {.max_bytes = most_bytes, .queue = queue.get()});
      });
      world.barrier();
    });
    EXPECT_THAT(errors[0], HasSubstr("ranks 0 and 1 share the GPU "));
    EXPECT_THAT(errors[0], HasSubstr("start one rank a GPU"));
    EXPECT_THAT(errors, ::testing::Each(errors[0]));
  }
}

TEST(GpuDirect, RefusesWhatIsLongerThanItWasBoundFor) {
  EXPECT_THROW(results({.ranks = 1, .count = most_bytes / sizeof(float) + 1}), core::BackendError);
}

TEST(GpuDirect, RefusesOtherCollectivesAndOtherNodes) {
  const auto direct = find_algorithm("gpu-direct");
  EXPECT_NE(direct->refusal({4, 4}, CollectiveKind::all_gather), "");
  EXPECT_EQ(direct->refusal({4, 2}), "gpu-direct needs all ranks on one node");
  EXPECT_EQ(direct->refusal({4, 4}), "");
}

}  // namespace
}  // namespace gradmeter::allreduce
