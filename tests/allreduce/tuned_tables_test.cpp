// SPDX-License-Identifier: Apache-2.0
#include "allreduce/selection/tuned_tables.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "allreduce/selection/selection.hpp"
#include "core/error.hpp"

namespace gradmeter::allreduce {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr TableUse usual{.shape = {4, 4}};

TunedTables two_tables() {
  TableUse gather = usual;
  gather.collective_kind = CollectiveKind::all_gather;
  gather.placement = Placement::out_of_place;
  return {.made_for = "a machine; \"quoted\"",
          .tables = {
              {.use = usual,
               .table = "0-64K:recursive-doubling,64K-:bcube:base=4",
               .least_bytes = 8,
               .most_bytes = 1 << 20,
               .seconds = 0.1},
              {.use = gather, .table = "0-:ring", .least_bytes = 512, .most_bytes = 512, .seconds = 5, .missed = 3}}};
}

std::string why_refused(const std::string& text) {
  try {
    (void)read_tuned_tables(text);
  } catch (const core::UsageError& e) {
    return e.what();
  }
  return "";
}

TEST(TunedTables, AreReadAsTheyWereWritten) {
  const TunedTables before = two_tables(), after = read_tuned_tables(to_text(before));
  EXPECT_EQ(after.made_for, before.made_for);
  ASSERT_EQ(after.tables.size(), 2u);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(after.tables[i].use, before.tables[i].use);
    EXPECT_EQ(after.tables[i].table, before.tables[i].table);
    EXPECT_EQ(after.tables[i].least_bytes, before.tables[i].least_bytes);
    EXPECT_EQ(after.tables[i].most_bytes, before.tables[i].most_bytes);
    EXPECT_EQ(after.tables[i].seconds, before.tables[i].seconds);
    EXPECT_EQ(after.tables[i].missed, before.tables[i].missed);
  }
  EXPECT_EQ(to_text(after), to_text(before));
}

TEST(TunedTables, DamagedTextsAreRefusedInOneLine) {
  const std::string whole = to_text(two_tables());
  for (std::size_t n = 0; n + 2 < whole.size(); ++n) {  // without its last line end it is still whole
    const std::string why = why_refused(whole.substr(0, n));
    EXPECT_NE(why, "") << n << " bytes";
    EXPECT_EQ(why.find('\n'), std::string::npos) << why;
  }
  for (std::size_t at = 0; at < whole.size(); ++at) {
    for (const char other : {'0', 'x', '"', '}', '\0', '\xff'}) {
      std::string damaged = whole;
      damaged[at] = other;
      if (whole[at] == other) continue;
      // Blanks between values mean nothing; whatever is read must mean the same.
      try {
        EXPECT_EQ(to_text(read_tuned_tables(damaged)), whole) << at << " " << other;
      } catch (const core::UsageError& e) {
        EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos);
      }
    }
  }
  EXPECT_THAT(why_refused("[]"), HasSubstr("no JSON"));
  EXPECT_THAT(why_refused("{\"format\":\"another\",\"version\":1}"), HasSubstr("format 1"));
}

TEST(TunedTables, NameNoAlgorithmThatCannotServe) {
  TunedTables t = two_tables();
  t.tables[0].table = "0-:pairwise";  // of all-to-all
  EXPECT_THAT(why_refused(to_text(t)), HasSubstr("pairwise cannot serve all_reduce in place over shm"));
  t.tables[0].table = "0-:no-such";
  EXPECT_NE(why_refused(to_text(t)), "");
  TableUse of_private = usual;
  of_private.private_buffers = true;
  EXPECT_FALSE(can_serve(*find_algorithm("ring"), of_private));
  EXPECT_TRUE(can_serve(*find_algorithm("shm-direct"), of_private));
  EXPECT_FALSE(can_serve(*find_algorithm("auto"), usual));
  EXPECT_FALSE(can_serve(*find_algorithm("gpu-ring"), usual));
  of_private.transport = runtime::TransportKind::mpi;
  EXPECT_TRUE(can_serve(*find_algorithm("ring"), of_private));
  EXPECT_FALSE(can_serve(*find_algorithm("shm-direct"), of_private));
}

