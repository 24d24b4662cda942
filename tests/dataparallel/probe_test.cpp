// SPDX-License-Identifier: Apache-2.0
#include "dataparallel/fabric/decorators/probe.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "dataparallel/fabric/simulation/world.hpp"
#include "support/machines.hpp"

namespace gradmeter::dataparallel {
namespace {

using allreduce::Op;
using ::testing::ElementsAre;

CallRecord call(double started, double finished, std::uint64_t bytes = 0, std::uint64_t between_nodes = 0) {
  return {"call",
          {.posted = started,
           .started = started,
           .finished = finished,
           .bytes_sent = bytes,
           .bytes_between_nodes = between_nodes,
           .bytes_required = bytes}};
}

/// Ten seconds: computation in 0–4 and 5–6, calls in 3–7 and 8–9, nothing in 7–8 and 9–10.
StepRecord hand_made() {
  return {.step = {0, 10},
          .computations = {{"a", {0, 2}}, {"b", {2, 4}}, {"c", {5, 6}}},
          .calls = {call(3, 7, 100, 30), call(8, 9, 11)}};
}

TEST(Decompose, TakesAStepApartByHand) {
  const Decomposition d = decompose(hand_made(), {});
  EXPECT_DOUBLE_EQ(d.step, 10);
  EXPECT_DOUBLE_EQ(d.compute, 5);
  EXPECT_DOUBLE_EQ(d.communication, 5);
  EXPECT_DOUBLE_EQ(d.exposed, 3);  // 4–5, 6–7, 8–9
  EXPECT_DOUBLE_EQ(d.overlap, 2);  // 3–4, 5–6: the gap between the calls is no overlap
  EXPECT_DOUBLE_EQ(d.step - d.compute - d.exposed, 2);
  EXPECT_EQ(d.bytes_sent, 111u);
  EXPECT_EQ(d.bytes_between_nodes, 30u);
  EXPECT_EQ(d.bytes_required, 111u);
  EXPECT_TRUE(d.bytes_known);
  EXPECT_DOUBLE_EQ(d.skew, 0) << "not known";
}

TEST(Decompose, UpdatesAreWhatIsComputedAfterTheLastGradient) {
  StepRecord r = hand_made();
  EXPECT_DOUBLE_EQ(decompose(r, {}).update, 0) << "not known";
  EXPECT_TRUE(decompose(r, {}).ready.empty());
  r.step.begin = -1;
  r.ready = {1, 3.5};
  EXPECT_DOUBLE_EQ(decompose(r, {}).update, 1.5);  // 3.5–4, 5–6
  EXPECT_THAT(decompose(r, {}).ready, ElementsAre(2, 4.5));
}

TEST(Decompose, HandlingOfMessagesIsWhatAnExchangeNeitherComputesNorWaits) {
  StepRecord r = hand_made();
  r.computations.push_back({.label = "push", .when = {5.5, 9.5}, .is_message_handling = true});
  r.waits = {{"weights", {8, 8.75}}};
  const Decomposition d = decompose(r, {});
  EXPECT_DOUBLE_EQ(d.compute, 5);
  EXPECT_DOUBLE_EQ(d.waited, 0.75);
  EXPECT_DOUBLE_EQ(d.handled, 2.75) << "5.5 to 9.5 without what is computed until 6 and the wait";
}

TEST(Decompose, CallsThatOverlapEachOtherCountOnce) {
  StepRecord r{.step = {0, 10}, .computations = {{"a", {0, 2}}}, .calls = {call(1, 6), call(3, 5), call(4, 8)}};
  const Decomposition d = decompose(r, {});
  EXPECT_DOUBLE_EQ(d.communication, 7);
  EXPECT_DOUBLE_EQ(d.exposed, 6);
  EXPECT_DOUBLE_EQ(d.overlap, 1);
}

TEST(Decompose, ACallThatOutlastsStepsCountsInEachAsFarAsItWasUnderWay) {
  // A call from 3 on, done at 16, in a second step from 12 on; the gap of 10 to 12 is in no step.
  const StepRecord first{.step = {0, 10}, .computations = {{"a", {0, 9}}}, .calls = {}};
  const StepRecord second{.step = {12, 20}, .computations = {{"a", {12, 15}}}, .calls = {call(3, 16, 100)}};
  const std::vector<Interval> later{{3, 16}};
  const Decomposition before = decompose(first, {}, later), after = decompose(second, std::vector<double>{5.0});
  EXPECT_DOUBLE_EQ(before.communication, 7);
  EXPECT_DOUBLE_EQ(before.exposed, 1);
  EXPECT_EQ(before.bytes_sent, 0u) << "its bytes are those of the step in which it is done";
  EXPECT_DOUBLE_EQ(after.communication, 4);
  EXPECT_DOUBLE_EQ(after.exposed, 1);
  EXPECT_DOUBLE_EQ(after.overlap, 3);
  EXPECT_DOUBLE_EQ(after.skew, 0);
  EXPECT_DOUBLE_EQ(after.calls.at(0).exposed, 1);
  EXPECT_EQ(after.bytes_sent, 100u);
}

TEST(Decompose, ACallThatIsQueuedButNotStartedIsNoCommunication) {
  StepRecord r{.step = {0, 10}, .computations = {}, .calls = {call(6, 8)}};
  r.calls[0].completion.posted = 1;
  EXPECT_DOUBLE_EQ(decompose(r, {}).communication, 2);
}

TEST(Decompose, SkewIsTheExposedWaitForPeersThatHadNotStarted) {
  const std::vector<double> last_start{6.5, 8};
  EXPECT_DOUBLE_EQ(decompose(hand_made(), last_start).skew, 1.5);  // 4–5 and 6–6.5; 3–4 and 5–6 were computed under
  const std::vector<double> mine_was_last{3, 8};
  EXPECT_DOUBLE_EQ(decompose(hand_made(), mine_was_last).skew, 0);
  const std::vector<double> never{100, 100};
  EXPECT_DOUBLE_EQ(decompose(hand_made(), never).skew, 3) << "at most what is exposed";
}

TEST(Decompose, OneVendorCallMakesTheBytesUnknown) {
  StepRecord r = hand_made();
  r.calls[1].completion.bytes_required.reset();
  const Decomposition d = decompose(r, {});
  EXPECT_FALSE(d.bytes_known);
  EXPECT_EQ(d.bytes_required, 100u);
}

TEST(Decompose, AnEmptyStepIsAllZeros) {
  const Decomposition d = decompose({}, {});
  EXPECT_EQ(d.step + d.compute + d.communication + d.exposed + d.overlap + d.skew, 0);
  EXPECT_TRUE(d.bytes_known);
}

SimMachine plain_machine() {
  SimMachine m;
  m.machine.flops_per_s = m.machine.memory_bytes_per_s = 1;
  m.machine = gradmeter::test::linked(1, 1, 1e30, m.machine);
  return m;
}

TEST(Probe, RecordsComputationsAndEveryKindOfCall) {
  SimWorld(2, plain_machine()).run([](Fabric& inner) {
    Probe probe(inner);
    Fabric& f = probe;
    const int other = 1 - f.rank();
    std::vector<float> a(2), b(2), c(2);
    f.submit("before", {.flops = 5}, [] {});  // in no step
    probe.begin_step();
    f.submit("forward", {.flops = 2}, [] {});
    f.submit("backward", {.flops = 4}, [] {});
    const auto reduce = f.all_reduce(everybody, std::span<float>(a), Op::average);
    const auto cast = f.broadcast(everybody, std::span<float>(a), 0);
    const auto sending = f.send(everybody, other, std::span<const float>(b));
    const auto receiving = f.receive(everybody, other, std::span<float>(c));
    for (const auto& t : {reduce, cast, sending, receiving}) f.wait(t);
    const StepRecord& r = probe.end_step();

    ASSERT_EQ(r.computations.size(), 2u);
    EXPECT_EQ(r.computations[0].label, "forward");
    EXPECT_DOUBLE_EQ(r.computations[0].when.begin, 5);
    EXPECT_DOUBLE_EQ(r.computations[0].when.end, 7);
    EXPECT_EQ(r.computations[1].label, "backward");
    EXPECT_DOUBLE_EQ(r.computations[1].when.length(), 4);
    ASSERT_EQ(r.calls.size(), 4u);
    EXPECT_EQ(r.calls[0].label, "all-reduce ring");
    EXPECT_EQ(r.calls[1].label, "broadcast");
    EXPECT_DOUBLE_EQ(r.calls[0].completion.started, 11);
    EXPECT_DOUBLE_EQ(r.calls[0].completion.finished, 21);
    EXPECT_DOUBLE_EQ(r.step.begin, 5);
    EXPECT_DOUBLE_EQ(r.step.end, f.now());

    const Decomposition d = decompose(r, {});
    EXPECT_DOUBLE_EQ(d.compute, 6);
    EXPECT_DOUBLE_EQ(d.compute + d.exposed, d.step);
    // All-reduce of two words on two ranks: two blocks of 4 bytes; the root's broadcast: 8; the message: 8.
    EXPECT_EQ(d.bytes_sent, 8u + (f.rank() == 0 ? 8u : 0u) + 8u);
    EXPECT_EQ(d.bytes_sent, d.bytes_required);
  });
}

TEST(Probe, AStepForgetsTheOneBeforeIt) {
  SimWorld(1, plain_machine()).run([](Fabric& inner) {
    Probe probe(inner);
    for (int i = 0; i < 3; ++i) {
      probe.begin_step();
      probe.submit("work", {.flops = 1}, [] {});
      std::vector<float> v(1);
      probe.wait(probe.all_reduce(everybody, std::span<float>(v), Op::sum, {}, {}));
      const auto& r = probe.end_step();
      EXPECT_EQ(r.computations.size(), 1u);
      EXPECT_EQ(r.calls.size(), 1u);
      EXPECT_DOUBLE_EQ(r.step.begin, i);
    }
  });
}

TEST(Probe, WhatIsComputedBetweenStepsIsInNone) {
  SimWorld(1, plain_machine()).run([](Fabric& inner) {
    Probe probe(inner);
    probe.submit("before", {.flops = 1}, [] {});
    probe.begin_step();
    probe.submit("work", {.flops = 1}, [] {});
    const auto& r = probe.end_step();
    probe.submit("validation", {.flops = 1}, [] {});
    ASSERT_EQ(r.computations.size(), 1u);
    EXPECT_EQ(r.computations[0].label, "work");
  });
}

TEST(Probe, KeepsWhatBackgroundTasksComputeIfItIsAsked) {
  SimWorld(1, plain_machine()).run([](Fabric& inner) {
    Probe probe(inner);
    for (const bool asked : {false, true}) {
      probe.keep_background(asked);
      probe.launch([](ExecutionContext& c) { c.submit("serve", {.flops = 1}, [] {}); })->join();
      const auto kept = probe.take_background().computations;
      ASSERT_EQ(kept.size(), asked ? 1u : 0u);
      if (asked) {
        EXPECT_EQ(kept[0].label, "serve");
        EXPECT_EQ(kept[0].when.end, 2);
      }
    }
  });
}

TEST(Probe, AFabricOutlivesItsProbe) {
  SimWorld(1, plain_machine()).run([](Fabric& inner) {
    {
      Probe probe(inner);
      probe.begin_step();
      probe.submit("work", {.flops = 1}, [] {});
    }
    inner.submit("more work", {.flops = 1}, [] {});
    EXPECT_DOUBLE_EQ(inner.now(), 2);
  });
}

TEST(Probe, PassesOnWhatItDoesNotMeasure) {
  SimWorld(4, plain_machine()).run([](Fabric& inner) {
    Probe probe(inner);
    Fabric& f = probe;
    EXPECT_EQ(f.rank(), inner.rank());
    EXPECT_EQ(f.size(), 4);
    const Group half = f.split(f.rank() / 2, f.rank());
    EXPECT_EQ(f.size(half), 2);
    EXPECT_EQ(f.rank(half), f.rank() % 2);
    EXPECT_EQ(f.record(), nullptr);
    std::vector<float> v{static_cast<float>(f.rank())};
    f.wait(f.all_reduce(half, std::span<float>(v), Op::sum));
    EXPECT_EQ(v[0], f.rank() < 2 ? 1 : 5);
  });
}

TEST(Probe, ACallThatOutlastsItsStepIsPartOfTheStepInWhichItEnds) {
  SimWorld(2, plain_machine()).run([](Fabric& inner) {
    Probe probe(inner);
    std::vector<float> v(1, 1.0f);
    const bool gets = inner.rank() == 0;
    probe.begin_step();
    const Ticket t = gets ? probe.receive(everybody, 1, std::span<float>(v)) : nullptr;
    EXPECT_EQ(probe.end_step().calls.size(), 0u);
    probe.begin_step();
    if (!gets) probe.wait(probe.send(everybody, 0, std::span<const float>(v), {}));
    if (gets) probe.wait(t);
    EXPECT_EQ(probe.end_step().calls.size(), 1u);
    probe.begin_step();
    EXPECT_EQ(probe.end_step().calls.size(), 0u);
    EXPECT_EQ(probe.totals().bytes_sent, gets ? 0u : 4u);
  });
}

TEST(Probe, WhatIsCalledBesideStepsIsNobodys) {
  SimWorld(2, plain_machine()).run([](Fabric& inner) {
    Probe probe(inner);
    std::vector<float> v(8, 1.0f);
    probe.wait(probe.all_reduce(everybody, std::span<float>(v), Op::sum, {}, {}));
    EXPECT_EQ(probe.totals().calls, 0u);
    probe.begin_step();
    probe.wait(probe.all_reduce(everybody, std::span<float>(v), Op::sum, {}, {}));
    EXPECT_EQ(probe.end_step().calls.size(), 1u);
    EXPECT_EQ(probe.totals().calls, 1u);
  });
}

}  // namespace
}  // namespace gradmeter::dataparallel
