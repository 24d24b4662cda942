// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tuple>

#include "core/error.hpp"
#include "core/random.hpp"
#include "support/sim_machine.hpp"
#include "support/sim_messages.hpp"

namespace gradmeter::dataparallel {
namespace {

using test::failure;
using test::slow_machine;
using test::values;
using test::whole;
using test::write;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

TEST(SimFaults, AFateIsAskedForEachFlightOnce) {
  std::vector<std::tuple<int, int, Role, std::uint64_t>> asked;
  SimMachine m = slow_machine();
  m.delivery_fault = [&](const MessageRoute& x) {
    asked.emplace_back(x.from, x.to, x.to_role, x.number);
    return DeliveryFault{};
  };
  SimWorld(4, m).run([](Fabric& f) {
    const Group half = f.split(f.rank() / 2, f.rank());
    const Ports ports = f.open(half, {});
    if (f.rank() != 2) return;
    write(*ports.worker, 1, {.bytes = 4});
    write(*ports.worker, 0, {.bytes = 4});  // to itself: nothing can happen to it
    write(*ports.worker, 1, {.bytes = 4});
    write(*ports.server, 1, {.bytes = 4});
  });
  EXPECT_THAT(asked, ElementsAre(std::tuple(2, 3, Role::server, 0), std::tuple(2, 3, Role::server, 1),
                                 std::tuple(2, 3, Role::worker, 0)))
      << "ranks are those of everybody";
}

TEST(SimFaults, OnlyMailHasThem) {
  SimMachine m = slow_machine();
  m.delivery_fault = [](const MessageRoute&) { return DeliveryFault{.copies = 0}; };
  SimWorld(2, m).run([](Fabric& f) {
    const Ports ports = f.open(everybody, {});
    auto v = values(f.rank(), 4), w = v;
    f.wait(f.broadcast(everybody, whole(v), 0));
    EXPECT_EQ(v, values(0, 4));
    if (f.rank() == 0) {
      f.wait(f.send(everybody, 1, std::span<const float>(w)));
    } else {
      f.wait(f.receive(everybody, 0, whole(w)));
      EXPECT_EQ(w, values(0, 4));
    }
    write(*ports.worker, f.rank(), {.bytes = 4});
    EXPECT_TRUE(ports.server->poll()) << "to itself";
    write(*ports.worker, 1 - f.rank(), {.bytes = 4});
    EXPECT_FALSE(ports.server->next("a push", f.now() + 1000)) << "the control: this one is lost";
  });
}

SimMachine machine_where(std::vector<RankFailure> failures) {
  SimMachine m = slow_machine();
  m.failures = std::move(failures);
  return m;
}

TEST(SimRankFailure, EndsTheRanksProgramsInTheMidstOfWhatTheyDo) {
  double worker_saw = 0, beside_saw = 0;
  const auto end = SimWorld(2, machine_where({{.rank = 1, .at_s = 25}})).run([&](Fabric& f) {
    const auto background = f.launch([&](ExecutionContext& mine) {
      for (int i = 0; i < 10; ++i) {
        mine.submit("serve", {.flops = 4}, [] {});
        if (mine.rank() == 1) beside_saw = mine.now();
      }
    });
    for (int i = 0; i < 5; ++i) {
      f.submit("work", {.flops = 10}, [] {});
      if (f.rank() == 1) worker_saw = f.now();
    }
    background->join();
  });
  EXPECT_THAT(end, ElementsAre(50, 25));
  EXPECT_EQ(worker_saw, 20);
  EXPECT_EQ(beside_saw, 24);
}

TEST(SimRankFailure, IsHeardThroughEveryPort) {
  std::vector<std::tuple<int, int, double>> heard;  // rank, who died, when
  auto listen = [&](Port& port, const ExecutionContext& f) {
    while (const auto message = port.next("news", 100)) {
      EXPECT_TRUE(message->is_failure_notice);
      EXPECT_TRUE(message->payload.empty());
      heard.emplace_back(f.rank(), message->from, f.now());
    }
  };
  SimWorld(3, machine_where({{.rank = 1, .at_s = 25}, {.rank = 2, .at_s = 50}})).run([&](Fabric& f) {
    const Ports ports = f.open(everybody, {});
    const auto background = f.launch([&](ExecutionContext& mine) { listen(*ports.server, mine); });
    listen(*ports.worker, f);
    background->join();
  });
  EXPECT_THAT(heard, ::testing::UnorderedElementsAre(std::tuple(0, 1, 26), std::tuple(0, 1, 26), std::tuple(2, 1, 26),
                                                     std::tuple(2, 1, 26), std::tuple(0, 2, 51), std::tuple(0, 2, 51)));
}

TEST(SimRankFailure, OfNobodyIsHeardByNobody) {
  SimWorld(2, machine_where({})).run([](Fabric& f) {
    const Ports ports = f.open(everybody, {});
    EXPECT_FALSE(ports.worker->next("news", 100));
    EXPECT_FALSE(ports.server->next("news", 200));
  });
}

TEST(SimRankFailure, WhatHadLeftStillComesAndWhatHadNotDoesNot) {
  auto heard = [](double death) {
    std::string text;
    SimWorld(2, machine_where({{.rank = 1, .at_s = death}})).run([&](Fabric& f) {
      const Ports ports = f.open(everybody, {});
      if (f.rank() == 1) {
        write(*ports.worker, 0, {.bytes = 12});
        write(*ports.worker, 0, {.bytes = 12});
        (void)ports.worker->next("an answer");
        return;
      }
      while (const auto message = ports.server->next("a push", 1000)) text += message->is_failure_notice ? 'x' : 'm';
    });
    return text;
  };
  EXPECT_EQ(heard(99), "x");
  EXPECT_EQ(heard(100), "mx");
  EXPECT_EQ(heard(200), "mmx");
}

TEST(SimRankFailure, ADeadlockNamesWhoDied) {
  const auto m = machine_where({{.rank = 3, .at_s = 0.125}});
  const auto late = [](Fabric& f) {
    if (f.rank() == 3) f.submit("work", {.flops = 10}, [] {});
  };
  EXPECT_THAT(failure(4, m,
                      [&](Fabric& f) {
                        late(f);
                        std::vector<float> v(1);
                        f.wait(f.all_reduce(everybody, whole(v), allreduce::Op::sum));
                      }),
              HasSubstr("rank 3 died at 0.125 s; rank 0 waits for all-reduce ring; rank 1 waits"));
  EXPECT_THAT(failure(4, m,
                      [&](Fabric& f) {
                        late(f);
                        std::vector<float> v(1);
                        if (f.rank() == 0) f.wait(f.receive(everybody, 3, whole(v)));
                      }),
              HasSubstr("rank 3 died at 0.125 s; rank 0 waits for a message from rank 3"));
  EXPECT_THAT(failure(4,
                      [&](Fabric& f) {
                        late(f);
                        std::vector<float> v(1);
                        f.wait(f.all_reduce(everybody, whole(v), allreduce::Op::sum));
                      }),
              "no failure");
}

TEST(SimRankFailure, InTheMidstOfACollectiveBreaksIt) {
  // Every rank is there in time; an all-reduce of 8 bytes on two ranks takes 10 s.
  auto with_death_at = [](double t) {
    return failure(2, machine_where({{.rank = 1, .at_s = t}}), [](Fabric& f) {
      auto v = values(f.rank(), 2);
      f.wait(f.all_reduce(everybody, whole(v), allreduce::Op::sum));
    });
  };
  EXPECT_THAT(with_death_at(9), HasSubstr("rank 1 died at 9 s; rank 0 waits for all-reduce"));
  EXPECT_EQ(with_death_at(10), "no failure");
}

TEST(SimRankFailure, SplitsTakeTheDeadForMissing) {
  EXPECT_THAT(failure(3, machine_where({{.rank = 1, .at_s = 0}}), [](Fabric& f) { (void)f.split(0, 0); }),
              HasSubstr("rank 1 died at 0 s; rank 0 waits for the others to split"));
}

TEST(SimRankFailure, OfARankThatIsNotThereIsRefused) {
  EXPECT_THROW(SimWorld(2, machine_where({{.rank = 2}})), core::UsageError);
}

/// Messages with jitter, losses, duplicates, delays and a death; who received what and when.
std::vector<std::tuple<int, int, std::uint64_t, double>> eventful_run(std::uint64_t seed) {
  SimMachine m;
  const core::Random jitter(seed, 0), chance(seed, 1);
  m.slowdown = [jitter](int rank, std::uint64_t n) { return 1 + jitter.uniform(n * 64 + std::uint64_t(rank)); };
  m.delivery_fault = [chance](const MessageRoute& x) {
    const double u = chance.uniform((x.number * 64 + std::uint64_t(x.from)) * 64 + std::uint64_t(x.to));
    return DeliveryFault{.copies = u < 0.2 ? 0 : u < 0.4 ? 2 : 1, .delay_s = {u * 1e-5, 2e-5}};
  };
  m.failures = {{.rank = 4, .at_s = 3e-5}};
  std::vector<std::tuple<int, int, std::uint64_t, double>> heard;
  SimWorld(6, m).run([&](Fabric& f) {
    const Ports ports = f.open(everybody, {.payload_bytes = 256});
    for (std::uint64_t i = 0; i < 6; ++i) {
      f.submit("work", {.flops = 1e6}, [] {});
      for (int to = 0; to < f.size(); ++to) write(*ports.worker, to, {.sequence = i, .bytes = 100});
      while (const auto message = ports.server->poll()) {
        heard.emplace_back(f.rank(), message->from, message->is_failure_notice ? 99 : message->header.sequence,
                           f.now());
      }
    }
  });
  return heard;
}

TEST(SimFaults, EqualInputsGiveEqualRuns) {
  const auto first = eventful_run(1);
  EXPECT_THAT(first, Not(IsEmpty()));
  for (int i = 0; i < 5; ++i) ASSERT_EQ(eventful_run(1), first);
  EXPECT_NE(eventful_run(2), first);
}

}  // namespace
}  // namespace gradmeter::dataparallel
