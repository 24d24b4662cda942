// SPDX-License-Identifier: Apache-2.0
#include "dataparallel/replay/replay.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "core/error.hpp"
#include "core/format.hpp"
#include "dataparallel/fabric/decorators/probe.hpp"
#include "dataparallel/fabric/simulation/world.hpp"
#include "support/sim_machine.hpp"

namespace gradmeter::dataparallel {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

TracedCall traced(double begin, double end, std::uint64_t bytes = 4096, const char* collective = "allreduce",
                  core::Element element = core::Element::f32) {
  return {.collective = collective, .bytes = bytes, .element = element, .ranks = 8, .when = {begin, end}};
}
/// Computes to 4, exchanges from 2 to 6, computes from 6 to 9, all in units of a second.
TracedStep overlapped() { return {.seconds = 10, .compute = {{0, 4}, {6, 9}}, .calls = {traced(2, 6)}}; }

std::string described(const TracedStep& s) {
  std::string out;
  for (const ReplayEvent& e : replay_events(s)) {
    using enum ReplayEvent::Kind;
    if (e.kind == compute) out += fmt::format("c{:.1f} ", e.seconds);
    if (e.kind == start) out += fmt::format("s{} ", e.call);
    if (e.kind == wait) out += fmt::format("w{} ", e.call);
  }
  return out;
}

TEST(StepTrace, ItsPartsAddUp) {
  const TracedParts p = parts_of(overlapped());
  EXPECT_EQ(p.compute, 7);
  EXPECT_EQ(p.communication, 4);
  EXPECT_EQ(p.exposed, 2);
  EXPECT_EQ(p.overlap, 2);
}

TEST(Replay, WhatFollowedAnExposedCallWaitsForIt) {
  EXPECT_EQ(described(overlapped()), "c2.0 s0 c2.0 w0 c4.0 ");  // the second without a kernel is the host's
}

TEST(Replay, ACallThatWasHiddenIsWaitedForAtTheEnd) {
  const TracedStep hidden{.seconds = 10, .compute = {{0, 9}}, .calls = {traced(2, 6), traced(8, 12)}};
  EXPECT_EQ(described(hidden), "c2.0 s0 c6.0 s1 c1.0 w0 w1 ");
}

TEST(Replay, CallsThatBeginTogetherStartInTheirOrder) {
  const TracedStep together{.seconds = 4, .compute = {{0, 1}, {3, 4}}, .calls = {traced(1, 2), traced(1, 3)}};
  EXPECT_EQ(described(together), "c1.0 s0 s1 w0 w1 c1.0 ");
  EXPECT_EQ(described({.seconds = 2, .compute = {}, .calls = {}}), "c2.0 ");
}

/// A machine on which computation takes what the trace says, and an all-reduce of a ring of two ranks two messages.
SimMachine replaying_machine(double message_s) {
  SimMachine m;
  m.machine = gradmeter::test::linked(message_s, 1e30, 1e30, m.machine);
  m.machine.flops_per_s = replay_flops_per_s;
  m.time_only = true;  // nobody is busy for real
  return m;
}

/// The virtual time of one step on two ranks, and its parts.
Decomposition replayed(const TracedStep& s, double message_s) {
  const StepTrace trace{.steps = {s}, .device = "cuda", .ranks = 8};
  Decomposition out;
  SimWorld(2, replaying_machine(message_s)).run([&](Fabric& f) {
    Probe probe(f);
    Replay replay(probe, trace);
    probe.begin_step();
    replay.step(0);
    const auto d = decompose(probe.end_step(), {});
    if (f.rank() == 0) out = d;
  });
  return out;
}

TEST(Replay, InVirtualTimeAStepTakesItsBusyTimeAndWhatIsExposed) {
  const auto alone = replayed({.seconds = 10, .compute = {{0, 10}}, .calls = {}}, 1);
  EXPECT_NEAR(alone.step, 10, 1e-9);
  EXPECT_EQ(alone.communication, 0);
  // The trace had 2 s beside the call and 2 s exposed. Here the call takes 1 s, and all of it is hidden; or 5 s.
  const auto faster = replayed(overlapped(), 0.5), slower = replayed(overlapped(), 2.5);
  EXPECT_NEAR(faster.step, 8, 1e-9);
  EXPECT_NEAR(faster.overlap, 1, 1e-9);
  EXPECT_NEAR(faster.exposed, 0, 1e-9);
  EXPECT_NEAR(slower.step, 11, 1e-9);
  EXPECT_NEAR(slower.compute, 8, 1e-9);
  EXPECT_NEAR(slower.communication, 5, 1e-9);
  EXPECT_NEAR(slower.exposed, 3, 1e-9);
}

/// In fp32, the only type of the virtual fabric; tests/cli/replay_test.py has others on ranks.
StepTrace one_of_each() {
  const TracedStep s{.seconds = 1e-6,
                     .compute = {},
                     .calls = {traced(0, 1e-7, 4004), traced(1e-7, 2e-7, 2004, "reduce_scatter"),
                               traced(2e-7, 3e-7, 808, "all_gather"), traced(3e-7, 4e-7, 36, "broadcast")}};
  const TracedStep short_one{.seconds = 1e-6, .compute = {}, .calls = {traced(0, 1e-7, 40)}};
  return {.steps = {s, short_one}, .device = "cpu", .ranks = 4};
}

TEST(Replay, EveryCallIsRightOnKnownData) {
  for (const int ranks : {1, 2, 3, 5}) {
    SimWorld(ranks, {}).run([&](Fabric& f) {
      Replay replay(f, one_of_each());
      EXPECT_EQ(replay.count_wrong_elements(1), 0u) << ranks << " ranks";
      replay.step(0);
      replay.step(1);
      EXPECT_EQ(replay.count_wrong_elements(2), 0u) << ranks << " ranks";
    });
  }
}

TEST(Replay, WhatItCannotRunIsNamed) {
  StepTrace t = one_of_each();
  EXPECT_EQ(replay_refusal(t), "");
  EXPECT_EQ(replay_floats(t), 1001u + 501u + 202u + 9u);
  t.steps[0].calls[1].collective = "all_to_all";
  EXPECT_THAT(replay_refusal(t), HasSubstr("'all_to_all'"));
  t.steps[0].calls[1] = traced(0, 1, 0);
  EXPECT_THAT(replay_refusal(t), HasSubstr("record_shapes=True"));
  EXPECT_THROW(SimWorld(1, {}).run([&](Fabric& f) { Replay(f, t); }), core::UsageError);
}

}  // namespace
}  // namespace gradmeter::dataparallel
