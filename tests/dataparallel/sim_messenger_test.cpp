// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>

#include "core/random.hpp"
#include "support/sim_machine.hpp"
#include "support/sim_messages.hpp"

namespace gradmeter::dataparallel {
namespace {

using test::failure;
using test::got;
using test::slow_machine;
using test::write;
using test::written;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr double header = sizeof(MessageHeader);  // takes so many seconds on the slow machine

TEST(SimMessenger, WorkersWriteToServersAndServersToWorkers) {
  SimWorld(2, slow_machine()).run([](Fabric& f) {
    const Ports ports = f.open(everybody, {});
    if (f.rank() == 1) {
      const auto t = write(*ports.worker, 0, {.clock = 7, .bytes = 8}, 1);
      EXPECT_EQ(t->label(), "push");
      EXPECT_EQ(t->completion().bytes_sent, 8u) << "the header is none";
      EXPECT_EQ(t->completion().bytes_required, 8u);
      EXPECT_DOUBLE_EQ(t->completion().finished, header + 8) << "though it takes time";
      const auto answer = ports.worker->next("an answer");
      ASSERT_TRUE(answer);
      EXPECT_EQ(answer->from, 0);
      EXPECT_EQ(answer->header.clock, 8u);
      EXPECT_EQ(got(*answer), written(0, 4));
      EXPECT_DOUBLE_EQ(f.now(), 2 * (header + 1) + 8 + 4);
    } else {
      const auto message = ports.server->next("a push");
      ASSERT_TRUE(message);
      EXPECT_EQ(message->from, 1);
      EXPECT_FALSE(message->is_failure_notice);
      EXPECT_EQ(message->header.clock, 7u);
      EXPECT_EQ(got(*message), written(1, 8));
      EXPECT_DOUBLE_EQ(f.now(), header + 8 + 1);
      write(*ports.server, 1, {.clock = 8, .bytes = 4}, 0);
      EXPECT_FALSE(ports.worker->poll()) << "the worker's own port got nothing";
    }
  });
}

TEST(SimMessenger, ToOneselfTakesNoTimeAndIsNoTraffic) {
  SimWorld(2, slow_machine()).run([](Fabric& f) {
    const Ports ports = f.open(everybody, {.payload_bytes = 64, .in_flight = 1});
    if (f.rank() == 1) return;
    for (int i = 0; i < 3; ++i) {
      const auto t = write(*ports.worker, 0, {.sequence = std::uint64_t(i), .bytes = 16});  // none is on its way
      EXPECT_TRUE(t->done());
      EXPECT_EQ(t->completion().bytes_sent, 0u);
      EXPECT_EQ(t->completion().bytes_required, 0u);
    }
    for (std::uint64_t i = 0; i < 3; ++i) {
      const auto message = ports.server->poll();
      ASSERT_TRUE(message);
      EXPECT_EQ(message->header.sequence, i);
      EXPECT_EQ(got(*message), written(0, 16));
    }
    EXPECT_EQ(f.now(), 0);
    write(*ports.worker, 1, {.bytes = 16});
    EXPECT_FALSE(ports.worker->draft(1, 16)) << "to another rank it is on its way";
  });
}

/// When the last of `workers` messages is there, if each goes to the server that `server_of` names.
double last_arrival(int workers, const std::function<int(int)>& server_of) {
  double last = 0;
  SimWorld(workers, slow_machine()).run([&](Fabric& f) {
    const Ports ports = f.open(everybody, {});
    int due = 0;
    for (int r = 0; r < workers; ++r) due += server_of(r) == f.rank() && r != f.rank() ? 1 : 0;
    if (server_of(f.rank()) != f.rank()) write(*ports.worker, server_of(f.rank()), {.bytes = 12});
    for (; due > 0; --due) {
      EXPECT_TRUE(ports.server->next("a push"));
      last = std::max(last, f.now());
    }
  });
  return last;
}

TEST(SimMessenger, AServerTakesInOneMessageAtATime) {
  EXPECT_DOUBLE_EQ(last_arrival(2, [](int) { return 0; }), 1 + 100);
  EXPECT_DOUBLE_EQ(last_arrival(9, [](int) { return 0; }), 1 + 8 * 100);
  EXPECT_DOUBLE_EQ(last_arrival(10, [](int r) { return r % 2; }), 1 + 4 * 100) << "two servers halve it";
  EXPECT_DOUBLE_EQ(last_arrival(10, [](int r) { return (r + 1) % 10; }), 1 + 100) << "to each its own";
}

TEST(SimMessenger, EarlierFirstBytesComeFirstWhoeverPostedFirst) {
  std::vector<std::pair<int, double>> came;
  SimWorld(4, slow_machine()).run([&](Fabric& f) {
    const Ports ports = f.open(everybody, {});
    if (f.rank() == 1) {
      write(*ports.worker, 3, {.bytes = 912});  // keeps its port busy for 1000 s
      write(*ports.worker, 0, {.bytes = 12});
    } else if (f.rank() == 2) {
      f.submit("later", {.flops = 5}, [] {});
      write(*ports.worker, 0, {.bytes = 12});
    } else if (f.rank() == 0) {
      for (int i = 0; i < 2; ++i) {
        const auto message = ports.server->next("a push");
        came.emplace_back(message->from, f.now());
      }
    }
  });
  EXPECT_THAT(came, ElementsAre(std::pair(2, 106.0), std::pair(1, 1101.0)));
}

TEST(SimMessenger, AmongEqualTimesTheLowerRankComesFirst) {
  SimMachine m = slow_machine();
  m.machine.within_node.bandwidth = {{.bytes_per_s = 1e30}};
  std::vector<int> came;
  SimWorld(6, m).run([&](Fabric& f) {
    const Ports ports = f.open(everybody, {});
    if (f.rank() > 0) {
      for (const auto order : {0u, 1u}) write(*ports.worker, 0, {.sequence = order, .bytes = 4});
      return;
    }
    for (int i = 0; i < 10; ++i) {
      const auto message = ports.server->next("a push");
      came.push_back(message->from * 10 + int(message->header.sequence));
    }
  });
  EXPECT_THAT(came, ElementsAre(10, 11, 20, 21, 30, 31, 40, 41, 50, 51));
}

TEST(SimMessenger, AFullPortRefusesADraftAndSaysWhenThereIsRoom) {
  SimWorld(3, slow_machine()).run([](Fabric& f) {
    const Ports ports = f.open(everybody, {.payload_bytes = 100, .in_flight = 2});
    if (f.rank() != 0) return;
    write(*ports.worker, 1, {.bytes = 12});
    write(*ports.worker, 1, {.bytes = 12});
    EXPECT_FALSE(ports.worker->draft(1, 12));
    EXPECT_TRUE(ports.worker->draft(2, 12)) << "to another rank there is room";
    EXPECT_FALSE(ports.worker->next("room"));
    EXPECT_DOUBLE_EQ(f.now(), 100) << "the first is out";
    write(*ports.worker, 1, {.bytes = 12});
    EXPECT_FALSE(ports.worker->next("nothing", 250));
    EXPECT_DOUBLE_EQ(f.now(), 250) << "nobody was refused: the second's leaving at 200 s wakes nobody";
    EXPECT_TRUE(ports.worker->draft(1, 0)) << "an empty one is room all the same";
  });
}

TEST(SimMessenger, RoomThatCameMeanwhileIsSaidAtOnce) {
  SimWorld(2, slow_machine()).run([](Fabric& f) {
    const Ports ports = f.open(everybody, {.payload_bytes = 100, .in_flight = 1});
    if (f.rank() != 0) return;
    write(*ports.worker, 1, {.bytes = 12});
    EXPECT_FALSE(ports.worker->draft(1, 12));
    f.submit("work", {.flops = 500}, [] {});
    EXPECT_FALSE(ports.worker->next("room"));
    EXPECT_DOUBLE_EQ(f.now(), 500);
  });
}

TEST(SimMessenger, ADeadlineIsKeptAndAPollTakesNoTime) {
  SimWorld(2, slow_machine()).run([](Fabric& f) {
    const Ports ports = f.open(everybody, {});
    if (f.rank() == 1) {
      f.submit("work", {.flops = 50}, [] {});
      write(*ports.worker, 0, {.bytes = 12});
      return;
    }
    EXPECT_FALSE(ports.server->poll());
    EXPECT_EQ(f.now(), 0);
    EXPECT_FALSE(ports.server->next("a push", 60));
    EXPECT_DOUBLE_EQ(f.now(), 60);
    EXPECT_FALSE(ports.server->next("a push", 150.5)) << "half a second too early";
    EXPECT_TRUE(ports.server->next("a push", 1000));
    EXPECT_DOUBLE_EQ(f.now(), 151);
  });
}

TEST(SimMessenger, SplitGroupsHaveMailOfTheirOwn) {
  SimWorld(4, slow_machine()).run([](Fabric& f) {
    const Group half = f.split(f.rank() % 2, -f.rank());
    const Ports ours = f.open(half, {}), all = f.open(everybody, {});
    write(*ours.worker, 1 - f.rank(half), {.clock = std::uint64_t(f.rank()), .bytes = 4}, f.rank());
    const auto message = ours.server->next("a push");
    EXPECT_EQ(message->from, 1 - f.rank(half));
    EXPECT_EQ(message->header.clock, std::uint64_t((f.rank() + 2) % 4));
    EXPECT_FALSE(all.server->poll());
  });
}

TEST(SimMessenger, WrongUseIsRefused) {
  auto with_ports = [](const std::function<void(Port&)>& use) {
    return failure(2, [&](Fabric& f) {
      const Ports ports = f.open(everybody, {.payload_bytes = 8});
      if (f.rank() == 0) use(*ports.worker);
    });
  };
  EXPECT_THAT(with_ports([](Port& p) { (void)p.draft(1, 9); }), HasSubstr("opened for 8 at most"));
  EXPECT_THAT(with_ports([](Port& p) { (void)p.draft(2, 8); }), HasSubstr("no rank 2"));
  EXPECT_THAT(with_ports([](Port& p) { (void)p.post(1, {}, "push"); }), HasSubstr("without a draft"));
  EXPECT_THAT(with_ports([](Port& p) {
                (void)p.draft(1, 4);
                (void)p.post(1, {.bytes = 5}, "push");
              }),
              HasSubstr("without a draft of that length"));
  EXPECT_EQ(with_ports([](Port& p) {
              (void)p.draft(1, 8);
              (void)p.post(1, {.bytes = 5}, "push");
            }),
            "no failure");
  EXPECT_THAT(failure(2, [](Fabric& f) { (void)f.open(everybody, {.in_flight = 1 + f.rank()}); }),
              HasSubstr("other options"));
  EXPECT_THAT(failure(2, [](Fabric& f) { (void)f.open(everybody, {.in_flight = 0}); }), HasSubstr("use 1"));
}

TEST(SimMessenger, WhoeverWaitsForMailForEverIsNamed) {
  EXPECT_THAT(failure(2,
                      [](Fabric& f) {
                        const Ports ports = f.open(everybody, {});
                        if (f.rank() == 1) (void)ports.worker->next("the weights");
                      }),
              HasSubstr("rank 1 waits for the weights"));
}

TEST(SimMessenger, PlainMessagesShareTheReceiversPortToo) {
  SimWorld(3, slow_machine()).run([](Fabric& f) {
    std::vector<float> a(5), b(5);
    if (f.rank() > 0) return f.wait(f.send(everybody, 0, std::span<const float>(a)));
    const auto second = f.receive(everybody, 2, test::whole(b)), first = f.receive(everybody, 1, test::whole(a));
    f.wait(second);
    EXPECT_DOUBLE_EQ(f.now(), 1 + 40);
    EXPECT_TRUE(first->done());
    EXPECT_DOUBLE_EQ(first->completion().finished, 1 + 20);
  });
}

/// Workers push to servers that answer, with jitter: end times and a digest of the order in which messages arrived.
std::pair<std::vector<double>, std::vector<std::uint64_t>> busy_run(int workers, int servers, int rounds,
                                                                    std::uint64_t seed) {
  SimMachine m;
  m.slowdown = [seed](int rank, std::uint64_t n) {
    return 1 + core::Random(seed, static_cast<std::uint64_t>(rank)).uniform(n);
  };
  std::vector<std::uint64_t> digests(static_cast<std::size_t>(servers), 0);
  auto end = SimWorld(workers, m).run([&](Fabric& f) {
    const Ports ports = f.open(everybody, {.payload_bytes = 256});
    std::unique_ptr<BackgroundTask> server;
    if (f.rank() < servers) {
      server = f.launch([&](ExecutionContext& mine) {
        auto& digest = digests[static_cast<std::size_t>(mine.rank())];
        for (int due = workers * rounds; due > 0; --due) {
          const auto message = ports.server->next("a push");
          digest = digest * 31 + static_cast<std::uint64_t>(message->from) + 1;
          mine.submit("apply", {.flops = 1e3}, [] {});
          write(*ports.server, message->from, {.clock = message->header.clock, .bytes = 128});
        }
      });
    }
    for (int i = 0; i < rounds; ++i) {
      f.submit("step", {.flops = 1e6}, [] {});
      for (int s = 0; s < servers; ++s) write(*ports.worker, s, {.clock = std::uint64_t(i), .bytes = 256});
      for (int s = 0; s < servers; ++s) EXPECT_EQ(ports.worker->next("the weights")->header.clock, std::uint64_t(i));
    }
    if (server) server->join();
  });
  return {end, digests};
}

TEST(SimMessenger, EqualInputsGiveEqualRuns) {
  const auto first = busy_run(7, 3, 4, 1);
  for (int i = 0; i < 5; ++i) ASSERT_EQ(busy_run(7, 3, 4, 1), first);
  const auto other = busy_run(7, 3, 4, 2);
  EXPECT_NE(other.first, first.first);
  EXPECT_NE(other.second, first.second) << "the jitter changes who comes first";
}

TEST(SimMessenger, ThreeHundredWorkersRunInSeconds) {
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(busy_run(300, 4, 2, 1).first.size(), 300u);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
}

}  // namespace
}  // namespace gradmeter::dataparallel
