// SPDX-License-Identifier: Apache-2.0
// Our schedules over NCCL's messages, against the host's execution of the same schedules: equal bits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "allreduce/gpu/algorithms.hpp"
#include "core/error.hpp"
#include "support/gpu_and_host.hpp"
#include "support/run_to_end.hpp"
#include "support/schedule_shapes.hpp"

namespace gradmeter::allreduce {
namespace {

using test::GpuRank;
using ::testing::HasSubstr;

constexpr std::size_t message_bytes = 512;  ///< so that some thousand elements are many slices
constexpr std::size_t most_bytes = std::size_t{128} << 10;

std::vector<test::CollectiveCase> cases(CollectiveKind kind, std::size_t ranks, Placement placement, std::size_t root) {
  using core::Element;
  std::vector<test::CollectiveCase> out;
  const auto add = [&](Element e, Op op, std::size_t n) {
    out.push_back(test::random_case(kind, ranks, placement, root, {e, op}, n));
  };
  const auto counts = kind == CollectiveKind::all_to_all ? std::vector{ranks, 503 * ranks}
                                                         : std::vector<std::size_t>{0, 1, ranks + 1, 2011};
  for (const std::size_t n : counts) add(Element::f32, reduces(kind) ? Op::average : Op::sum, n);
  if (placement == Placement::in_place) return out;
  const std::size_t n = kind == CollectiveKind::all_to_all ? 131 * ranks : 1001;
  add(Element::bf16, Op::sum, n);
  if (!reduces(kind)) return out;
  add(Element::f64, Op::max, n);
  add(Element::f16, Op::average, n);
  add(Element::i8, Op::product, n);
  add(Element::e4m3, Op::sum, n);
  return out;
}

struct Course {
  std::string schedule;
  CollectiveKind kind;
  int ranks;
};
class NcclMessages : public ::testing::TestWithParam<Course> {};

TEST_P(NcclMessages, HasTheBitsOfTheHost) {
  const auto [schedule, kind, ranks] = GetParam();
  if (const auto why = test::lack_of_gpus(ranks); !why.empty()) GTEST_SKIP() << why;
  const std::uint32_t root = kind == CollectiveKind::broadcast ? static_cast<std::uint32_t>(ranks) - 1 : 0;
  test::each_device_seed([&] {
    test::run_gpu_ranks(ranks, [&](const GpuRank& r) {
      for (const Placement placement : {Placement::in_place, Placement::out_of_place}) {
        test::GpuAndHost pair(r,
                              {.on_gpus = fmt::format("nccl-messages:schedule={},message={}", schedule, message_bytes),
                               .on_host = schedule,
                               .kind = kind,
                               .placement = placement,
                               .root = root,
                               .max_bytes = most_bytes,
                               .message_bytes = message_bytes});
        for (const auto& c : cases(kind, static_cast<std::size_t>(ranks), placement, root))
          EXPECT_EQ(pair.fault(c), "");
      }
    });
  });
}

/// Of ranks that share a node, as threads do.
std::vector<Course> courses() {
  std::vector<Course> out;
  for (const std::string& schedule : test::scheduled_algorithms()) {
    for (const CollectiveKind kind : test::all_goals) {
      for (const int ranks : {1, 2, 3, 4}) {
        const auto p = static_cast<std::uint32_t>(ranks);
        if (find_algorithm(schedule)->refusal({p, p}, kind).empty()) out.push_back({schedule, kind, ranks});
      }
    }
  }
  // Three rounds, in which slices that are under way have values beside their blocks at the same time.
  out.push_back({"recursive-doubling", CollectiveKind::all_reduce, 8});
  return out;
}
INSTANTIATE_TEST_SUITE_P(Schedules, NcclMessages, ::testing::ValuesIn(courses()), [](const auto& p) {
  return test::test_name(fmt::format("{}_{}_p{}", p.param.schedule, name(p.param.kind), p.param.ranks));
});

TEST(NcclMessagesNames, AreThoseOfSchedules) {
  EXPECT_EQ(find_algorithm("nccl-messages")->name, "nccl-messages:message=4M,schedule=ring");
  EXPECT_EQ(find_algorithm("nccl-messages:schedule=torus2d:rows=2")->refusal({4, 1}), "");
  EXPECT_NE(find_algorithm("nccl-messages:schedule=ring")->refusal({4, 1}, CollectiveKind::broadcast), "");
  EXPECT_THAT(test::error_of([] { find_algorithm("nccl-messages:schedule=mpi"); }), HasSubstr("no schedule of ours"));
  EXPECT_THAT(test::error_of([] { find_algorithm("nccl-messages:schedule=rung"); }), HasSubstr("ring"));
  EXPECT_THAT(test::error_of([] { find_algorithm("nccl-messages:message=2"); }), HasSubstr("message=4M"));
  const Arithmetic wide{.element = core::Element::bf16, .op = Op::sum, .wide = true};
  EXPECT_THAT(find_algorithm("nccl-messages")->refusal({4, 4}, CollectiveKind::all_reduce, wide), HasSubstr("direct"));
  EXPECT_EQ(find_algorithm("nccl-messages:schedule=direct")->refusal({4, 4}, CollectiveKind::all_reduce, wide), "");
}

TEST(NcclMessagesErrors, MemoryOfTheHostIsRefused) {
  test::run_gpu_ranks(1, [](const GpuRank& r) {
    runtime::Network network(r.world, {.transport = runtime::TransportKind::shm, .memory_bytes = 4096});
    const auto link = network.connect(r.world, 1);
    const GroupConnection connection{r.world, network, *link};
    EXPECT_THAT(test::error_of([&] { (void)find_algorithm("nccl-messages")->bind(connection, {}); }),
                HasSubstr("--device cuda"));
    const auto bound = find_algorithm("nccl-messages")->bind(connection, {.max_bytes = 64, .queue = &r.queue});
    std::vector<float> v(4), longer(17);
    EXPECT_THAT(test::error_of([&] { bound->start({v, v}); }), HasSubstr("memory of the host"));
    EXPECT_THAT(test::error_of([&] { bound->start({longer, longer}); }), HasSubstr("made for 64 at most"));
  });
}

/// What rank 0's call over a ring of `ranks` ends with, where rank `late` does not come.
std::string late_peer_error(int ranks, int late) {
  std::string error;
  test::run_gpu_ranks(ranks, [&](const GpuRank& r) {
    const auto memory = r.device.allocate(core::Element::f32, 100);  // outlives a call that is given up
    runtime::Network network(r.world, {.transport = runtime::TransportKind::shm, .memory_bytes = 4096});
    const auto link = network.connect(r.world, 1);
    ExchangeSpec o{.max_bytes = 400, .message_bytes = 4096, .queue = &r.queue};
    const auto p = static_cast<std::uint32_t>(ranks);
    const auto c =
        make_nccl_messages({"nccl-messages", find_algorithm("ring")->make({p, p})}, {r.world, network, *link},
                           {.algorithm = {}, .protocol = {}, .timeout = core::Seconds{0.4}}, o);
    if (r.world.rank() != late) c->start({memory.buffer, memory.buffer});
    r.world.barrier();
    if (r.world.rank() == late) return std::this_thread::sleep_for(std::chrono::seconds(1));
    EXPECT_EQ(c->waiting().peer, late);
    const std::string mine = test::error_of([&] { test::run_to_end(*c); });
    if (r.world.rank() == 0) error = mine;
    EXPECT_THAT(test::error_of([&] { c->start({memory.buffer, memory.buffer}); }), HasSubstr("last call was complete"));
  });
  return error;
}

TEST(NcclMessagesErrors, APeerThatDoesNotComeIsNamed) {
  if (const auto why = test::lack_of_gpus(3); !why.empty()) GTEST_SKIP() << why;
  const std::string error = late_peer_error(3, 2);
  EXPECT_THAT(error, HasSubstr("ncclSend and ncclRecv"));
  EXPECT_THAT(error, HasSubstr("without this call so far: rank 2"));
#ifdef GRADMETER_CUDA_EMULATED
  (void)cuda_emulator::take_reports();
#endif
}

#ifdef GRADMETER_CUDA_EMULATED
/// The stream waits for a peer, and the collective must not wait for the stream.
TEST(NcclMessagesErrors, ACallCanBeGivenUp) {
  test::run_gpu_ranks(2, [](const GpuRank& r) {
    const auto memory = r.device.allocate(core::Element::f32, 100);
    runtime::Network network(r.world, {.transport = runtime::TransportKind::shm, .memory_bytes = 4096});
    const auto link = network.connect(r.world, 1);
    auto c = find_algorithm("nccl-messages")->bind({r.world, network, *link}, {.max_bytes = 400, .queue = &r.queue});
    if (r.world.rank() == 0) {
      c->start({memory.buffer, memory.buffer});
      for (int i = 0; i < 10; ++i) EXPECT_FALSE(c->advance());
      c = nullptr;
    }
    r.world.barrier();
  });
  EXPECT_THAT(cuda_emulator::take_reports(), ::testing::IsEmpty());
}

/// What follows NCCL's messages in the stream uses memory that goes with the collective: of a reduce-scatter the last
/// is a sum.
TEST(NcclMessagesErrors, ACallUnderWayCanBeGivenUp) {
  const auto give_up = [](const GpuRank& r, CollectiveKind kind, int polls) {
    const auto memory = r.device.allocate(core::Element::f32, 30'000);
    runtime::Network network(r.world, {.transport = runtime::TransportKind::shm, .memory_bytes = 4096});
    const auto link = network.connect(r.world, 1);
    const ExchangeSpec o{.max_bytes = 120'000, .queue = &r.queue};
    const auto c = find_algorithm("nccl-messages")->bind({r.world, network, *link}, o, kind);
    c->start({memory.buffer, memory.buffer});
    for (int i = 0; i < polls; ++i) (void)c->advance();
  };
  for (const auto kind : {CollectiveKind::all_reduce, CollectiveKind::reduce_scatter}) {
    for (int polls = 1; polls <= 8; ++polls) {
      test::each_device_seed<2>([&] { test::run_gpu_ranks(2, [&](const GpuRank& r) { give_up(r, kind, polls); }); });
    }
  }
}

TEST(NcclMessagesErrors, AnAsynchronousErrorEndsTheCall) {
  std::string error;
  const auto run = [&] {
    test::run_gpu_ranks(2, [&](const GpuRank& r) {
      const auto memory = r.device.allocate(core::Element::f32, 100);
      runtime::Network network(r.world, {.transport = runtime::TransportKind::shm, .memory_bytes = 4096});
      const auto link = network.connect(r.world, 1);
      const auto c =
          find_algorithm("nccl-messages")->bind({r.world, network, *link}, {.max_bytes = 400, .queue = &r.queue});
      c->start({memory.buffer, memory.buffer});
      r.world.barrier();
      if (r.world.rank() == 0) cuda_emulator::fail_nccl(0);
      if (r.world.rank() == 0) error = test::error_of([&] { test::run_to_end(*c); });
      r.world.barrier();
      if (r.world.rank() == 1) throw core::UsageError("the peer is gone");
    });
  };
  EXPECT_THAT(test::error_of(run), HasSubstr("the peer is gone"));
  cuda_emulator::fail_nccl(-1);
  (void)cuda_emulator::take_reports();
  EXPECT_THAT(error, HasSubstr("remote process exited"));
}
#endif

}  // namespace
}  // namespace gradmeter::allreduce
