// SPDX-License-Identifier: Apache-2.0
// Our schedules on GPUs' memory, whose messages are staged, against the host's execution of the same schedules: equal
// bits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "core/error.hpp"
#include "runtime/cuda/device.hpp"
#include "runtime/transport/decorators.hpp"
#include "support/copying_transport.hpp"
#include "support/gpu_and_host.hpp"
#include "support/schedule_shapes.hpp"
#include "support/thread_ranks.hpp"

namespace gradmeter::allreduce {
namespace {

using test::GpuRank;

constexpr std::size_t longest = std::size_t{128} << 10;

std::vector<test::CollectiveCase> staged_cases(CollectiveKind kind, std::size_t ranks, Placement placement,
                                               std::size_t root) {
  using core::Element;
  std::vector<test::CollectiveCase> out;
  const auto add = [&](Element e, Op op, std::size_t n) {
    out.push_back(test::random_case(kind, ranks, placement, root, {e, op}, n));
  };
  const auto counts = kind == CollectiveKind::all_to_all ? std::vector{503 * ranks} : std::vector<std::size_t>{1, 2011};
  for (const std::size_t n : counts) add(Element::f32, reduces(kind) ? Op::average : Op::sum, n);
  if (placement == Placement::in_place) return out;
  add(Element::f32, Op::sum, 0);
  if (reduces(kind)) add(Element::bf16, Op::sum, 1001), add(Element::i8, Op::product, 1001);
  return out;
}

struct Course {
  std::string schedule;
  CollectiveKind kind;
  int ranks;
  bool copies;
};
class StagedSchedules : public ::testing::TestWithParam<Course> {};

TEST_P(StagedSchedules, HaveTheBitsOfTheHost) {
  const auto [schedule, kind, ranks, copies] = GetParam();
  if (const auto why = test::lack_of_gpus(ranks); !why.empty()) GTEST_SKIP() << why;
  const std::uint32_t root = kind == CollectiveKind::broadcast ? static_cast<std::uint32_t>(ranks) - 1 : 0;
  test::each_device_seed([&, over = copies ? &test::CopyingTransport::over : nullptr] {
    test::run_gpu_ranks(ranks, [&](const GpuRank& r) {
      for (const Placement placement : {Placement::in_place, Placement::out_of_place}) {
        test::GpuAndHost pair(r, {.on_gpus = schedule,
                                  .on_host = schedule,
                                  .kind = kind,
                                  .placement = placement,
                                  .root = root,
                                  .max_bytes = longest,
                                  .message_bytes = 512,  // some thousand elements are many slices
                                  .over = over});
        for (const auto& c : staged_cases(kind, static_cast<std::size_t>(ranks), placement, root))
          EXPECT_EQ(pair.fault(c), "");
      }
    });
  });
}

/// Of ranks that share a node, as threads do: peers' memory is read, or messages land.
std::vector<Course> staged_courses() {
  std::vector<Course> out;
  for (const std::string& schedule : test::scheduled_algorithms()) {
    for (const CollectiveKind kind : test::all_goals) {
      for (const int ranks : {2, 3, 4}) {
        const auto p = static_cast<std::uint32_t>(ranks);
        if (find_algorithm(schedule)->refusal({p, p}, kind).empty())
          out.push_back({schedule, kind, ranks, out.size() % 2 == 1});
      }
    }
  }
  return out;
}
INSTANTIATE_TEST_SUITE_P(Schedules, StagedSchedules, ::testing::ValuesIn(staged_courses()), [](const auto& p) {
  return test::test_name(fmt::format("{}_{}_p{}_{}", p.param.schedule, name(p.param.kind), p.param.ranks,
                                     p.param.copies ? "copies" : "reads"));
});

/// Peers whose memory is read have it until then, although the bytes are found at once.
TEST(StagedMessages, AreDoneWhenThePeersDeviceHasThem) {
  test::each_device_seed([] {
    test::ThreadGroup group(2, 1);
    std::vector<std::byte> memory(4096);
    runtime::CudaDevice device(0);
    const auto from = device.allocate_beside(core::Element::i8, std::span(memory).first(2048));
    const auto to = device.allocate_beside(core::Element::i8, std::span(memory).last(2048));
    const auto inner_sender = group.transport(0), inner_receiver = group.transport(1);
    runtime::StagedTransport sender(*inner_sender, device), receiver(*inner_receiver, device);
    const auto span_of = [](const runtime::OwnedBuffer& b) {
      return std::span(b.buffer.device().device_address(), b.buffer.bytes());
    };
    auto received = receiver.receive(0, 0, span_of(to)), sent = sender.send(1, 0, span_of(from));
    while (!receiver.try_receive(received)) {
      EXPECT_FALSE(sender.send_done(sent));
      sender.progress();
    }
    receiver.release(received);
    EXPECT_TRUE(sender.send_done(sent));
  });
}

TEST(StagedSchedulesErrors, MemoryThatTransportsDoNotReachIsRefused) {
  test::run_gpu_ranks(1, [](const GpuRank& r) {
    runtime::Network network(r.world, {.transport = runtime::TransportKind::shm, .memory_bytes = 1 << 16});
    const auto link = network.connect(r.world, 1);
    const auto bound = find_algorithm("ring")->bind({r.world, network, *link}, {.max_bytes = 64, .queue = &r.queue});
    EXPECT_TRUE(bound->works_on_device_memory());
    std::vector<float> host(4);
    EXPECT_THROW(bound->start({host, host}), core::BackendError);
    const auto unmapped = r.device.allocate(core::Element::f32, 4);
    EXPECT_THROW(bound->start({unmapped.buffer, unmapped.buffer}), std::logic_error);
  });
}

}  // namespace
}  // namespace gradmeter::allreduce
