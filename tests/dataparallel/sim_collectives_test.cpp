// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "allreduce/schedule/interpret.hpp"
#include "core/format.hpp"
#include "support/machines.hpp"
#include "support/sim_machine.hpp"

namespace gradmeter::dataparallel {
namespace {

using allreduce::block_begin;
using allreduce::Op;
using test::failure;
using test::slow_machine;
using test::value_at;
using test::values;
using test::whole;
using ::testing::Each;
using ::testing::HasSubstr;

SimMachine machine_with(const char* algorithm) {
  SimMachine m = slow_machine();
  m.algorithm = allreduce::find_algorithm(algorithm);
  return m;
}

/// Runs `check` for algorithms that have these collective kinds and one without, on ranks and lengths of every kind.
void everywhere(const std::function<void(Fabric&, std::vector<float>&, const std::string&)>& check) {
  for (const auto* algorithm : {"ring", "direct", "rabenseifner", "bcube", "recursive-doubling", "double-tree"}) {
    for (const int p : {1, 2, 3, 5, 8}) {
      for (const std::size_t n : {0u, 1u, 2u, 100u, 1000u}) {
        const auto m = machine_with(algorithm);
        if (!m.algorithm->refusal({static_cast<std::uint32_t>(p), 1}).empty()) continue;
        SimWorld(p, m).run([&](Fabric& f) {
          auto v = values(f.rank(), n);
          check(f, v, fmt::format("{} p {} n {}", algorithm, p, n));
        });
      }
    }
  }
}

struct Block {
  std::size_t first, last;
};
Block block_of(const Fabric& f, std::size_t n, int rank) {
  const auto p = static_cast<std::uint32_t>(f.size()), r = static_cast<std::uint32_t>(rank);
  return {block_begin(n, p, r), block_begin(n, p, r + 1)};
}

TEST(SimWorld, AReduceScatterLeavesEachRankItsBlockAndNothingElse) {
  everywhere([](Fabric& f, std::vector<float>& v, const std::string& where) {
    f.wait(f.reduce_scatter(everybody, whole(v), Op::average));
    const Block mine = block_of(f, v.size(), f.rank());
    for (std::size_t i = 0; i < v.size(); ++i) {
      double sum = 0;
      for (int r = 0; r < f.size(); ++r) sum += value_at(r, i);
      const bool is_mine = i >= mine.first && i < mine.last;
      ASSERT_EQ(std::isnan(v[i]), !is_mine) << where << " place " << i;
      if (is_mine) {
        ASSERT_NEAR(v[i], sum / f.size(), 1e-6) << where << " place " << i;
      }
    }
  });
}

TEST(SimWorld, AnAllGatherBringsEveryBlockFromItsRank) {
  everywhere([](Fabric& f, std::vector<float>& v, const std::string& where) {
    f.wait(f.all_gather(everybody, whole(v)));
    for (int r = 0; r < f.size(); ++r) {
      const Block block = block_of(f, v.size(), r);
      for (std::size_t i = block.first; i < block.last; ++i) ASSERT_EQ(v[i], value_at(r, i)) << where << " place " << i;
    }
  });
}

TEST(SimWorld, ReduceScatterThenAllGatherHaveTheBitsOfTheRingsAllReduce) {
  const std::size_t n = 1000;
  SimWorld(5, slow_machine()).run([](Fabric& f) {
    auto a = values(f.rank(), n), b = a, c = a;
    f.wait(f.all_reduce(everybody, whole(a), Op::sum));
    f.wait(f.reduce_scatter(everybody, whole(b), Op::sum));
    f.wait(f.all_gather(everybody, whole(b)));
    EXPECT_EQ(a, b);
    f.wait(f.all_gather(everybody, whole(c)));
    EXPECT_NE(a, c) << "without the sum it must differ";
  });
}

TEST(SimWorld, HalvesOfAnAllReduceTakeHockneysTimeAndSayTheirNames) {
  SimMachine m;
  m.machine = gradmeter::test::linked(3, 2, 4, m.machine);
  for (const int p : {1, 2, 4}) {
    const std::size_t n = 64;
    const double block = double(n) * 4 / p;
    SimWorld(p, m).run([&](Fabric& f) {
      auto v = values(f.rank(), n);
      const auto scatter = f.reduce_scatter(everybody, whole(v), Op::sum);
      const auto gather = f.all_gather(everybody, whole(v));
      f.wait(gather);
      EXPECT_DOUBLE_EQ(scatter->completion().finished, (p - 1) * (3 + block / 2 + block / 4));
      EXPECT_DOUBLE_EQ(gather->completion().finished - gather->completion().started, (p - 1) * (3 + block / 2));
      EXPECT_DOUBLE_EQ(double(gather->completion().bytes_sent), (p - 1) * block);
      EXPECT_EQ(gather->completion().bytes_required, gather->completion().bytes_sent);
      EXPECT_EQ(scatter->label(), "reduce-scatter ring");
      EXPECT_EQ(gather->label(), "all-gather ring");
    });
  }
}

TEST(SimWorld, AnAlgorithmWithoutTheGoalLeavesItToTheRing) {
  auto label = [](const char* algorithm) {
    std::string text;
    SimWorld(4, machine_with(algorithm)).run([&](Fabric& f) {
      auto v = values(f.rank(), 8);
      const auto t = f.reduce_scatter(everybody, whole(v), Op::sum);
      f.wait(t);
      text = t->label();
    });
    return text;
  };
  EXPECT_EQ(label("direct"), "reduce-scatter direct");
  EXPECT_EQ(label("double-tree"), "reduce-scatter ring");
}

TEST(SimWorld, EverySliceRunsTheScheduleOfItsTurn) {
  const std::size_t n = 4096;
  const std::uint32_t p = 6;
  SimMachine m = machine_with("double-tree");
  const auto schedules = m.algorithm->make({p, 1});
  ASSERT_EQ(schedules.size(), 2u);
  m.message_bytes = n * sizeof(float) / schedules.front()->blocks() / 4;
  const allreduce::Slices slices(allreduce::SliceCut::run, n, sizeof(float), schedules.front()->blocks(),
                                 m.message_bytes, false);
  ASSERT_GE(slices.count(), 2u);

  auto by = [&](std::span<const allreduce::SchedulePtr> ones) {
    std::vector<std::vector<float>> data;
    for (std::uint32_t r = 0; r < p; ++r) data.push_back(values(static_cast<int>(r), n));
    std::vector<std::span<float>> buffers(data.begin(), data.end());
    const auto sent = allreduce::interpret(ones, slices, buffers, Op::sum);
    return std::pair(sent, data);
  };
  const auto [sent, data] = by(schedules);
  const auto [sent_by_first, data_by_first] = by(std::span(schedules).first(1));
  EXPECT_NE(sent, sent_by_first) << "the trees have different leaves";
  SimWorld(int(p), m).run([&, &sent = sent, &data = data](Fabric& f) {
    const auto r = static_cast<std::size_t>(f.rank());
    auto v = values(f.rank(), n);
    const auto t = f.all_reduce(everybody, whole(v), Op::sum);
    f.wait(t);
    EXPECT_EQ(v, data[r]);
    EXPECT_EQ(t->completion().bytes_sent, sent[r]);
  });
}

TEST(SimWorld, SlicesFollowEachOtherLikeAPipeline) {
  const std::size_t n = 1 << 14;
  auto time = [&](std::size_t message_bytes) {
    SimMachine m = slow_machine();
    m.machine = gradmeter::test::linked(100, 4, 4, m.machine);
    m.message_bytes = message_bytes;
    return SimWorld(4, m).run([&](Fabric& f) {
      auto v = values(f.rank(), n);
      f.wait(f.all_reduce(everybody, whole(v), Op::sum));
    })[0];
  };
  const double whole_buffer = time(std::size_t{1} << 30), sliced = time(n * 4 / 4 / 8);
  const double transfers = 1.5 * double(n) * 4 / 4, sums = 0.75 * double(n) * 4 / 4;
  EXPECT_DOUBLE_EQ(whole_buffer, transfers + sums + 6 * 100);
  EXPECT_LT(sliced, whole_buffer) << "sums go on under transfers";
  EXPECT_GT(sliced, transfers);
}

TEST(SimWorld, HalvesAndWholesAreDifferentCalls) {
  EXPECT_THAT(failure(2,
                      [](Fabric& f) {
                        std::vector<float> v(4);
                        f.wait(f.rank() == 0 ? f.all_gather(everybody, whole(v))
                                             : f.reduce_scatter(everybody, whole(v), Op::sum));
                      }),
              HasSubstr("another collective"));
}

}  // namespace
}  // namespace gradmeter::dataparallel
