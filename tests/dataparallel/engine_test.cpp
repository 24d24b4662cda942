// SPDX-License-Identifier: Apache-2.0
#include "dataparallel/fabric/ranks/engine.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <stdexcept>
#include <string>

namespace gradmeter::dataparallel {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr runtime::SpinPolicy spin_policy{.spins = 20, .yields = 20};

/// What happened, in order; several threads write.
class Journal {
 public:
  void note(const std::string& what) {
    const std::lock_guard lock(mutex_);
    lines_.push_back(what);
  }
  std::vector<std::string> lines() {
    const std::lock_guard lock(mutex_);
    return lines_;
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> lines_;
};

/// A call that behaves as the test says.
struct Script {
  const char* name = "call";
  int order = 0;
  runtime::EventPtr ready = {};
  std::function<bool()> advance = [] { return true; };
  std::function<void()> start = [] {};
  allreduce::Waiting waiting = {};
};

class ScriptedCall final : public PendingEngineCall {
 public:
  ScriptedCall(Script script, Journal* journal)
      : PendingEngineCall(script.name, script.order, script.ready), script_(std::move(script)), journal_(journal) {}
  int started() const { return started_; }
  int advanced() const { return advanced_; }

 private:
  void start() override {
    ++started_;
    if (journal_) journal_->note(std::string(script_.name) + " starts");
    script_.start();
  }
  bool advance() override {
    ++advanced_;
    const bool over = script_.advance();
    if (over && journal_) journal_->note(std::string(script_.name) + " ends");
    return over;
  }
  allreduce::Waiting waiting() const override { return script_.waiting; }
  int world_rank(int peer) const override { return peer + 10; }

  Script script_;
  Journal* journal_;
  std::atomic<int> started_{0}, advanced_{0};
};

std::shared_ptr<ScriptedCall> call(Script script = {}, Journal* journal = nullptr) {
  return std::make_shared<ScriptedCall>(std::move(script), journal);
}

/// Done at the n-th advance.
std::function<bool()> after(int n) {
  return [n]() mutable { return --n <= 0; };
}

class Flag final : public runtime::Event {
 public:
  bool reached() const override { return set_.load(std::memory_order_acquire); }
  void set() { set_.store(true, std::memory_order_release); }

