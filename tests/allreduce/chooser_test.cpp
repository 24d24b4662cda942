// SPDX-License-Identifier: Apache-2.0
#include "allreduce/selection/size_table.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "allreduce/selection/selection.hpp"
#include "allreduce/selection/shipped_tables.hpp"
#include "core/error.hpp"

namespace gradmeter::allreduce {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string refusal(std::string_view text) {
  try {
    SizeTable table(text);
  } catch (const core::UsageError& e) {
    return e.what();
  }
  return "";
}

std::string chosen(const SizeTable& c, std::uint64_t bytes) { return c.candidates()[c.choose(bytes)]->name; }

TEST(SizeTable, ARangeHoldsItsFirstSizeAndNotItsLast) {
  const SizeTable t("0-64K:recursive-doubling,64K-1M:mpi,1M-:ring");
  EXPECT_EQ(chosen(t, 0), "recursive-doubling");
  EXPECT_EQ(chosen(t, (64 << 10) - 1), "recursive-doubling");
  EXPECT_EQ(chosen(t, 64 << 10), "mpi");
  EXPECT_EQ(chosen(t, (1 << 20) - 1), "mpi");
  EXPECT_EQ(chosen(t, 1 << 20), "ring");
  EXPECT_EQ(chosen(t, UINT64_MAX), "ring");
}

TEST(SizeTable, KnowsTheLongestCallOfEachCandidate) {
  const SizeTable t("0-1K:mpi,1K-64K:recursive-doubling,64K-1M:mpi,1M-:ring");
  ASSERT_EQ(t.candidates().size(), 3u);
  EXPECT_EQ(t.longest(t.choose(0)), (1u << 20) - 1) << "mpi, in its second range";
  EXPECT_EQ(t.longest(t.choose(2000)), (64u << 10) - 1);
  EXPECT_EQ(t.longest(t.choose(1 << 20)), UINT64_MAX);
}

TEST(SizeTable, EqualTablesHaveEqualNames) {
  const std::string canonical = "0-64K:recursive-doubling,64K-:ring";
  for (std::string_view same : {"0-64K:recursive-doubling,64K-:ring", "64K-:ring,0-64K:recursive-doubling",
                                "0-65536:recursive-doubling,65536-:ring",
                                "0-1K:recursive-doubling,1K-64K:recursive-doubling,64K-1M:ring,1024K-:ring",
                                " 0 - 64K : recursive-doubling , 64K - : ring"}) {
    EXPECT_EQ(SizeTable(same).name(), canonical) << same;
    EXPECT_EQ(find_algorithm(same)->name, canonical) << same;
  }
  EXPECT_EQ(SizeTable("0-1000:mpi,1000-1536K:ring,1536K-:mpi").name(), "0-1000:mpi,1000-1536K:ring,1536K-:mpi");
  EXPECT_EQ(SizeTable("0-:ring").name(), "0-:ring");
}

TEST(SizeTable, SaysWhichSizesHaveNoAlgorithmOrTwo) {
  EXPECT_THAT(refusal("0-64K:ring,1M-:mpi"), HasSubstr("no algorithm for 64K-1M, and every size needs one"));
  EXPECT_THAT(refusal("64K-:ring"), HasSubstr("no algorithm for 0-64K"));
  EXPECT_THAT(refusal("0-64K:ring"), HasSubstr("no algorithm from 64K on"));
  EXPECT_THAT(refusal("0-64K:ring,32K-:mpi"), HasSubstr("0-64K and 32K- overlap"));
  EXPECT_THAT(refusal("0-:ring,32K-:mpi"), HasSubstr("0- and 32K- overlap"));
  EXPECT_THAT(refusal("0-64K:ring,64K-64K:mpi,64K-:mpi"), HasSubstr("64K-64K holds no size"));
}

TEST(SizeTable, RefusesWhatIsNoTable) {
  EXPECT_THAT(refusal("0-64K:rang,64K-:ring"), HasSubstr("did you mean 'ring'?"));
  EXPECT_THAT(refusal("0-64Q:ring,64K-:ring"), HasSubstr("size '64Q' is not understood"));
  EXPECT_THAT(refusal("0-64K,64K-:ring"), HasSubstr("'0-64K' is no range with an algorithm"));
  EXPECT_THAT(refusal("0-64K:auto,64K-:ring"), HasSubstr("chooses by size itself"));
  EXPECT_THAT(refusal("ring"), HasSubstr("'ring' is no range with an algorithm"));
  for (const std::string& why : {refusal("0-64K:rang,64K-:ring"), refusal("64K-:ring")}) {
    EXPECT_EQ(why.find('\n'), std::string::npos);
  }
}

TEST(SizeTable, TheItemsOfACommaListThatBelongToATableStayTogether) {
  EXPECT_THAT(join_tables({"mpi", "0-64K:recursive-doubling", "64K-:ring", "direct"}),
              ElementsAre("mpi", "0-64K:recursive-doubling,64K-:ring", "direct"));
  EXPECT_THAT(join_tables({"0-1K:a:x=1,y=2", "1K-:b", "0-:c", "0-4K:d", "4K-:e"}),
              ElementsAre("0-1K:a:x=1,y=2,1K-:b", "0-:c", "0-4K:d,4K-:e"));
  EXPECT_THAT(join_tables({"ring", "64K-:ring"}), ElementsAre("ring", "64K-:ring"));
  EXPECT_TRUE(is_table("0-64K:ring"));
  EXPECT_TRUE(is_table("1.5M-:ring"));
  EXPECT_FALSE(is_table("recursive-doubling"));
  EXPECT_FALSE(is_table("2tree-mirrored"));
  EXPECT_FALSE(is_table(""));
}

TEST(SizeTable, AChoiceByATableRefusesWhatOneOfItsAlgorithmsRefuses) {
  const auto choice = find_algorithm("0-64K:recursive-doubling,64K-:ring");
  EXPECT_EQ(choice->info().name, "auto");
  EXPECT_FALSE(choice->is_vendor());
  EXPECT_FALSE(choice->has_schedule());
  EXPECT_EQ(choice->refusal({5, 1}), "");
  EXPECT_THAT(choice->refusal({5, 1}, CollectiveKind::reduce_scatter),
              HasSubstr("recursive-doubling has no reduce_scatter"));
  EXPECT_EQ(choice->request({5, 1}).table->name(), choice->name);
  EXPECT_EQ(find_algorithm("0-:ring")->refusal({5, 1}, CollectiveKind::reduce_scatter), "");
}

TEST(Auto, IsOneRowThatNeedsNoParameter) {
  const auto choice = find_algorithm("auto");
  EXPECT_EQ(choice->name, "auto");
  EXPECT_EQ(choice->request({5, 1}).table, nullptr);
  for (std::uint32_t p = 1; p <= 64; ++p) EXPECT_EQ(choice->refusal({p, 1}), "") << p;
  EXPECT_THROW(find_algorithm("auto:tables=x"), core::UsageError);
  EXPECT_THROW(find_algorithm("auto:table=x,rows=2"), core::UsageError);
}

TEST(Auto, ItsTablesServeEveryTransportAndRankCount) {
  for (auto transport : {runtime::TransportKind::shm, runtime::TransportKind::mpi, runtime::TransportKind::hybrid}) {
    for (std::uint32_t p = 1; p <= 64; ++p) {
      const SizeTable table(shipped_table({.shape = {p, 1}}, transport));
      EXPECT_GE(table.ranges().size(), 1u);
      for (const auto& a : table.candidates()) EXPECT_EQ(a->refusal({p, 1}), "") << a->name << " p " << p;
    }
  }
}

TEST(Auto, TakesForPrivateBuffersOnlyWhatReadsThem) {
  if (!find_algorithm("mpi")->refusal({2, 2}).empty()) GTEST_SKIP() << "built without MPI";
  for (auto transport : {runtime::TransportKind::shm, runtime::TransportKind::hybrid}) {
    for (const auto collective_kind : {CollectiveKind::all_reduce, CollectiveKind::all_gather}) {
      for (std::uint32_t p = 1; p <= 64; ++p) {
        const SizeTable table(shipped_table({.shape = {p, p}, .collective_kind = collective_kind}, transport, true));
        for (const auto& a : table.candidates()) {
          EXPECT_FALSE(a->has_schedule()) << a->name << ": its peers read the arena, p " << p;
          EXPECT_EQ(a->refusal({p, p}, collective_kind), "") << a->name;
        }
      }
    }
  }
}

TEST(Auto, HasTablesOfItsOwnForEachKindOfCollective) {
  const auto table = [](CollectiveKind kind, runtime::TransportKind transport, bool has_private_buffers) {
    return shipped_table({.shape = {2, 2}, .collective_kind = kind}, transport, has_private_buffers);
  };
  using enum runtime::TransportKind;
  EXPECT_EQ(table(CollectiveKind::reduce_scatter, shm, false), "0-:direct");
  EXPECT_EQ(table(CollectiveKind::send_receive, shm, false), "0-:neighbour");
  EXPECT_EQ(table(CollectiveKind::all_reduce, shm, true), "0-:shm-direct");
  if (!find_algorithm("mpi")->refusal({2, 2}).empty()) GTEST_SKIP() << "built without MPI";
  EXPECT_EQ(table(CollectiveKind::all_gather, mpi, false), "0-8K:mpi,8K-:direct");
  EXPECT_EQ(table(CollectiveKind::all_gather, mpi, true), "0-:mpi");
  EXPECT_EQ(table(CollectiveKind::broadcast, mpi, false), "0-:mpi");
}

TEST(Auto, ForcesAnAlgorithmOfOpenMpiOnlyWhereThereIsOne) {
  if (!find_algorithm("mpi")->refusal({2, 2}).empty()) GTEST_SKIP() << "built without MPI";
  const std::string forced = "ompi-segmented-ring:segment=1M";
  const bool has_it = find_algorithm(forced)->refusal({2, 2}).empty();
  for (const bool has_private_buffers : {false, true}) {
    const SizeTable table(shipped_table({.shape = {2, 2}}, runtime::TransportKind::mpi, has_private_buffers));
    EXPECT_EQ(chosen(table, 8 << 20), has_it ? forced : "mpi");
    EXPECT_EQ(chosen(table, 4 << 20), "mpi");
    EXPECT_NE(chosen(table, 16 << 20), forced) << "a segment of a long buffer no longer pays";
  }
  const SizeTable gathers(
      shipped_table({.shape = {2, 2}, .collective_kind = CollectiveKind::all_gather}, runtime::TransportKind::mpi));
  EXPECT_NE(chosen(gathers, 8 << 20), forced) << "it is an all-reduce";
}

TEST(Auto, WhatTheShapeRefusesFallsThroughToTheNextBest) {
  // recursive-doubling, the best of short buffers over mpi, has no reduce-scatter.
  const Request sum{.shape = {4, 4}}, scatter{.shape = {4, 4}, .collective_kind = CollectiveKind::reduce_scatter};
  const SizeTable for_sums(shipped_table(sum, runtime::TransportKind::mpi));
  const SizeTable for_scatters(shipped_table(scatter, runtime::TransportKind::mpi));
  EXPECT_NE(for_sums.name(), for_scatters.name());
  for (const auto& a : for_scatters.candidates())
    EXPECT_EQ(a->refusal({4, 4}, CollectiveKind::reduce_scatter), "") << a->name;
}

TEST(TableFile, TakesTheFastestAtEachSizeWithBoundariesAtGeometricMeans) {
  const std::vector<MeasuredSize> points{
      {1 << 10, "mpi", 2e-6},
      {1 << 10, "recursive-doubling", 1e-6},
      {16 << 10, "recursive-doubling", 3e-6},
      {16 << 10, "mpi", 4e-6},
      {1 << 20, "mpi", 200e-6},
      {1 << 20, "ring", 100e-6},
      {64 << 20, "ring", 0.05},
      {64 << 20, "mpi", 0.1},
      {64 << 20, "0-:ring", 0.01},
  };
  // sqrt(16K · 1M) = 128K
  EXPECT_EQ(fit_table(points), "0-128K:recursive-doubling,128K-:ring");
  const std::vector<MeasuredSize> close{{100, "mpi", 1}, {101, "ring", 1}};
  EXPECT_EQ(fit_table(close), "0-101:mpi,101-:ring");
  const std::vector<MeasuredSize> from_nothing{{0, "mpi", 1}, {64, "ring", 1}};
  EXPECT_EQ(fit_table(from_nothing), "0-8:mpi,8-:ring");
  EXPECT_THROW(fit_table(std::vector<MeasuredSize>{{64, "0-:ring", 1}}), core::UsageError);
}

TEST(TableFile, TakesTheMedianOfRepeatedMeasurements) {
  const std::vector<MeasuredSize> points{{64, "mpi", 5},  {64, "ring", 1}, {64, "mpi", 5},
                                         {64, "ring", 7}, {64, "mpi", 2},  {64, "ring", 7}};
  EXPECT_EQ(fit_table(points), "0-:mpi") << "the single shortest time is that of ring";
}

TEST(TableFile, NamesTheSizesAtWhichTheFastestIsNotShownToBe) {
  const std::vector<MeasuredSize> points{
      {64, "mpi", 1, 0.9, 1.1},          // below both others
      {64, "ring", 2, 1.8, 2.2},         //
      {64, "direct", 2, 1.8, 2.2},       //
      {1 << 10, "mpi", 1, 0.9, 1.1},     // overlaps one of two
      {1 << 10, "ring", 2, 1.8, 2.2},    //
      {1 << 10, "direct", 1.1, 1, 1.2},  //
      {4 << 10, "ring", 1},              // without intervals
      {4 << 10, "mpi", 9},               //
      {8 << 10, "ring", 1, 0.9, 1.1},    // repeats, one of which overlaps
      {8 << 10, "ring", 1, 0.9, 3.5},    //
      {8 << 10, "mpi", 4, 3, 5},         //
      {9 << 10, "ring", 1, 0.9, 1.1},    // no other
      {9 << 10, "0-:ring", 1, 0.9, 1.1},
  };
  EXPECT_THAT(sizes_without_proof(points), ElementsAre(1 << 10, 4 << 10, 8 << 10));
}

class TableFileOnDisk : public ::testing::Test {
 protected:
  ~TableFileOnDisk() override { std::filesystem::remove(path_); }
  void write(std::string_view text) const { std::ofstream(path_) << text; }
  std::string refusal() const {
    try {
      read_table_file(path_);
    } catch (const core::UsageError& e) {
      return e.what();
    }
    return "";
  }
  const std::filesystem::path path_ =
      std::filesystem::temp_directory_path() /
      (std::string("gradmeter_table_") + ::testing::UnitTest::GetInstance()->current_test_info()->name());
};

TEST_F(TableFileOnDisk, WhatWasWrittenIsReadBack) {
  const SizeTable table("0-64K:recursive-doubling,64K-1M:mpi,1M-:ring");
  const std::vector<std::string> comments{"2 ranks, shm", "machine 0123abcd"};
  const std::string text = table_file_text(table, comments);
  EXPECT_EQ(text,
            "# 2 ranks, shm\n# machine 0123abcd\n"
            "0-64K   recursive-doubling\n64K-1M  mpi\n1M-     ring\n");
  const std::vector<std::uint64_t> unproven{8, 1 << 10, 1 << 20};
  EXPECT_EQ(table_file_text(table, {}, unproven),
            "0-64K   recursive-doubling  # not shown to be faster than all others at 8, 1K\n"
            "64K-1M  mpi\n1M-     ring  # not shown to be faster than all others at 1M\n");
  for (const std::string& file : {text, table_file_text(table, comments, unproven)}) {
    write(file);
    EXPECT_EQ(read_table_file(path_), table.name());
  }
  EXPECT_EQ(find_algorithm("auto:table=" + path_.string())->name, table.name());
}

TEST_F(TableFileOnDisk, APersonMayEditIt) {
  write("\n  # mine\n0-4K\tring  # short\r\n\n4K-   mpi\n");
  EXPECT_EQ(read_table_file(path_), "0-4K:ring,4K-:mpi");
}

TEST_F(TableFileOnDisk, ErrorsNameTheFileAndTheLine) {
  EXPECT_THAT(refusal(), HasSubstr("cannot be read"));
  write("# nothing\n");
  EXPECT_THAT(refusal(), HasSubstr("it has no range"));
  write("0-4K ring\n4K- \n");
  EXPECT_THAT(refusal(), HasSubstr("line 2: '4K-' is not a range and an algorithm"));
  write("0-4K ring\nmpi\n");
  EXPECT_THAT(refusal(), HasSubstr("line 2: 'mpi'"));
  write("0-4K ring\n8K- mpi\n");
  EXPECT_THAT(refusal(), testing::AllOf(HasSubstr(path_.string()), HasSubstr("no algorithm for 4K-8K")));
}

core::Machine machine_with(double latency_s, double bytes_per_s) {
  core::Machine m{.reduce_bytes_per_s = 1e11};
  m.within_node = {.latency_s = latency_s, .bandwidth = {{.bytes_per_s = bytes_per_s}}};
  return m;
}

std::string chosen(const core::Machine& m, std::uint64_t bytes) {
  const SizeTable table(predicted_table(m, find_algorithm("ring")->request({8, 8})));
  return table.candidates()[table.choose(bytes)]->name;
}

TEST(PredictedTable, FewRoundsWhereLatencyCountsAndFewBytesWhereTheyDo) {
  const core::Machine slow_start = machine_with(1e-3, 1e10), slow_link = machine_with(1e-7, 1e8);
  const auto rounds = [](const std::string& name) { return find_algorithm(name)->make({8, 8}).front()->rounds(); };
  EXPECT_LE(rounds(chosen(slow_start, 4096)), 3u) << chosen(slow_start, 4096);
  EXPECT_NE(chosen(slow_start, 4096), chosen(slow_link, 4 << 20));
  const auto cost = find_algorithm(chosen(slow_link, 4 << 20))->cost({8, 8});
  EXPECT_EQ(cost.sent_per_rank_max, find_algorithm("ring")->cost({8, 8}).sent_per_rank_max) << "nothing sends less";
}

TEST(PredictedTable, IsMadeOfAMachinesFileForTheRanksThatItServes) {
  const std::filesystem::path path = std::filesystem::path(testing::TempDir()) / "machine.json";
  std::ofstream(path) << core::to_json(machine_with(1e-3, 1e10));
  const AlgorithmPtr a = find_algorithm("auto:machine=" + path.string());
  EXPECT_EQ(a->refusal({6, 6}), "");
  EXPECT_EQ(find_algorithm(a->name)->name, a->name);
  std::ofstream(path) << core::to_json(machine_with(1e-3, 2e10));
  EXPECT_NE(find_algorithm("auto:machine=" + path.string())->name, a->name) << "another machine has another name";
  EXPECT_THROW(find_algorithm(a->name), core::UsageError) << "which the old name does not stand for";
  std::ofstream(path) << "{\"speed\":1}";
  EXPECT_THROW(find_algorithm("auto:machine=" + path.string()), core::UsageError);
  EXPECT_THROW(find_algorithm("auto:machine=" + path.string() + "x"), core::UsageError);
}

}  // namespace
}  // namespace gradmeter::allreduce
