// SPDX-License-Identifier: Apache-2.0
// The calls of a fabric over ranks on their engine, with ranks as threads: everything from a bucket to its sum except
// MPI, so that the thread sanitizer sees it.
#include "dataparallel/fabric/ranks/engine.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "allreduce/executor/executor.hpp"
#include "allreduce/registry.hpp"
#include "core/error.hpp"
#include "support/thread_ranks.hpp"

namespace gradmeter::dataparallel {
namespace {

using test::HeapArena;
using test::run_ranks;
using test::ThreadGroup;

constexpr runtime::SpinPolicy spin_policy{.spins = 20, .yields = 2000};
constexpr int channels = 3;

float value_at(int rank, std::size_t i) {
  return std::sin(0.37f * static_cast<float>(i) + 1.7f * static_cast<float>(rank));
}

/// One rank of a group of threads: an engine over two transports, as the fabric over ranks has them.
class ThreadRank {
 public:
  ThreadRank(ThreadGroup& collectives, ThreadGroup& messages, int rank, ProgressMode mode, std::string_view algorithm)
      : collectives_(collectives.transport(rank)),
        messages_(messages.transport(rank)),
        arena_(std::size_t{4} << 20),
        world_ranks_(static_cast<std::size_t>(collectives.size())),
        executor_({std::string(algorithm), schedules(algorithm, collectives.size())}, *collectives_, arena_,
                  {allreduce::Placement::in_place, std::size_t{1} << 20, 4096}),
        engine_(mode, spin_policy, activity_) {
    std::iota(world_ranks_.begin(), world_ranks_.end(), 0);
  }
  EngineTicket all_reduce(std::vector<float>& v, allreduce::Op op, runtime::EventPtr ready = {}) {
    return post(std::make_shared<CollectiveOperation>("all-reduce", 0, std::move(ready), executor_,
                                                      allreduce::Call{v, v, op}, world_ranks_));
  }
  EngineTicket send(int peer, const std::vector<float>& v, runtime::EventPtr ready = {}) {
    return post(std::make_shared<MessageOperation>(CallKind::send, std::move(ready), *messages_, peer,
                                                   std::as_bytes(std::span(v)), std::span<std::byte>{}, world_ranks_));
  }
  EngineTicket receive(int peer, std::vector<float>& v) {
    return post(std::make_shared<MessageOperation>(CallKind::receive, nullptr, *messages_, peer,
                                                   std::span<const std::byte>{}, std::as_writable_bytes(std::span(v)),
                                                   world_ranks_));
  }
  void wait(const EngineTicket& t) { engine_.wait(*t); }

 private:
  static std::vector<allreduce::SchedulePtr> schedules(std::string_view algorithm, int ranks) {
    return allreduce::find_algorithm(algorithm)->make({static_cast<std::uint32_t>(ranks), 1});
  }
  EngineTicket post(EngineTicket t) {
    engine_.submit(t);
    return t;
  }
  runtime::Activity activity_;
  std::unique_ptr<runtime::SharedMemoryTransport> collectives_, messages_;
  HeapArena arena_;
  std::vector<int> world_ranks_;
  allreduce::Executor executor_;
  Engine engine_;  // last: its thread ends before what it uses
};

class OperationsContract : public ::testing::TestWithParam<std::tuple<std::string, ProgressMode>> {
 protected:
  void on_ranks(int ranks, const std::function<void(ThreadRank&, int rank)>& body) {
    ThreadGroup collectives(ranks, channels), messages(ranks, 1);
    run_ranks(ranks, [&](int rank) {
      ThreadRank me(collectives, messages, rank, std::get<1>(GetParam()), std::get<0>(GetParam()));
      body(me, rank);
    });
  }
};

INSTANTIATE_TEST_SUITE_P(Threads, OperationsContract,
                         ::testing::Combine(::testing::Values("ring", "recursive-doubling"),
                                            ::testing::Values(ProgressMode::on_wait, ProgressMode::thread)),
                         [](const auto& param) {
                           const bool thread = std::get<1>(param.param) == ProgressMode::thread;
                           return std::string(std::get<0>(param.param) == "ring" ? "ring_" : "doubling_") +
                                  (thread ? "thread" : "on_wait");
                         });

TEST_P(OperationsContract, BucketsUnderWayTogetherAreSummedEachInItsPlace) {
  for (const int p : {1, 2, 3, 5}) {
    on_ranks(p, [&](ThreadRank& me, int rank) {
      std::vector<std::vector<float>> buckets;
      std::vector<EngineTicket> tickets;
      for (std::size_t b = 0; b < 12; ++b) {
        auto& v = buckets.emplace_back((b * 1237) % 7001);
        for (std::size_t i = 0; i < v.size(); ++i) v[i] = value_at(rank + 10 * int(b), i);
      }
      for (auto& v : buckets) tickets.push_back(me.all_reduce(v, allreduce::Op::average));
      for (std::size_t b = 0; b < buckets.size(); ++b) {
        me.wait(tickets[b]);
        double worst = 0;
        for (std::size_t i = 0; i < buckets[b].size(); ++i) {
          double sum = 0;
          for (int r = 0; r < p; ++r) sum += value_at(r + 10 * int(b), i);
          worst = std::max(worst, std::fabs(buckets[b][i] - sum / p));
        }
        EXPECT_LT(worst, 1e-6) << "p " << p << " bucket " << b;
        const Completion& c = tickets[b]->completion();
        EXPECT_EQ(c.bytes_required, c.bytes_sent);
        EXPECT_EQ(c.bytes_sent > 0, p > 1 && buckets[b].size() >= static_cast<std::size_t>(p)) << b;
      }
    });
  }
}

TEST_P(OperationsContract, MessagesPassBesideACollectiveThatWaits) {
  const int p = 3;
  on_ranks(p, [&](ThreadRank& me, int rank) {
    std::vector<float> v(100, 1), word{static_cast<float>(rank)}, got(1);
    const int next = (rank + 1) % p, before = (rank + p - 1) % p;
    // The collective of rank 0 waits for the others, who wait for its message before they join.
    EngineTicket reduce;
    if (rank == 0) reduce = me.all_reduce(v, allreduce::Op::sum);
    const auto sending = me.send(next, word), receiving = me.receive(before, got);
    me.wait(receiving);
    if (rank != 0) reduce = me.all_reduce(v, allreduce::Op::sum);
    me.wait(reduce);
    me.wait(sending);
    EXPECT_EQ(got[0], float(before));
    EXPECT_EQ(v, std::vector<float>(100, 3));
    EXPECT_EQ(sending->completion().bytes_sent, 4u);
    EXPECT_EQ(receiving->completion().bytes_required, 0u);
  });
}

/// Set by the rank itself, as an accelerator's stream would set it.
class Computed final : public runtime::Event {
 public:
  bool reached() const override { return reached_.load(std::memory_order_acquire); }
  void reach() { reached_.store(true, std::memory_order_release); }

