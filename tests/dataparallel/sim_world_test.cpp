// SPDX-License-Identifier: Apache-2.0
#include "dataparallel/fabric/simulation/world.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "core/error.hpp"
#include "core/random.hpp"
#include "support/machines.hpp"
#include "support/sim_machine.hpp"

namespace gradmeter::dataparallel {
namespace {

using allreduce::Op;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using test::failure;
using test::slow_machine;
using test::value_at;
using test::values;
using test::whole;

TEST(SimWorld, AllReduceGivesEveryRankTheAnswer) {
  for (const auto* algorithm : {"ring", "recursive-doubling"}) {
    for (const int p : {1, 2, 3, 5, 8}) {
      for (const std::size_t n : {0u, 1u, 2u, 100u}) {
        for (const Op op : {Op::sum, Op::average, Op::min, Op::max}) {
          SimMachine m = slow_machine();
          m.algorithm = allreduce::find_algorithm(algorithm);
          SimWorld(p, m).run([&](Fabric& f) {
            auto v = values(f.rank(), n);
            f.wait(f.all_reduce(everybody, whole(v), op));
            for (std::size_t i = 0; i < n; ++i) {
              double sum = 0, least = 2, most = -2;
              for (int r = 0; r < p; ++r) {
                sum += value_at(r, i);
                least = std::min<double>(least, value_at(r, i)), most = std::max<double>(most, value_at(r, i));
              }
              const double expected = op == Op::sum ? sum : op == Op::average ? sum / p : op == Op::min ? least : most;
              ASSERT_NEAR(v[i], expected, 1e-6 * p) << algorithm << " p " << p << " op " << int(op);
            }
          });
        }
      }
    }
  }
}

TEST(SimWorld, ARingTakesHockneysTime) {
  SimMachine m;
  m.machine = gradmeter::test::linked(3, 2, 4, m.machine);
  for (const int p : {1, 2, 4, 8}) {
    const std::size_t n = 64;
    const double block = double(n) * 4 / p;
    const double expected = 2 * (p - 1) * (3 + block / 2) + (p - 1) * block / 4;
    const auto end = SimWorld(p, m).run([&](Fabric& f) {
      auto v = values(f.rank(), n);
      const auto t = f.all_reduce(everybody, whole(v), Op::sum);
      f.wait(t);
      EXPECT_DOUBLE_EQ(t->completion().finished - t->completion().started, expected);
      EXPECT_DOUBLE_EQ(double(t->completion().bytes_sent), 2 * (p - 1) * block);
      EXPECT_EQ(t->completion().bytes_required, t->completion().bytes_sent);
    });
    EXPECT_THAT(end, Each(::testing::DoubleEq(expected))) << p;
  }
}

TEST(SimWorld, ABroadcastReachesAllFromEveryRoot) {
  for (const int p : {1, 2, 5}) {
    for (int root = 0; root < p; ++root) {
      SimWorld(p, slow_machine()).run([&](Fabric& f) {
        auto v = values(f.rank(), 10);
        f.wait(f.broadcast(everybody, whole(v), root));
        EXPECT_EQ(v, values(root, 10)) << p << " root " << root;
      });
    }
  }
}

TEST(SimWorld, CollectivesOfOneRankRunOneAfterAnother) {
  const auto end = SimWorld(2, slow_machine()).run([](Fabric& f) {
    auto a = values(f.rank(), 2), b = values(f.rank(), 2);
    const auto first = f.all_reduce(everybody, whole(a), Op::sum), second = f.all_reduce(everybody, whole(b), Op::sum);
    f.wait(second);
    EXPECT_DOUBLE_EQ(first->completion().finished, 10);  // two rounds of one second and four bytes
    EXPECT_DOUBLE_EQ(second->completion().started, 10);
    EXPECT_DOUBLE_EQ(second->completion().posted, 0);
    f.wait(first);
  });
  EXPECT_THAT(end, Each(20));
}

TEST(SimWorld, ACallRunsUnderTheComputationThatFollowsIt) {
  const auto end = SimWorld(2, slow_machine()).run([](Fabric& f) {
    auto v = values(f.rank(), 2);
    const auto t = f.all_reduce(everybody, whole(v), Op::sum);
    EXPECT_FALSE(t->done());
    f.submit("work", {.flops = 7}, [] {});
    EXPECT_FALSE(t->done());
    f.submit("work", {.flops = 7}, [] {});
    EXPECT_TRUE(t->done());
    f.wait(t);
  });
  EXPECT_THAT(end, Each(14));
}

TEST(SimWorld, TheLastToComeHoldsUpItsPeers) {
  const auto end = SimWorld(4, slow_machine()).run([](Fabric& f) {
    if (f.rank() == 2) f.submit("late", {.flops = 100}, [] {});
    auto v = values(f.rank(), 4);
    f.wait(f.all_reduce(everybody, whole(v), Op::sum));
  });
  for (const double e : end) {
    EXPECT_GE(e, 100 + 5);
    EXPECT_LE(e, 100 + 6 * 5);
  }
}

TEST(SimWorld, AComputationTakesTheSlowerOfItsFlopsAndItsBytes) {
  SimMachine m;
  m.machine.flops_per_s = 10;
  m.machine.memory_bytes_per_s = 2;
  EXPECT_THAT(SimWorld(1, m).run([](Fabric& f) { f.submit("a", {.flops = 40, .bytes = 2}, [] {}); }), ElementsAre(4));
  EXPECT_THAT(SimWorld(1, m).run([](Fabric& f) { f.submit("a", {.flops = 40, .bytes = 18}, [] {}); }), ElementsAre(9));
}

TEST(SimWorld, AStragglerIsSlowedExactlyAsItSays) {
  SimMachine m = slow_machine();
  m.slowdown = [](int rank, std::uint64_t n) { return rank == 1 && n % 2 == 0 ? 3.0 : 1.0; };
  const auto end = SimWorld(3, m).run([](Fabric& f) {
    for (int i = 0; i < 4; ++i) f.submit("work", {.flops = 10}, [] {});
  });
  EXPECT_THAT(end, ElementsAre(40, 80, 40));
}

TEST(SimWorld, MessagesArriveInOrderAndShareTheSendersPort) {
  SimWorld(2, slow_machine()).run([](Fabric& f) {
    if (f.rank() == 0) {
      auto a = values(1, 2), b = values(2, 3);
      const auto first = f.send(everybody, 1, std::span<const float>(a));
      const auto second = f.send(everybody, 1, std::span<const float>(b));
      EXPECT_EQ(first->completion().bytes_sent, 8u);
      f.wait(first);
      EXPECT_DOUBLE_EQ(f.now(), 8);  // its own port is free again; the message is under way
      f.wait(second);
      EXPECT_DOUBLE_EQ(f.now(), 20);
    } else {
      std::vector<float> a(2), b(3);
      f.wait(f.receive(everybody, 0, whole(a)));
      EXPECT_DOUBLE_EQ(f.now(), 9);  // eight bytes and a latency
      f.wait(f.receive(everybody, 0, whole(b)));
      EXPECT_DOUBLE_EQ(f.now(), 21);
      EXPECT_EQ(a, values(1, 2));
      EXPECT_EQ(b, values(2, 3));
    }
  });
}

TEST(SimWorld, AMessageThatIsThereAlreadyCostsTheReceiverNoTime) {
  SimWorld(2, slow_machine()).run([](Fabric& f) {
    std::vector<float> v = values(f.rank(), 2);
    if (f.rank() == 0) {
      f.wait(f.send(everybody, 1, std::span<const float>(v)));
    } else {
      f.submit("busy", {.flops = 100}, [] {});
      f.wait(f.receive(everybody, 0, whole(v)));
      EXPECT_DOUBLE_EQ(f.now(), 100);
      EXPECT_EQ(v, values(0, 2));
    }
  });
}

TEST(SimWorld, ASentBufferMayChangeOnceTheSendIsDone) {
  SimWorld(2, slow_machine()).run([](Fabric& f) {
    std::vector<float> v = values(f.rank(), 2);
    if (f.rank() == 0) {
      f.wait(f.send(everybody, 1, std::span<const float>(v)));
      v = {0, 0};
    } else {
      f.submit("busy", {.flops = 100}, [] {});
      f.wait(f.receive(everybody, 0, whole(v)));
      EXPECT_EQ(v, values(0, 2));
    }
  });
}

TEST(SimWorld, MessagesDoNotWaitForCollectives) {
  SimWorld(2, slow_machine()).run([](Fabric& f) {
    auto v = values(f.rank(), 4);
    std::vector<float> word(1);
    if (f.rank() == 0) {
      const auto t = f.all_reduce(everybody, whole(v), Op::sum);
      f.wait(f.send(everybody, 1, std::span<const float>(word)));
      f.wait(t);
    } else {
      f.wait(f.receive(everybody, 0, whole(word)));  // before it joins the collective
      f.wait(f.all_reduce(everybody, whole(v), Op::sum));
    }
  });
}

TEST(SimWorld, ASplitMakesGroupsByColourInTheOrderOfTheirKeys) {
  static constexpr int p = 7;
  SimWorld(p, slow_machine()).run([](Fabric& f) {
    const int world = f.rank(), color = world % 2;
    const Group g = f.split(color, -world);  // highest first
    const int size = color == 0 ? 4 : 3;
    EXPECT_EQ(f.size(g), size);
    EXPECT_EQ(f.rank(g), size - 1 - world / 2);
    auto v = values(world, 5);
    f.wait(f.all_reduce(g, whole(v), Op::sum));
    for (std::size_t i = 0; i < 5; ++i) {
      double expected = 0;
      for (int r = color; r < p; r += 2) expected += value_at(r, i);
      EXPECT_NEAR(v[i], expected, 1e-5);
    }
    // Messages and broadcasts number their ranks within the group.
    std::vector<float> mine{static_cast<float>(world)}, got(1);
    const int next = (f.rank(g) + 1) % size, before = (f.rank(g) + size - 1) % size;
    const auto sending = f.send(g, next, std::span<const float>(mine));
    f.wait(f.receive(g, before, whole(got)));
    f.wait(sending);
    EXPECT_EQ(got[0], float((size - 1 - before) * 2 + color));
    f.wait(f.broadcast(g, whole(mine), 0));
    EXPECT_EQ(mine[0], float((size - 1) * 2 + color));
    EXPECT_EQ(f.size(), p);
  });
}

TEST(SimWorld, GroupsAndEverybodyMayBeUsedSideBySide) {
  SimWorld(4, slow_machine()).run([](Fabric& f) {
    const Group half = f.split(f.rank() / 2, f.rank()), odd = f.split(f.rank() % 2, f.rank());
    EXPECT_NE(half.id, odd.id);
    std::vector<float> a{1}, b{1}, c{1};
    const auto x = f.all_reduce(half, whole(a), Op::sum), y = f.all_reduce(everybody, whole(b), Op::sum),
               z = f.all_reduce(odd, whole(c), Op::sum);
    for (const auto& t : {z, y, x}) f.wait(t);
    EXPECT_EQ(a[0], 2);
    EXPECT_EQ(b[0], 4);
    EXPECT_EQ(c[0], 2);
  });
}

TEST(SimWorld, AStrangerToAGroupIsRefused) {
  EXPECT_THAT(failure(2,
                      [](Fabric& f) {
                        const Group mine = f.split(f.rank(), 0);
                        std::vector<float> v(1);
                        f.wait(f.all_reduce({mine.id == 1 ? 2 : 1}, whole(v), Op::sum));
                      }),
              HasSubstr("is not in group"));
}

TEST(SimWorld, ADeadlockNamesWhoWaitsForWhat) {
  const auto text = failure(3, [](Fabric& f) {
    std::vector<float> v(1);
    if (f.rank() == 0) f.wait(f.receive(everybody, 1, whole(v)));
    if (f.rank() == 2) f.wait(f.all_reduce(everybody, whole(v), Op::sum));
  });
  EXPECT_THAT(text, HasSubstr("rank 0 waits for a message from rank 1"));
  EXPECT_THAT(text, HasSubstr("rank 2 waits for all-reduce ring"));
}

TEST(SimWorld, RanksThatCallDifferentCollectivesAreRefused) {
  auto mixed = [](const std::function<Ticket(Fabric&, Buffer)>& odd_one) {
    return failure(3, [&](Fabric& f) {
      std::vector<float> v(4);
      f.wait(f.rank() == 1 ? odd_one(f, whole(v)) : f.all_reduce(everybody, whole(v), Op::sum));
    });
  };
  EXPECT_THAT(mixed([](Fabric& f, Buffer b) { return f.broadcast(everybody, b, 0); }), HasSubstr("another collective"));
  EXPECT_THAT(mixed([](Fabric& f, Buffer b) { return f.all_reduce(everybody, b, Op::average); }),
              HasSubstr("another collective"));
  EXPECT_THAT(mixed([](Fabric& f, Buffer) {
                static std::array<float, 8> longer{};
                return f.all_reduce(everybody, std::span<float>(longer), Op::sum);
              }),
              HasSubstr("different lengths"));
  EXPECT_EQ(mixed([](Fabric& f, Buffer b) { return f.all_reduce(everybody, b, Op::sum); }), "no failure");
}

TEST(SimWorld, BroadcastsFromDifferentRootsAreRefused) {
  EXPECT_THAT(failure(2,
                      [](Fabric& f) {
                        std::vector<float> v(1);
                        f.wait(f.broadcast(everybody, whole(v), f.rank()));
                      }),
              HasSubstr("another collective"));
}

TEST(SimWorld, AMessageAndAReceiveOfDifferentLengthsAreRefused) {
  EXPECT_THAT(failure(2,
                      [](Fabric& f) {
                        std::vector<float> v(f.rank() == 0 ? 2 : 3);
                        f.wait(f.rank() == 0 ? f.send(everybody, 1, std::span<const float>(v))
                                             : f.receive(everybody, 0, whole(v)));
                      }),
              HasSubstr("differ in length"));
}

TEST(SimWorld, WhatAWorkerThrowsComesOut) {
  EXPECT_THROW(SimWorld(3, slow_machine()).run([](Fabric& f) {
    std::vector<float> v(1);
    if (f.rank() == 1) throw core::WrongResult("as expected");
    f.wait(f.all_reduce(everybody, whole(v), Op::sum));
  }),
               core::WrongResult);
}

TEST(SimWorld, AVendorsAlgorithmHasNoScheduleToRun) {
  SimMachine m;
  m.algorithm = allreduce::find_algorithm("mpi");
  EXPECT_THROW(SimWorld(2, m), core::UsageError);
}

/// A run with jitter, messages and collectives: all end times and all data.
std::pair<std::vector<double>, std::vector<float>> eventful_run(int workers, std::uint64_t seed) {
  SimMachine m;
  m.slowdown = [seed](int rank, std::uint64_t n) {
    return 1 + core::Random(seed, static_cast<std::uint64_t>(rank)).uniform(n);
  };
  std::vector<float> data(static_cast<std::size_t>(workers));
  auto end = SimWorld(workers, m).run([&](Fabric& f) {
    auto v = values(f.rank(), 33);
    std::vector<float> got(33);
    for (int step = 0; step < 5; ++step) {
      f.submit("work", {.flops = 1e6}, [] {});
      const auto t = f.all_reduce(everybody, whole(v), Op::average);
      f.submit("more work", {.flops = 1e5}, [] {});
      f.wait(t);
      const auto s = f.send(everybody, (f.rank() + 1) % workers, std::span<const float>(v));
      f.wait(f.receive(everybody, (f.rank() + workers - 1) % workers, whole(got)));
      f.wait(s);
      for (std::size_t i = 0; i < v.size(); ++i) v[i] += 0.01f * got[(i + 1) % 33] * float(f.rank());
    }
    data[static_cast<std::size_t>(f.rank())] = v[7];
  });
  return {end, data};
}

TEST(SimWorld, EqualInputsGiveEqualDataAndEqualTimes) {
  const auto first = eventful_run(9, 1);
  for (int i = 0; i < 5; ++i) ASSERT_EQ(eventful_run(9, 1), first);
  EXPECT_NE(eventful_run(9, 2).first, first.first) << "the jitter shows";
}

TEST(SimWorld, TwoHundredWorkersRunInSeconds) {
  const auto begin = std::chrono::steady_clock::now();
  const auto [end, data] = eventful_run(200, 1);
  EXPECT_EQ(end.size(), 200u);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
}

}  // namespace
}  // namespace gradmeter::dataparallel