 private:
  std::atomic<bool> set_{false};
};

/// True when it comes true within ten seconds.
bool comes_true(const std::function<bool()>& condition) {
  for (int i = 0; i < 10'000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(1ms);
  }
  return false;
}

TEST(EngineOnWait, NothingMovesBeforeTheWait) {
  runtime::Activity activity;
  Engine engine(ProgressMode::on_wait, spin_policy, activity);
  auto c = call({.advance = after(3)});
  engine.submit(c);
  std::this_thread::sleep_for(10ms);
  EXPECT_EQ(c->started(), 0);
  EXPECT_FALSE(c->done());
  EXPECT_THROW((void)c->completion(), std::logic_error);
  engine.wait(*c);
  EXPECT_TRUE(c->done());
  EXPECT_EQ(c->advanced(), 3);
  EXPECT_GE(c->completion().started - c->completion().posted, 0.010);
  EXPECT_LE(c->completion().started, c->completion().finished);
}

TEST(EngineOnWait, WaitingForOneCallMovesTheOthersToo) {
  runtime::Activity activity;
  Engine engine(ProgressMode::on_wait, spin_policy, activity);
  auto long_one = call({.order = 0, .advance = after(50)}), other = call({.order = 1, .advance = after(5)});
  engine.submit(long_one);
  engine.submit(other);
  engine.wait(*long_one);
  EXPECT_TRUE(other->done());
  engine.wait(*other);
}

TEST(EngineOnWait, ACallMayBeWaitedForTwice) {
  runtime::Activity activity;
  Engine engine(ProgressMode::on_wait, spin_policy, activity);
  auto c = call();
  engine.submit(c);
  engine.wait(*c);
  engine.wait(*c);
  EXPECT_EQ(c->started(), 1);
  EXPECT_EQ(c->advanced(), 1);
}

TEST(EngineThread, MovesWithNobodyWaiting) {
  runtime::Activity activity;
  Engine engine(ProgressMode::thread, spin_policy, activity);
  auto c = call({.advance = after(100)});
  engine.submit(c);
  EXPECT_TRUE(comes_true([&] { return c->done(); }));
  engine.wait(*c);
  EXPECT_LE(c->completion().posted, c->completion().started);
  EXPECT_LE(c->completion().started, c->completion().finished);
}

class EngineContract : public ::testing::TestWithParam<ProgressMode> {
 protected:
  runtime::Activity activity_;
  Engine engine_{GetParam(), spin_policy, activity_};
  Journal journal_;
};

INSTANTIATE_TEST_SUITE_P(Modes, EngineContract, ::testing::Values(ProgressMode::on_wait, ProgressMode::thread),
                         [](const auto& param) {
                           return std::string(param.param == ProgressMode::thread ? "thread" : "on_wait");
                         });

TEST_P(EngineContract, CallsOfOneOrderRunOneAfterAnotherAndMessagesAtOnce) {
  std::atomic<bool> open{false};
  auto first = call({.name = "first", .order = 0, .advance = [&] { return open.load(); }}, &journal_);
  auto second = call({.name = "second", .order = 0, .advance = after(2)}, &journal_);
  auto message = call({.name = "message",
                       .order = -1,
                       .advance =
                           [&, n = 0]() mutable {
                             if (++n < 20) return false;
                             open = true;
                             return true;
                           }},
                      &journal_);
  for (const auto& c : {first, second, message}) engine_.submit(c);
  engine_.wait(*second);
  engine_.wait(*message);
  EXPECT_THAT(journal_.lines(), ElementsAre("first starts", "message starts", "message ends", "first ends",
                                            "second starts", "second ends"));
}

TEST_P(EngineContract, OrdersDoNotWaitForEachOther) {
  std::atomic<bool> open{false};
  auto slow = call({.name = "slow", .order = 0, .advance = [&] { return open.load(); }}, &journal_);
  auto quick = call({.name = "quick", .order = 1, .advance = after(3)}, &journal_);
  engine_.submit(slow);
  engine_.submit(quick);
  engine_.wait(*quick);
  EXPECT_FALSE(slow->done());
  open = true;
  engine_.wait(*slow);
}

TEST_P(EngineContract, ManyCallsKeepTheirOrderAndAllEnd) {
  std::vector<std::shared_ptr<ScriptedCall>> calls;
  std::vector<int> ended;  // written by the one thread that moves
  for (int i = 0; i < 200; ++i) {
    calls.push_back(call({.order = 0, .advance = [&ended, i, n = i % 3]() mutable {
                            if (n-- > 0) return false;
                            ended.push_back(i);
                            return true;
                          }}));
    engine_.submit(calls.back());
  }
  engine_.wait(*calls.back());
  ASSERT_EQ(ended.size(), 200u);
  for (int i = 0; i < 200; ++i) EXPECT_EQ(ended[static_cast<std::size_t>(i)], i);
  for (std::size_t i = 1; i < 200; ++i) {
    EXPECT_GE(calls[i]->completion().started, calls[i - 1]->completion().finished);
  }
}

TEST_P(EngineContract, ACallStartsOnlyWhenItsDataIsReadyAndThoseBehindItWait) {
  const auto computed = std::make_shared<Flag>();
  auto gated = call({.name = "gated", .order = 0, .ready = computed}, &journal_);
  auto behind = call({.name = "behind", .order = 0}, &journal_);
  auto opener = call({.name = "opener", .order = -1, .advance = [&, n = 0]() mutable {
                        if (++n < 20) return false;
                        journal_.note("computed");
                        computed->set();
                        return true;
                      }});
  engine_.submit(gated);
  engine_.submit(behind);
  engine_.submit(opener);
  engine_.wait(*behind);
  EXPECT_THAT(journal_.lines(), ElementsAre("computed", "gated starts", "gated ends", "behind starts", "behind ends"));
}

TEST_P(EngineContract, MessagesToOnePeerStartInTheOrderOfTheirPostingAndRunSideBySide) {
  const auto computed = std::make_shared<Flag>();
  constexpr int to_one_peer = -2, to_another = -3;
  auto gated = call({.name = "gated", .order = to_one_peer, .ready = computed, .advance = after(50)}, &journal_);
  auto behind = call({.name = "behind", .order = to_one_peer}, &journal_);
  auto other = call({.name = "other",
                     .order = to_another,
                     .advance =
                         [&, n = 0]() mutable {
                           if (++n < 20) return false;
                           computed->set();
                           return true;
                         }},
                    &journal_);
  for (const auto& c : {gated, behind, other}) engine_.submit(c);
  for (const auto& c : {gated, behind, other}) engine_.wait(*c);
  EXPECT_THAT(journal_.lines(),
              ElementsAre("other starts", "other ends", "gated starts", "behind starts", "behind ends", "gated ends"));
}

TEST_P(EngineContract, AFailureIsThrownFromTheWait) {
  auto bad = call({.advance = []() -> bool { throw std::runtime_error("cable cut"); }});
  engine_.submit(bad);
  EXPECT_THROW(
      {
        try {
          engine_.wait(*bad);
        } catch (const std::runtime_error& e) {
          EXPECT_STREQ(e.what(), "cable cut");
          throw;
        }
      },
      std::runtime_error);
}

TEST_P(EngineContract, AFailureAtTheStartIsThrownFromTheWaitOfACallBehindIt) {
  auto bad = call({.order = 0, .start = [] { throw std::runtime_error("too long"); }});
  auto behind = call({.order = 0});
  engine_.submit(bad);
  engine_.submit(behind);
  EXPECT_THROW(engine_.wait(*behind), std::runtime_error);
}

TEST(EngineThread, TheFirstOfTwoFailuresIsTheOneReported) {
  runtime::Activity activity;
  Engine engine(ProgressMode::thread, spin_policy, activity);
  std::atomic<bool> both_posted{false};
  auto first = call({.order = 0, .advance = [&]() -> bool {
                       while (!both_posted) std::this_thread::yield();
                       throw std::runtime_error("first");
                     }});
  auto second = call({.order = 1, .advance = []() -> bool { throw std::logic_error("second"); }});
  engine.submit(first);
  ASSERT_TRUE(comes_true([&] { return first->started() == 1; }));
  engine.submit(second);
  both_posted = true;
  EXPECT_THROW(engine.wait(*first), std::runtime_error);
  EXPECT_THROW(engine.wait(*second), std::runtime_error);
}

TEST(EngineThread, ACallAfterAFailureHasItToo) {
  runtime::Activity activity;
  Engine engine(ProgressMode::thread, spin_policy, activity);
  auto bad = call({.advance = []() -> bool { throw std::runtime_error("cable cut"); }});
  engine.submit(bad);
  EXPECT_THROW(engine.wait(*bad), std::runtime_error);
  auto late = call({.advance = [] { return false; }});
  engine.submit(late);
  ASSERT_TRUE(comes_true([&] { return late->done(); }));
  EXPECT_THROW(engine.wait(*late), std::runtime_error);
}

TEST_P(EngineContract, AnAbandonedCallDoesNotKeepTheEngineAlive) {
  auto engine = std::make_unique<Engine>(GetParam(), spin_policy, activity_);
  auto never = call({.advance = [] { return false; }});
  engine->submit(never);
  std::this_thread::sleep_for(5ms);
  engine.reset();
  EXPECT_FALSE(never->done());
}

TEST_P(EngineContract, TheActivityBoardSaysWhoIsWaitedForAndIsClearAfterwards) {
  std::vector<std::string> seen;
  auto c = call({.name = "all-reduce ring",
                 .order = 0,
                 .advance =
                     [&, n = 0]() mutable {
                       seen.push_back(describe(2, activity_.doing()));
                       return ++n == 3;
                     },
                 .waiting = {.peer = 3, .round = 5, .rounds = 14}});
  const auto before = activity_.beats();
  engine_.submit(c);
  engine_.wait(*c);
  ASSERT_EQ(seen.size(), 3u);
  EXPECT_THAT(seen.front(), HasSubstr("no exchange"));
  EXPECT_EQ(seen.back(), "rank 2 waits for rank 13: all-reduce ring, round 5 of 14");
  EXPECT_TRUE(comes_true([&] { return activity_.doing().operation == nullptr; }));
  EXPECT_GT(activity_.beats(), before);
}

}  // namespace
}  // namespace gradmeter::dataparallel