TEST(TunedTables, HashesTellTablesApart) {
  auto t = two_tables();
  EXPECT_NE(t.tables[0].hash(), t.tables[1].hash());
  EXPECT_EQ(t.tables[0].hash().size(), 8u);
  TunedTable other = t.tables[0];
  other.seconds = 7;
  EXPECT_EQ(other.hash(), t.tables[0].hash()) << "it chooses alike";
  other.table = "0-32K:recursive-doubling,32K-:bcube:base=4";
  EXPECT_NE(other.hash(), t.tables[0].hash());
  t.put(other);
  EXPECT_EQ(t.tables.size(), 2u);
  EXPECT_EQ(t.find(usual)->table, other.table);
  EXPECT_EQ(t.find({.shape = {8, 4}}), nullptr);
}

TEST(TunedTables, AutoChoosesByTheOneOfItsUse) {
  const auto tables = std::make_shared<TunedTables>(two_tables());
  const AlgorithmPtr plain = find_algorithm("auto"), tuned = plain->tuned(tables);
  EXPECT_EQ(tuned->name, "auto");
  EXPECT_TRUE(tuned->is_plain_auto());
  EXPECT_FALSE(find_algorithm("0-:ring")->is_plain_auto());
  EXPECT_EQ(plain->tuned_hash(usual), "");
  EXPECT_EQ(tuned->tuned_hash(usual), tables->tables[0].hash());
  TableUse other = usual;
  other.placement = Placement::out_of_place;
  EXPECT_EQ(tuned->tuned_hash(other), "") << "its table is the shipped one";
  const ExchangeSpec spec{.max_bytes = 64 << 20};
  EXPECT_NE(tuned->arena_bytes({4, 4}, 0, spec), plain->arena_bytes({4, 4}, 0, spec)) << "room for bcube";
}

TEST(SizesToTune, ReachOverAllCalls) {
  EXPECT_THAT(sizes_to_tune(0, 8), ElementsAre(256));
  EXPECT_THAT(sizes_to_tune(8, 511), ElementsAre(256));
  EXPECT_THAT(sizes_to_tune(8, 512), ElementsAre(256, 1024));
  EXPECT_THAT(sizes_to_tune(65536, 1 << 20), ElementsAre(65536, 262144, 1 << 20));
  EXPECT_LT(sizes_to_tune(0, UINT64_MAX).size(), 30u);
}

const std::vector<double> base{10, 11, 10, 12, 10, 10, 11, 10, 10};
std::vector<double> times(double factor) {
  std::vector<double> out = base;
  for (double& t : out) t *= factor;
  return out;
}

TEST(FasterChoice, ReplacesOnlyByWhatIsFasterBeyondNoise) {
  EXPECT_EQ(faster_choice({{"mpi", base}, {"ring", times(0.8)}, {"direct", times(0.9)}}, "mpi"), "ring");
  EXPECT_EQ(faster_choice({{"mpi", base}, {"ring", times(1.1)}}, "mpi"), "mpi");
  EXPECT_EQ(faster_choice({{"mpi", base}, {"ring", times(0.96)}}, "mpi"), "mpi") << "4 % is too little";
  // The median is far lower, but it was slower in three rounds of nine.
  EXPECT_EQ(faster_choice({{"mpi", base}, {"ring", {5, 5, 20, 5, 20, 5, 20, 5, 5}}}, "mpi"), "mpi");
  // One hiccup of ten times changes nothing.
  EXPECT_EQ(faster_choice({{"mpi", base}, {"ring", {8, 8, 100, 8, 8, 8, 8, 8, 8}}}, "mpi"), "ring");
}

TEST(FasterChoice, NeedsRoundsForAnInterval) {
  const std::vector<double> few{10, 10, 10, 10, 10}, fast{1, 1, 1, 1, 1};
  EXPECT_EQ(faster_choice({{"mpi", few}, {"ring", fast}}, "mpi"), "mpi");
  EXPECT_EQ(faster_choice({{"mpi", base}, {"ring", fast}}, "mpi"), "mpi") << "it lacks rounds";
}

TEST(TunedTable, ReplacesTheShippedChoiceWhereItWasMeasured) {
  const std::string shipped = "0-8K:mpi,8K-:direct";
  EXPECT_EQ(tuned_table(shipped, {}), shipped);
  EXPECT_EQ(tuned_table(shipped, {{256, "ring"}}), "0-512:ring,512-8K:mpi,8K-:direct");
  EXPECT_EQ(tuned_table(shipped, {{1 << 20, "ring"}}), "0-8K:mpi,8K-512K:direct,512K-2M:ring,2M-:direct");
  EXPECT_EQ(tuned_table(shipped, {{4096, "ring"}, {16384, "ring"}}), "0-2K:mpi,2K-32K:ring,32K-:direct");
}

}  // namespace
}  // namespace gradmeter::allreduce
