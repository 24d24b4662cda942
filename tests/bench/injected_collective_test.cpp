// SPDX-License-Identifier: Apache-2.0
// Injected faults of collectives occur when and where they are asked for.
#include "bench/allreduce/setup.hpp"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "runtime/clock.hpp"

namespace gradmeter::bench {
namespace {

/// Leaves 1 everywhere, in the second `advance`; each call lasts a while.
class Ones final : public allreduce::Collective {
 public:
  const std::string& name() const override { return name_; }
  void start(const allreduce::Call& call) override {
    call_ = call;
    polls_ = 0;
  }
  bool advance() override {
    if (++polls_ < 2) return false;
    for (const double end = runtime::host_clock() + call_s; runtime::host_clock() < end;) {
    }
    auto* out = reinterpret_cast<float*>(call_.out.host());
    std::fill(out, out + call_.count(), 1.0f);
    return true;
  }
  static constexpr double call_s = 2e-3;

 private:
  std::string name_ = "ones";
  allreduce::Call call_{};
  int polls_ = 0;
};

struct Called {
  std::vector<float> out;
  double seconds;
};

Called call(allreduce::Collective& c, std::size_t n) {
  Called r{.out = std::vector<float>(n), .seconds = 0};
  const double begin = runtime::host_clock();
  c.start({r.out, r.out});
  while (!c.advance()) {
  }
  EXPECT_TRUE(c.advance()) << "asking again changes nothing";
  r.seconds = runtime::host_clock() - begin;
  return r;
}

std::size_t wrong(const Called& c) {
  return c.out.size() - static_cast<std::size_t>(std::count(c.out.begin(), c.out.end(), 1.0f));
}

TEST(InjectedCollective, FlipsOneElementFromThatCallOnOverAllCollectivesOfTheRank) {
  InjectedFaults faults{.injection = core::parse_injection("flip:call=3,rank=1"), .rank = 1, .ranks = 2};
  ASSERT_TRUE(faults.concerns_calls());
  InjectedCollective sum(std::make_unique<Ones>(), allreduce::CollectiveKind::all_reduce, faults);
  InjectedCollective scatter(std::make_unique<Ones>(), allreduce::CollectiveKind::reduce_scatter, faults);
  EXPECT_EQ(wrong(call(sum, 8)) + wrong(call(scatter, 8)) + wrong(call(sum, 8)), 0u);
  const auto in_block = call(scatter, 8);
  EXPECT_EQ(wrong(in_block), 1u);
  EXPECT_NE(in_block.out[6], 1.0f) << "in the block that rank 1 holds";
  EXPECT_EQ(wrong(call(sum, 8)), 1u);
  EXPECT_EQ(wrong(call(sum, 0)), 0u);
}

TEST(InjectedCollective, DropsWhatTheRankGivesToSumsFromThatCallOn) {
  InjectedFaults faults{.injection = core::parse_injection("omit:call=1,rank=1"), .rank = 1, .ranks = 2};
  ASSERT_TRUE(faults.concerns_calls());
  for (const auto collective_kind : {allreduce::CollectiveKind::all_reduce, allreduce::CollectiveKind::reduce_scatter,
                                     allreduce::CollectiveKind::all_gather}) {
    faults.calls = 0;
    InjectedCollective collective(std::make_unique<Ones>(), collective_kind, faults);
    for (int i = 0; i < 3; ++i) {
      std::vector<float> in(8, 2.0f), out(8);
      collective.start({in, out});
      const bool dropped = i >= 1 && collective_kind != allreduce::CollectiveKind::all_gather;
      EXPECT_EQ(in, std::vector<float>(8, dropped ? 0.0f : 2.0f)) << i;
      while (!collective.advance()) {
      }
    }
  }
}

/// Keeps a number from call to call, as codecs keep their residuals.
class Keeping final : public allreduce::Collective {
 public:
  explicit Keeping(int& number) : number_(number) {}
  const std::string& name() const override { return name_; }
  void start(const allreduce::Call&) override {}
  bool advance() override { return true; }
  allreduce::CodecState take_state() override { return std::make_shared<int>(std::exchange(number_, 0)); }
  void restore_state(const allreduce::CodecState& s) override { number_ = *static_cast<int*>(s.get()); }

 private:
  std::string name_ = "keeping";
  int& number_;
};

TEST(InjectedCollective, HandsOnWhatACodecKeeps) {
  InjectedFaults faults;
  int number = 7;
  InjectedCollective collective(std::make_unique<Keeping>(number), allreduce::CollectiveKind::all_reduce, faults);
  auto state = collective.take_state();
  EXPECT_EQ(number, 0);
  collective.restore_state(std::move(state));
  EXPECT_EQ(number, 7);
}

TEST(InjectedCollective, SlowsCallsOfALengthThatItKnows) {
  InjectedFaults faults{.injection = core::parse_injection("slow:rank=0,factor=5"), .rank = 0, .ranks = 2};
  InjectedCollective slow(std::make_unique<Ones>(), allreduce::CollectiveKind::all_reduce, faults);
  EXPECT_GE(call(slow, 8).seconds, Ones::call_s);
  EXPECT_GE(call(slow, 8).seconds, 5 * Ones::call_s) << "a lower bound holds on any machine";
  EXPECT_EQ(wrong(call(slow, 8)), 0u);
}

TEST(InjectedCollective, ConcernsNoOtherRank) {
  const InjectedFaults faults{
      .injection = core::parse_injection("slow:rank=0,flip:rank=2,drift:rank=1"), .rank = 1, .ranks = 3};
  EXPECT_FALSE(faults.concerns_calls());
}

}  // namespace
}  // namespace gradmeter::bench
