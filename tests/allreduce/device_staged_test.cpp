// SPDX-License-Identifier: Apache-2.0
// A collective of the host on a GPU's memory: copies leave before it and arrive after it, on ranks as threads.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <thread>
#include <vector>

#include "allreduce/gpu/stream_collective.hpp"
#include "allreduce/registry.hpp"
#include "runtime/cuda/device.hpp"
#include "runtime/threads/thread_group.hpp"
#include "support/device_seeds.hpp"

namespace gradmeter::allreduce {
namespace {

constexpr std::size_t count = 1000, bytes = count * sizeof(float);
constexpr int ranks = 3, rounds = 3;

float value(int rank, int call, std::size_t i) {
  return static_cast<float>(static_cast<int>(i % 97) * (rank + 1) + call);
}

/// A ring over shared memory behind a queue.
struct Member {
  explicit Member(const runtime::Communicator& world)
      : queue(device.make_queue()),
        network(world, {.transport = runtime::TransportKind::shm, .memory_bytes = 1 << 20}),
        link(network.connect(world, 1)),
        pinned(device.pin(network.arena().memory())),
        in(device.allocate_beside(core::Element::f32, network.arena().take(bytes))),
        out(device.allocate_beside(core::Element::f32, network.arena().take(bytes))),
        staged(std::make_unique<StagedCollective>(
            find_algorithm("ring")->bind({world, network, *link},
                                         {.placement = Placement::out_of_place, .max_bytes = bytes}),
            *queue)) {}
  void start(int rank, int call) {
    queue->submit("fill", {}, [b = in.buffer, rank, call] {
      const auto values = b.values<float>();
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = value(rank, call, i);
    });
    staged->start({.in = in.buffer, .out = out.buffer});
  }

  runtime::CudaDevice device{0};
  std::unique_ptr<runtime::Queue> queue;
  runtime::Network network;
  std::unique_ptr<runtime::Transport> link;
  std::shared_ptr<void> pinned;  ///< copies from and to other memory of the host are not asynchronous
  runtime::OwnedBuffer in, out;
  std::unique_ptr<Collective> staged;
};

TEST(DeviceStaged, HasTheSumsWhenItSaysSo) {
  test::each_device_seed([] {
    runtime::run_thread_ranks(ranks, [](const runtime::Communicator& world) {
      Member m(world);
      const auto other = m.device.make_queue();  // nothing orders it but that the call says it is done
      for (int call = 0; call < rounds; ++call) {
        m.start(world.rank(), call);
        while (!m.staged->advance()) std::this_thread::yield();
        std::vector<float> found;
        other->run_and_wait(
            [&] { found.assign(m.out.buffer.values<float>().begin(), m.out.buffer.values<float>().end()); });
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < count; ++i) {
          float sum = 0;
          for (int r = 0; r < ranks; ++r) sum += value(r, call, i);
          wrong += found[i] == sum ? 0 : 1;
        }
        EXPECT_EQ(wrong, 0U) << "call " << call << ", rank " << world.rank();
      }
      world.barrier();
    });
  });
}

TEST(DeviceStaged, MayEndWhileItsCopiesAreUnderWay) {
  test::each_device_seed([] {
    runtime::run_thread_ranks(1, [](const runtime::Communicator& world) {
      Member m(world);
      m.start(0, 0);
      m.staged.reset();
      m.in = m.out = {};
    });
  });
}

}  // namespace
}  // namespace gradmeter::allreduce
