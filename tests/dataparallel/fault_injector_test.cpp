// SPDX-License-Identifier: Apache-2.0
#include "dataparallel/fabric/decorators/fault_injector.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "allreduce/schedule/slices.hpp"
#include "dataparallel/fabric/simulation/world.hpp"

namespace gradmeter::dataparallel {
namespace {

using allreduce::Op;

constexpr int ranks = 3, faulty = 1;
constexpr std::size_t buffer_elements = 20;

core::Injection from_call(const char* call) { return core::parse_injection(std::string("flip:rank=1,call=") + call); }

/// How many of the values are not `right`.
template <class Right>
int differing(std::span<const float> v, Right right) {
  int count = 0;
  for (std::size_t i = 0; i < v.size(); ++i) count += v[i] != right(i);
  return count;
}

template <class Program>
void on_faulty_ranks(const core::Injection& injection, Program program) {
  SimWorld(ranks, {}).run([&](Fabric& f) {
    FaultInjector injecting(f, injection, f.rank());
    program(injecting);
  });
}

TEST(FaultInjector, SpoilsOneElementOfEveryResultFromItsCallOnOnItsRankAlone) {
  on_faulty_ranks(from_call("2"), [](Fabric& f) {
    const auto v = f.memory(buffer_elements).values<float>();
    for (int call = 0; call < 5; ++call) {
      std::ranges::fill(v, float(f.rank()));
      f.wait(f.all_reduce(everybody, v, Op::sum));
      EXPECT_EQ(differing(v, [](std::size_t) { return 3.0f; }), f.rank() == faulty && call >= 2 ? 1 : 0) << call;
    }
  });
}

TEST(FaultInjector, DropsItsRanksContributionToSumsFromThatSumOn) {
  on_faulty_ranks(core::parse_injection("omit:rank=1,call=1"), [](Fabric& f) {
    const auto v = f.memory(buffer_elements).values<float>();
    for (int call = 0; call < 3; ++call) {
      std::ranges::fill(v, 1.0f);
      f.wait(f.all_gather(everybody, v));
      EXPECT_EQ(differing(v, [](std::size_t) { return 1.0f; }), 0) << "no sum";
      f.wait(f.all_reduce(everybody, v, Op::sum));
      EXPECT_EQ(v[0], call >= 1 ? 2.0f : 3.0f) << call;
    }
  });
}

TEST(FaultInjector, SpoilsEveryKindOfCall) {
  on_faulty_ranks(from_call("0"), [](Fabric& f) {
    const int wrong = f.rank() == faulty ? 1 : 0, r = f.rank();
    const auto v = f.memory(buffer_elements).values<float>();
    std::ranges::fill(v, 1.0f);
    f.wait(f.reduce_scatter(everybody, v, Op::sum));
    int found = 0;
    const auto begin = [](int block) { return allreduce::block_begin(buffer_elements, ranks, std::uint32_t(block)); };
    for (std::size_t i = begin(r); i < begin(r + 1); ++i) found += v[i] == 4.0f;
    EXPECT_EQ(found, wrong);
    std::ranges::fill(v, 2.0f);
    f.wait(f.all_gather(everybody, v));
    EXPECT_EQ(differing(v, [](std::size_t) { return 2.0f; }), wrong);
    std::ranges::fill(v, 5.0f);
    f.wait(f.broadcast(everybody, v, 0));
    EXPECT_EQ(differing(v, [](std::size_t) { return 5.0f; }), wrong);
    const auto w = f.memory(buffer_elements).values<float>();
    std::ranges::fill(v, 6.0f);
    const Ticket in = f.receive(everybody, (r + 1) % ranks, w), out = f.send(everybody, (r + ranks - 1) % ranks, v);
    f.wait(in);
    f.wait(out);
    EXPECT_EQ(differing(w, [](std::size_t) { return 6.0f; }), wrong);
  });
}

TEST(FaultInjector, SpoilsMailThatItsRankPosts) {
  on_faulty_ranks(from_call("0"), [](Fabric& f) {
    Ports ports = f.open(everybody, {.payload_bytes = buffer_elements * sizeof(float)});
    const auto draft = ports.worker->draft((f.rank() + 1) % ranks, buffer_elements * sizeof(float));
    std::memset(draft->data(), 0, draft->size());
    ports.worker->post((f.rank() + 1) % ranks, {.count = buffer_elements, .bytes = draft->size()}, "push");
    std::optional<Message> message;
    while (!message) message = ports.server->next("a push");
    int set = 0;
    for (std::size_t i = 0; i < buffer_elements; ++i) {
      float v;
      std::memcpy(&v, message->payload.data() + i * sizeof v, sizeof v);
      set += v == 1.0f;
    }
    EXPECT_EQ(set, message->from == faulty ? 1 : 0);
  });
}

/// Its clock advances by a second at every reading.
template <class Base>
class Ticking : public Base {
 public:
  using Base::Base;
  double now() const override { return seconds_++; }

 private:
  mutable double seconds_ = 0;
};

class TickingFabric final : public Ticking<ForwardingFabric> {
 public:
  using Ticking::Ticking;
  std::unique_ptr<BackgroundTask> launch(BackgroundProgram program) override {
    return inner_.launch([program = std::move(program)](ExecutionContext& c) {
      Ticking<ForwardingContext<ExecutionContext>> ticking(c);
      program(ticking);
    });
  }
};

/// Of `context`, which nobody has asked for the time yet.
void expect_slow_if_faulty(ExecutionContext& context) {
  context.submit("work", {}, [&] {
    while (context.now() < 10) {
    }
  });
  // On the slow rank the work begins at 0 and is over at 11, so that it lasts until 33.
  EXPECT_EQ(context.now(), context.rank() == faulty ? 34 : 11);
}

TEST(FaultInjector, LetsTheComputationsOfItsRankLastLonger) {
  SimWorld(ranks, {}).run([](Fabric& f) {
    TickingFabric ticking(f);
    FaultInjector injecting(ticking, core::parse_injection("slow:rank=1,factor=3"), f.rank());
    expect_slow_if_faulty(injecting);
    injecting.launch(expect_slow_if_faulty)->join();
  });
}

TEST(FaultInjector, LeavesAloneWhatHasNoFault) {
  on_faulty_ranks({}, [](Fabric& f) {
    const auto v = f.memory(buffer_elements).values<float>();
    std::ranges::fill(v, 1.0f);
    f.wait(f.all_reduce(everybody, v, Op::sum));
    EXPECT_EQ(differing(v, [](std::size_t) { return 3.0f; }), 0);
  });
}

}  // namespace
}  // namespace gradmeter::dataparallel
