// SPDX-License-Identifier: Apache-2.0
#include "allreduce/executor/executor.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <span>

#include "allreduce/registry.hpp"
#include "allreduce/schedule/interpret.hpp"
#include "core/error.hpp"
#include "support/run_to_end.hpp"
#include "support/sanitized.hpp"
#include "support/schedule_shapes.hpp"
#include "support/thread_ranks.hpp"

namespace gradmeter::allreduce {
namespace {

using test::HeapArena;
using test::run_ranks;
using test::run_to_end;
using test::ThreadGroup;

constexpr int channels = 3;

/// Nodes of two or three ranks where these divide the ranks, so that hierarchical algorithms use more than one tier.
RankShape shape_of_ranks(int p) {
  const auto ranks = static_cast<std::uint32_t>(p);
  for (std::uint32_t g : {2u, 3u}) {
    if (ranks > g && ranks % g == 0) return {ranks, g};
  }
  return {ranks, 1};
}

struct Case {
  std::string_view algorithm;
  int ranks;
  std::size_t count;
  Placement placement;
  std::size_t message_bytes;
  Op op;
};

/// Distinct on every rank and at every place; not exactly summable, so that the order of additions shows in the bits.
float value_at(int rank, std::size_t i) {
  return std::sin(0.37f * static_cast<float>(i) + 1.7f * static_cast<float>(rank));
}

struct Outcome {
  std::vector<std::vector<float>> out;
  std::vector<runtime::Traffic> sent;
  std::vector<std::uint64_t> due;
};

Outcome run(const Case& c, int repeats = 2) {
  const auto algorithm = find_algorithm(c.algorithm);
  ThreadGroup group(c.ranks, channels);
  Outcome result{std::vector<std::vector<float>>(static_cast<std::size_t>(c.ranks)),
                 std::vector<runtime::Traffic>(static_cast<std::size_t>(c.ranks)),
                 std::vector<std::uint64_t>(static_cast<std::size_t>(c.ranks))};
  run_ranks(c.ranks, [&](int r) {
    auto transport = group.transport(r);
    HeapArena arena(std::size_t{1} << 20);
    const ExchangeSpec options{c.placement, c.count * 4, c.message_bytes};
    Executor executor({algorithm->name, algorithm->make(shape_of_ranks(c.ranks))}, *transport, arena, options);
    std::vector<float> in(c.count), out(c.count, -1);
    for (int i = 0; i < repeats; ++i) {
      for (std::size_t k = 0; k < c.count; ++k) in[k] = value_at(r, k);
      if (c.placement == Placement::in_place) out = in;
      executor.start({c.placement == Placement::in_place ? out : in, out, c.op});
      run_to_end(executor);
    }
    if (c.placement == Placement::out_of_place) {
      for (std::size_t k = 0; k < c.count; ++k) EXPECT_EQ(in[k], value_at(r, k)) << "input changed";
    }
    const auto at = static_cast<std::size_t>(r);
    result.out[at] = out;
    result.sent[at] = *executor.sent();
    result.due[at] = *executor.bytes_required();
  });
  return result;
}

void expect_right(const Case& c) {
  const Outcome o = run(c);
  const auto describe = [&] {
    return testing::Message() << c.algorithm << " p " << c.ranks << " n " << c.count << " in place "
                              << (c.placement == Placement::in_place) << " message " << c.message_bytes << " op "
                              << name(c.op);
  };
  for (std::size_t i = 0; i < c.count; ++i) {
    double exact = 0, magnitude = 0;
    for (int r = 0; r < c.ranks; ++r) exact += value_at(r, i), magnitude += std::fabs(value_at(r, i));
    if (c.op == Op::average) exact /= c.ranks, magnitude /= c.ranks;
    ASSERT_NEAR(o.out[0][i], exact, (c.ranks + 1) * 0x1p-24 * magnitude) << describe() << " at " << i;
  }
  for (int r = 1; r < c.ranks; ++r) {
    const auto first = std::as_bytes(std::span(o.out[0])), other = std::as_bytes(std::span(o.out[std::size_t(r)]));
    ASSERT_TRUE(std::ranges::equal(first, other)) << describe();
  }
  for (std::size_t r = 0; r < o.sent.size(); ++r) EXPECT_EQ(o.sent[r].bytes, o.due[r]) << describe();
}

class ExecutorContract : public ::testing::TestWithParam<std::tuple<std::string, int>> {};

TEST_P(ExecutorContract, EveryRankHoldsTheSumWithEqualBitsAndTheStatedBytesWereSent) {
  const auto& [algorithm, p] = GetParam();
  const auto ranks = static_cast<std::size_t>(p);
  std::vector<std::size_t> lengths{0, 1, ranks - 1, ranks + 1, 257, 20011};
  std::vector<std::size_t> messages{64, 4096};  // 64: many more slices than channels
  if (p > 8 || test::sanitized) lengths = {0, ranks - 1, 5003}, messages = {256};
  for (const std::size_t n : lengths) {
    for (const auto placement : {Placement::in_place, Placement::out_of_place}) {
      for (const std::size_t message : messages) {
        for (const Op op : {Op::sum, Op::average}) {
          expect_right({algorithm, p, n, placement, message, op});
        }
      }
    }
  }
}

std::vector<std::tuple<std::string, int>> supported_all_reduces() {
  const auto ranks = test::sanitized ? std::vector{2, 3, 5, 8} : std::vector{1, 2, 3, 5, 6, 8, 12, 16};
  std::vector<std::tuple<std::string, int>> cases;
  for (const auto& algorithm : test::scheduled_algorithms()) {
    for (const int p : ranks) {
      if (find_algorithm(algorithm)->refusal(shape_of_ranks(p)).empty()) cases.emplace_back(algorithm, p);
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Threads, ExecutorContract, ::testing::ValuesIn(supported_all_reduces()),
                         [](const auto& param) {
                           std::string n = std::get<0>(param.param) + "_p" + std::to_string(std::get<1>(param.param));
                           for (char& c : n) {
                             if (c == '-' || c == ':' || c == '=') c = '_';
                           }
                           return n;
                         });

TEST(Executor, HoldsTheBitsOfTheInterpretedSchedule) {
  for (const auto& algorithm : test::scheduled_algorithms()) {
    for (int p : {2, 3, 4, 5}) {
      if (!find_algorithm(algorithm)->refusal(shape_of_ranks(p)).empty()) continue;
      const std::size_t n = 1000;
      const Outcome o = run({algorithm, p, n, Placement::in_place, std::size_t{1} << 20, Op::average});
      std::vector<std::vector<float>> expected(static_cast<std::size_t>(p), std::vector<float>(n));
      std::vector<std::span<float>> spans;
      for (int r = 0; r < p; ++r) {
        for (std::size_t i = 0; i < n; ++i) expected[static_cast<std::size_t>(r)][i] = value_at(r, i);
        spans.emplace_back(expected[static_cast<std::size_t>(r)]);
      }
      const SchedulePtr schedule = find_algorithm(algorithm)->make(shape_of_ranks(p)).front();
      const Slices whole(SliceCut::run, n, sizeof(float), schedule->blocks(), n, true);
      const auto bytes = interpret(std::span(&schedule, 1), whole, spans, Op::average);
      EXPECT_EQ(o.out, expected) << algorithm << " p " << p;
      for (std::size_t r = 0; r < bytes.size(); ++r) EXPECT_EQ(o.sent[r].bytes, 2 * bytes[r]);
    }
  }
}

TEST(Executor, AlternatesBetweenCallsOfDifferentLengths) {
  const int p = 3;
  ThreadGroup group(p, channels);
  run_ranks(p, [&](int r) {
    auto transport = group.transport(r);
    HeapArena arena(std::size_t{1} << 20);
    Executor ring({"ring", find_algorithm("ring")->make({3, 1})}, *transport, arena,
                  {Placement::in_place, 40000, 1024});
    Executor doubling({"recursive-doubling", find_algorithm("recursive-doubling")->make({3, 1})}, *transport, arena,
                      {Placement::in_place, 40000, 1024});
    for (std::size_t n : {10u, 10000u, 0u, 777u, 9999u}) {
      for (Executor* e : {&ring, &doubling}) {
        std::vector<float> v(n, static_cast<float>(r + 1));
        e->start({v, v});
        run_to_end(*e);
        for (float x : v) ASSERT_EQ(x, 6.0f);
      }
    }
  });
}

/// Sends complete and receives never do: what is posted is all that may be under way at once.
class Silent final : public runtime::Transport {
 public:
  Silent(int rank, int size) : rank_(rank), size_(size) {}
  std::string_view name() const override { return "silent"; }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  int channels() const override { return most_lanes(size_); }
  bool zero_copy_from(int) const override { return true; }
  std::size_t message_bytes() const override { return 64; }
  runtime::MessageHandle send(int, int channel, std::span<const std::byte>) override { return used(channel); }
  runtime::MessageHandle receive(int, int channel, std::span<std::byte>) override { return used(channel); }
  bool send_done(runtime::MessageHandle&) override { return false; }
  const std::byte* try_receive(runtime::MessageHandle&) override { return nullptr; }
  std::size_t channels_used() const { return used_.size(); }

 private:
  runtime::MessageHandle used(int channel) {
    used_.insert(channel);
    return {1, nullptr};
  }
  int rank_, size_;
  std::set<int> used_;
};

TEST(Executor, HasAsManySlicesUnderWayAsTheSchedulesAreDeep) {
  const auto under_way = [](std::string_view algorithm, std::uint32_t p, std::uint32_t rank) {
    Silent transport(static_cast<int>(rank), static_cast<int>(p));
    HeapArena arena(std::size_t{1} << 20);
    std::vector<float> v(std::size_t{1} << 14);
    Executor e({"", find_algorithm(algorithm)->make({p, 1})}, transport, arena, {Placement::in_place, v.size() * 4, 0});
    e.start({v, v});
    EXPECT_FALSE(e.advance());
    return transport.channels_used();
  };
  for (std::uint32_t rank = 0; rank < 8; ++rank) {
    EXPECT_EQ(under_way("double-tree", 8, rank), 12u) << "two trees of six rounds";
    EXPECT_EQ(under_way("ring", 8, rank), 4u) << "every rank is busy in every round";
  }
  EXPECT_EQ(under_way("double-tree", 2, 1), 4u);
  EXPECT_EQ(under_way("double-tree", 64, 5), 16u) << "no more channels than that";
}

TEST(Executor, NoAlgorithmWantsMoreLanesThanTransportsHaveChannels) {
  for (const auto& a : algorithms()) {
    const auto algorithm = find_algorithm(a.name);
    for (std::uint32_t p : {1u, 2u, 3u, 4u, 6u, 9u, 16u, 31u, 64u, 1000u}) {
      if (!algorithm->has_schedule() || !algorithm->refusal({p, 1}, CollectiveKind::all_reduce).empty()) continue;
      const auto lanes = static_cast<int>(lanes_for(algorithm->make({p, 1})));
      EXPECT_LE(lanes, most_lanes(static_cast<int>(p))) << a.name << " p " << p;
      EXPECT_GE(lanes, 4) << a.name;
    }
  }
}

TEST(Executor, RefusesABufferLongerThanItWasMadeFor) {
  ThreadGroup group(1, channels);
  auto transport = group.transport(0);
  HeapArena arena(std::size_t{1} << 20);
  Executor e({"ring", find_algorithm("ring")->make({1, 1})}, *transport, arena, {Placement::in_place, 16, 0});
  std::vector<float> v(5);
  const auto four = std::span(v).first(4);
  EXPECT_THROW(e.start({v, v}), core::BackendError);
  EXPECT_NO_THROW(e.start({four, four}));
  EXPECT_THROW(e.start({four, four}), core::BackendError) << "the last call is not complete";
}

}  // namespace
}  // namespace gradmeter::allreduce
