// SPDX-License-Identifier: Apache-2.0
// Faults between workers and servers: lost and duplicated messages, deaths, slow ones, ends in any order.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "core/error.hpp"
#include "core/format.hpp"
#include "core/injection.hpp"
#include "dataparallel/fabric/simulation/world.hpp"
#include "support/served.hpp"

namespace gradmeter::dataparallel {
namespace {

/// With the faults of --inject: the slow rank, and with drop, delay and cut on the messages between ports; those of
/// collectives are reliable there. A lost message is sent again by the port's own timer (`ReliablePort`), and a rank
/// whose link is cut is dead from then on. flip, omit and drift are left to FaultInjector and the clocks. Errors:
/// UsageError for a link that comes back.
SimMachine injected(SimMachine machine, const core::Injection& i) {
  if (i.slow) {
    machine.slowdown = [slow = *i.slow](int rank, std::uint64_t) { return slow.of(rank); };
    machine.background_slowdown = machine.slowdown;
  }
  const core::MessageFaults& m = i.messages;
  if (m.drop || m.delay) {
    machine.delivery_fault = [m](const MessageRoute& r) {
      const core::MessageId place{.from = static_cast<std::uint32_t>(r.from),
                                  .to = static_cast<std::uint32_t>(r.to),
                                  .channel = static_cast<std::uint32_t>(r.to_role),
                                  .number = r.number};
      const core::MessageFaults delay_alone{.delay = m.delay};
      return DeliveryFault{.copies = m.drop && m.drop->losses(place) > 0 ? 0 : 1,
                           .delay_s = {delay_alone.extra_s(place), 0}};
    };
  }
  if (m.cut) {
    if (!std::isinf(m.cut->for_s))
      throw core::UsageError("--inject cut: in virtual time a cut link stays cut; leave out for=");
    machine.failures.push_back({.rank = m.cut->rank, .at_s = m.cut->at_s});
  }
  return machine;
}

using test::each;
using test::noise;
using test::sanitized;
using test::Seen;
using test::serve;
using test::Served;
using test::uneven;
using test::unreliable;
using ::testing::HasSubstr;

TEST(ParameterServer, LostAndDoubledMessagesDoNotChangeWhatBulkSynchronousLearns) {
  Served s{.strategy = "ps-sync", .ranks = 5, .servers = 2, .optimizer = "momentum:mu=0.9", .judge = true};
  for (const char* codec : {"none", "qsgd8:bucket=64,min=1", "onebit:bucket=64,min=1", "qsgd-elias:bucket=64,min=1",
                            "topk:density=0.25,min=1", "dgc:density=0.25,momentum=0,min=1",
                            "randomk:density=0.25,ef=on,min=1", "powersgd:rank=1,min=1"}) {
    s.codec = codec;
    s.machine.delivery_fault = nullptr;
    const auto plain = serve(s);
    test::CountedFaults faults;
    s.machine.delivery_fault = std::ref(faults);
    const auto faulty = serve(s);
    EXPECT_GT(faults.lost, 20u);
    EXPECT_GT(faults.doubled, 20u);
    for (std::size_t r = 0; r < 3; ++r) {
      EXPECT_EQ(faulty[r].first, plain[r].first) << codec << " rank " << r;
      EXPECT_EQ(faulty[r].weights, plain[r].weights);
      EXPECT_EQ(faulty[r].evaluation_weights, plain[r].evaluation_weights);
    }
    EXPECT_GT(faulty[0].seconds, plain[0].seconds) << "the control: something was lost";
    for (std::size_t r = 3; r < 5; ++r) EXPECT_EQ(faulty[r].observed.applied, 12u) << "each applied once";
  }
}

TEST(ParameterServer, ADoubledPushIsAppliedOnceAlsoWithoutBarrier) {
  Served s{.strategy = "ps-async", .ranks = 4, .servers = 1};
  s.machine.delivery_fault = [](const MessageRoute&) -> DeliveryFault { return {.copies = 2}; };
  EXPECT_EQ(serve(s)[3].observed.applied, 3u * 12);
  s.machine.delivery_fault = [](const MessageRoute& f) -> DeliveryFault {
    return {.copies = noise(f.from * 9 + f.to, f.number) < 0.3 ? 0 : 1};
  };
  EXPECT_EQ(serve(s)[3].observed.applied, 3u * 12);
}

TEST(ParameterServer, InjectedFaultsOfMessagesCostTimeAlone) {
  Served s{.strategy = "ps-sync", .ranks = 5, .servers = 2, .optimizer = "momentum:mu=0.9"};
  const auto plain = serve(s);
  const auto machine = s.machine;
  double before = plain[0].seconds;
  for (const char* faults : {"drop:p=0.2", "drop:p=0.2,seed=2", "delay:time=1ms,jitter=500us"}) {
    s.machine = injected(machine, core::parse_injection(faults));
    const auto faulty = serve(s), again = serve(s);
    for (std::size_t r = 0; r < 3; ++r) EXPECT_EQ(faulty[r].weights, plain[r].weights) << faults;
    EXPECT_GT(faulty[0].seconds, plain[0].seconds) << faults;
    EXPECT_EQ(faulty[0].seconds, again[0].seconds) << "drawn from the seed: " << faults;
    EXPECT_NE(faulty[0].seconds, before) << "another seed has other losses: " << faults;
    before = faulty[0].seconds;
  }
}

TEST(ParameterServer, AWorkerWhoseLinkIsCutStopsNobody) {
  Served s{.strategy = "ps-async", .ranks = 5, .servers = 1, .steps = each(20)};
  const double whole = serve(s)[0].seconds;
  s.machine = injected(s.machine, core::parse_injection(fmt::format("cut:rank=2,at={}us", whole / 3 * 1e6)));
  const auto seen = serve(s);
  EXPECT_LT(seen[2].steps, 15);
  for (const std::size_t r : {0u, 1u, 3u}) EXPECT_EQ(seen[r].steps, 20);
  EXPECT_THROW(injected({}, core::parse_injection("cut:for=1s")), core::UsageError);
}

TEST(ParameterServer, ADeadWorkerStopsNobody) {
  for (const auto* strategy : {"ps-sync", "ps-async", "ps-ssp:staleness=1", "easgd:every=2"}) {
    for (const bool faults : {false, true}) {
      Served s{.strategy = strategy, .ranks = 5, .servers = 1, .steps = each(20)};
      if (faults) s.machine.delivery_fault = unreliable;
      const double whole = serve(s)[0].seconds;
      s.machine.failures = {{.rank = 2, .at_s = whole / 3}};
      const auto seen = serve(s);
      EXPECT_LT(seen[2].steps, 15) << strategy;
      for (const std::size_t r : {0u, 1u, 3u}) EXPECT_EQ(seen[r].steps, 20) << strategy;
    }
  }
}

TEST(ParameterServer, TheDeathOfARankThatServesIsSaid) {
  Served s{.strategy = "ps-async", .ranks = 4, .servers = 1, .steps = each(20)};
  s.machine.failures = {{.rank = 3, .at_s = 1e-4}};
  try {
    serve(s);
    FAIL() << "went on without its weights";
  } catch (const core::BackendError& e) {
    EXPECT_THAT(e.what(), HasSubstr("rank 3 has died, and with it its part of the weights"));
  }
}

TEST(ParameterServer, WorkersFinishInAnyOrder) {
  for (const auto* strategy : {"ps-async", "ps-sync", "ps-ssp:staleness=1", "ps-async:push=3,fetch=2", "easgd"}) {
    for (const int servers : {0, 1}) {
      for (const bool faults : {false, true}) {
        Served s{.strategy = strategy, .ranks = 4 + servers, .servers = servers};
        if (faults) s.machine.delivery_fault = unreliable;
        s.steps = [](int rank) { return 3 + 4 * ((rank + 2) % 4); };
        const auto seen = serve(s);
        for (int r = 0; r < 4; ++r) EXPECT_EQ(seen[static_cast<std::size_t>(r)].steps, s.steps(r)) << strategy;
        for (const Seen& one : seen) EXPECT_LT(one.end, 0.01) << strategy << ": nobody waits for who has left";
      }
    }
  }
}

TEST(ParameterServer, EqualInputsGiveEqualRunsAlsoWithManyWorkers) {
  const int workers = sanitized ? 24 : 200;
  Served s{.strategy = "ps-async", .ranks = workers + 4, .servers = 4, .steps = each(4), .elements = 64};
  s.machine = uneven(workers);
  const auto one = serve(s), two = serve(s);
  for (std::size_t r = 0; r < one.size(); ++r) {
    EXPECT_EQ(one[r].weights, two[r].weights);
    EXPECT_EQ(one[r].observed.staleness, two[r].observed.staleness);
    EXPECT_EQ(one[r].seconds, two[r].seconds);
  }
  s.machine = {};
  EXPECT_NE(serve(s)[0].weights, one[0].weights) << "the control: other speeds, another order";
}

TEST(ParameterServer, ASlowServerShowsInTheTime) {
  Served s{.strategy = "ps-sync", .ranks = 6, .servers = 2, .elements = 20'000};
  const double fast = serve(s)[0].seconds;
  s.machine.background_slowdown = [](int rank, std::uint64_t) { return rank == 5 ? 50.0 : 1.0; };
  const auto slow = serve(s);
  EXPECT_GT(slow[0].seconds, 3 * fast);
  s.machine.background_slowdown = nullptr;
  EXPECT_EQ(serve(s)[0].seconds, fast);
}

}  // namespace
}  // namespace gradmeter::dataparallel
