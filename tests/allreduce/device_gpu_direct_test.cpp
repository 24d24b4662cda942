// SPDX-License-Identifier: Apache-2.0
// The all-reduce that reads its peers' memory: with the bits of the sum in rank order, on ranks as threads. Over
// processes: tests/cli/device_test.py.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "allreduce/reduce.hpp"
#include "allreduce/registry.hpp"
#include "core/element.hpp"
#include "core/error.hpp"
#include "core/random.hpp"
#include "runtime/cuda/device.hpp"
#include "runtime/threads/thread_group.hpp"
#include "support/gpu_ranks.hpp"

namespace gradmeter::allreduce {
namespace {

using core::Element;
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

/// By rank and call.
std::vector<std::vector<Bytes>> results(const DirectCase& c) {
  std::vector<std::vector<Bytes>> all(static_cast<std::size_t>(c.ranks));
  runtime::run_thread_ranks(c.ranks, [&](const runtime::Communicator& world) {
    runtime::CudaDevice device = test::gpu_of_rank(world.rank());
    // Another queue than the call's, which nothing orders but that the call says it is done.
    const auto queue = device.make_queue(), other = device.make_queue();
    runtime::Network network(world, {.transport = runtime::TransportKind::shm, .memory_bytes = 4096});
    const auto link = network.connect(world, 1);
    const auto direct =
        find_algorithm(c.algorithm)->bind({world, network, *link}, {.max_bytes = most_bytes, .queue = queue.get()});
    const std::size_t bytes = c.count * core::size_of(c.element);
    const auto in = device.allocate(Element::i8, bytes), out = device.allocate(Element::i8, bytes);
    const auto typed = [&](const runtime::OwnedBuffer& b) { return runtime::Buffer(c.element, b.buffer.device()); };
    for (int call = 0; call < calls; ++call) {
      Bytes b = given(c, world.rank(), call);
      other->at_once([&] { std::memcpy(in.buffer.host(), b.data(), bytes); });
      direct->start({.in = typed(in), .out = typed(c.in_place ? in : out), .op = c.op, .accumulate = c.accumulate});
      while (!direct->advance()) std::this_thread::yield();
      other->at_once([&] { std::memcpy(b.data(), (c.in_place ? in : out).buffer.host(), bytes); });
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
  if (const auto why = test::lack_of_gpus(3); !why.empty()) GTEST_SKIP() << why;
  test::each_device_seed([] {
    runtime::run_thread_ranks(3, [](const runtime::Communicator& world) {
      runtime::CudaDevice device = test::gpu_of_rank(world.rank());
      const auto queue = device.make_queue();
      runtime::Network network(world, {.transport = runtime::TransportKind::shm, .memory_bytes = 4096});
      const auto link = network.connect(world, 1);
      const auto in = device.allocate(Element::f32, 60000), out = device.allocate(Element::f32, 60000);
      for (const std::size_t count : {100U, 60000U}) {
        const auto direct = find_algorithm("gpu-direct:small=2048")
                                ->bind({world, network, *link}, {.max_bytes = most_bytes, .queue = queue.get()});
        direct->start({.in = in.buffer.part(0, count), .out = out.buffer.part(0, count)});
      }
      queue->synchronise();
    });
  });
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