 private:
  std::atomic<bool> reached_{false};
};

TEST_P(OperationsContract, AMessageThatIsNotReadyKeepsItsPlaceBeforeTheNextToThatPeer) {
  on_ranks(2, [&](ThreadRank& me, int rank) {
    std::vector<float> first{1}, second{2}, side{3}, got_first(1), got_second(1), got_side(1);
    if (rank == 0) {
      const auto computed = std::make_shared<Computed>();
      const auto a = me.send(1, first, computed), b = me.send(1, second);
      const auto c = me.receive(1, got_side);
      me.wait(c);  // the other direction is not held up
      computed->reach();
      me.wait(b);
      me.wait(a);
      EXPECT_EQ(got_side[0], 3);
    } else {
      const auto a = me.receive(0, got_first), b = me.receive(0, got_second);
      const auto c = me.send(0, side);
      for (const auto& t : {a, b, c}) me.wait(t);
      EXPECT_EQ(got_first[0], 1);
      EXPECT_EQ(got_second[0], 2);
    }
  });
}

TEST_P(OperationsContract, AnEmptyMessageIsDoneAtOnce) {
  on_ranks(2, [&](ThreadRank& me, int rank) {
    std::vector<float> none, word{5};
    const auto a = me.send(1 - rank, none), b = me.send(1 - rank, word);
    std::vector<float> got_none, got(1);
    const auto c = me.receive(1 - rank, got_none), d = me.receive(1 - rank, got);
    for (const auto& t : {a, b, c, d}) me.wait(t);
    EXPECT_EQ(got[0], 5);
    EXPECT_EQ(a->completion().bytes_sent, 0u);
  });
}

/// Counts only the bytes of messages to the other node.
class TwoNodes final : public runtime::Transport {
 public:
  std::string_view name() const override { return "two nodes"; }
  int rank() const override { return 0; }
  int size() const override { return 2; }
  int channels() const override { return 1; }
  bool zero_copy_from(int) const override { return false; }
  bool can_send_from(std::span<const std::byte> s) const override { return s.size() < 100; }
  std::size_t message_bytes() const override { return 1; }
  runtime::MessageHandle send(int, int, std::span<const std::byte> data) override {
    traffic_.bytes += data.size();
    traffic_.bytes_between_nodes += data.size();
    return {};
  }
  runtime::MessageHandle receive(int, int, std::span<std::byte>) override { return {}; }
  bool send_done(runtime::MessageHandle&) override { return true; }
  const std::byte* try_receive(runtime::MessageHandle&) override { return nullptr; }
};

TEST(MessageOperation, CountsItsBytesWhereTheyLeaveAndWhetherTheyLeaveTheNode) {
  TwoNodes transport;
  runtime::Activity activity;
  Engine engine(ProgressMode::on_wait, spin_policy, activity);
  const std::vector<int> ranks{0, 1};
  const std::vector<std::byte> data(12);
  const auto t = std::make_shared<MessageOperation>(CallKind::send, runtime::EventPtr{}, transport, 1, data,
                                                    std::span<std::byte>{}, ranks);
  engine.submit(t);
  engine.wait(*t);
  EXPECT_EQ(t->completion().bytes_sent, 12u);
  EXPECT_EQ(t->completion().bytes_required, 12u);
  EXPECT_EQ(t->completion().bytes_between_nodes, 12u);
}

TEST(MessageOperation, RefusesMemoryThatThePeerCannotRead) {
  TwoNodes transport;
  runtime::Activity activity;
  Engine engine(ProgressMode::on_wait, spin_policy, activity);
  const std::vector<int> ranks{0, 1};
  const std::vector<std::byte> data(100);
  const auto t = std::make_shared<MessageOperation>(CallKind::send, runtime::EventPtr{}, transport, 1, data,
                                                    std::span<std::byte>{}, ranks);
  engine.submit(t);
  EXPECT_THROW(engine.wait(*t), core::BackendError);
}

}  // namespace
}  // namespace gradmeter::dataparallel
