// SPDX-License-Identifier: Apache-2.0
#include "report/watch.hpp"

#include <gmock/gmock.h>

#include <algorithm>

#include "core/table.hpp"

namespace gradmeter::report {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;

constexpr double start = 1714564800;  // 2024-05-01T12:00:00Z

core::Point point(std::int64_t batch, double time_s, core::Status status = core::Status::ok, std::string reason = {}) {
  core::Point p{.experiment = "scale",
                .status = status,
                .reason = std::move(reason),
                .factors = {},
                .metrics = {},
                .raw_times_s = {}};
  p.factors[core::Factor::ranks] = std::int64_t{2};
  p.factors[core::Factor::model] = std::string("mlp");
  p.factors[core::Factor::batch_per_rank] = batch;
  if (status == core::Status::ok) p.metrics[core::Metric::time_s] = time_s;
  return p;
}

core::ResultFile file_of(std::vector<core::Point> points, std::optional<core::RunPlan> plan) {
  core::Run run;
  run.info.run_id = "r";
  run.info.time = "2024-05-01T12:00:00Z";
  run.info.command = "gradmeter scale";
  run.info.hosts = {"node1"};
  run.info.ranks = 2;
  run.points = std::move(points);
  run.plan = plan;
  core::ResultFile file;
  file.runs.push_back(std::move(run));
  return file;
}

Observation at(double now, double last_growth, bool held = true) {
  return {.now = start + now, .last_growth = start + last_growth, .is_held = held, .is_free = !held, .host = "node1"};
}

std::vector<std::string> texts(const std::vector<ScreenLine>& lines) {
  std::vector<std::string> out;
  for (const auto& line : lines) out.push_back(line.text);
  return out;
}

TEST(WatchedProgress, TheRestTakesAsLongAPointAsThoseDone) {
  const auto file = file_of({point(16, 1), point(32, 1)}, core::make_plan(6, 3));
  const RunProgress p = progress_of(file, at(70, 60));
  EXPECT_EQ(p.state, RunState::running);
  EXPECT_DOUBLE_EQ(p.elapsed_s, 70);
  ASSERT_TRUE(p.left_s);
  EXPECT_DOUBLE_EQ(*p.left_s, 110);  // 4 points of 30 s, the first 10 s under way
  EXPECT_EQ(progress_text(p), "2 of 6 points and 3 kept · 01:10 elapsed · 01:50 left");
}

TEST(WatchedProgress, IsUnknownWithoutAPlanOrAPoint) {
  EXPECT_EQ(progress_text(progress_of(file_of({point(16, 1)}, {}), at(10, 5))),
            "1 point; how many are planned is unknown · 00:10 elapsed · time left unknown");
  EXPECT_FALSE(progress_of(file_of({}, core::make_plan(3, 0)), at(10, 5)).left_s);
  EXPECT_EQ(progress_of({}, at(10, 5)).state, RunState::none);
}

TEST(WatchedProgress, AClockThatIsAheadDoesNoHarm) {
  const RunProgress p = progress_of(file_of({point(16, 1)}, core::make_plan(2, 0)), at(10, 500));
  EXPECT_DOUBLE_EQ(p.quiet_s, 0);
  EXPECT_DOUBLE_EQ(*p.left_s, 10);
}

TEST(WatchedState, AFreeLockOnTheWritersHostMeansThatItIsGone) {
  const auto file = file_of({point(16, 1)}, core::make_plan(3, 0));
  Observation o = at(70, 60, false);
  EXPECT_EQ(progress_of(file, o).state, RunState::gone);
  EXPECT_THAT(state_text(file, progress_of(file, o)).text, HasSubstr("gone and left no end: it was killed"));
  EXPECT_DOUBLE_EQ(progress_of(file, o).elapsed_s, 60) << "it ended when it last wrote, as far as anybody knows";
  o.host = "node2";  // where the lock may not be seen
  EXPECT_EQ(progress_of(file, o).state, RunState::running);
  o.now = start + 60 + 299;  // a point took 60 s
  EXPECT_EQ(progress_of(file, o).state, RunState::running);
  o.now = start + 60 + 301;
  EXPECT_EQ(progress_of(file, o).state, RunState::silent);
  EXPECT_THAT(state_text(file, progress_of(file, o)).text, HasSubstr("silent for 05:01"));
  o.is_held = true;  // seen from there, whatever the time
  o.is_free = false;
  EXPECT_EQ(progress_of(file, o).state, RunState::running);
}

TEST(WatchedState, TellsTheExitStatusAndWhy) {
  auto file = file_of({point(16, 1)}, core::make_plan(1, 0));
  const auto said = [&](std::int64_t exit, const std::string& reason) {
    file.runs[0].end = core::RunEnd{.time = "2024-05-01T12:01:30Z", .exit = exit, .reason = reason};
    return state_text(file, progress_of(file, at(5000, 90, false))).text;
  };
  EXPECT_EQ(said(0, ""), "ended with exit status 0");
  EXPECT_EQ(said(4, ""), "ended with exit status 4: a result was wrong");
  EXPECT_EQ(said(5, ""), "ended with exit status 5: a GPU was lost");
  EXPECT_EQ(said(3, "MPI: lost rank 3"), "ended with exit status 3: MPI: lost rank 3");
  EXPECT_EQ(said(143, "interrupted"), "ended with exit status 143: interrupted by signal 15");
  EXPECT_DOUBLE_EQ(progress_of(file, at(5000, 90, false)).elapsed_s, 90);
}

TEST(WatchScreen, ShowsUnitsReasonsAndFits) {
  using core::Status;
  std::vector<core::Point> points;
  for (std::int64_t batch = 1; batch <= 40; ++batch) points.push_back(point(batch, 0.0125));
  points.push_back(point(100, 0, Status::skipped, "needs 9 GiB of memory"));
  points.push_back(point(200, 0, Status::skipped, "needs 9 GiB of memory"));
  points.push_back(point(300, 0, Status::failed, "no route \033[2J"));
  const auto file = file_of(points, core::make_plan(50, 0));
  for (const std::size_t height : {24u, 10u, 3u}) {
    const auto lines = texts(watch_screen(file, at(70, 60), 60, height));
    EXPECT_LE(lines.size(), height);
    for (const auto& line : lines) EXPECT_LE(core::display_width(line), 60u) << line;
  }
  const auto lines = texts(watch_screen(file, at(70, 60), 60, 24));
  EXPECT_THAT(lines, Contains("  2 skipped: needs 9 GiB of memory"));
  EXPECT_THAT(lines, Contains("  1 failed: no route \uFFFD[2J")) << "a file must not command the terminal";
  const auto unit = std::ranges::find_if(lines, [](const auto& l) { return l.find("ms") != std::string::npos; });
  ASSERT_NE(unit, lines.end()) << "12.5 ms";
  EXPECT_THAT(lines, Contains(HasSubstr("12.5")));
  EXPECT_THAT(lines, Contains(HasSubstr("batch_per_rank")));
  EXPECT_THAT(lines, Not(Contains(HasSubstr("model")))) << "all points have the same";
}

// Imported runs may lack them.
TEST(WatchScreen, LeavesOutRanksNodesAndCoresThatAreUnknown) {
  auto file = file_of({point(16, 1)}, {});
  const auto line = [&] { return texts(watch_screen(file, at(70, 60), 80, 24)).at(1); };
  EXPECT_EQ(line(), "on 2 ranks on 1 node (node1)");
  file.runs[0].info.nodes = 0;
  EXPECT_EQ(line(), "on 2 ranks (node1)");
  file.runs[0].info.ranks = 0;
  file.runs[0].info.hosts = {};
  EXPECT_EQ(line(), "on unknown ranks");
  file.runs[0].info.cores_per_node = 4;
  EXPECT_EQ(line(), "on unknown ranks, 4 cores a node");
}

TEST(RecentTable, TakesTheUnitThatTheTimesAskFor) {
  const auto with = [](double time) { return recent_table(file_of({point(1, time)}, {}).runs[0], 5, core::any_width); };
  EXPECT_THAT(with(2.5), HasSubstr("2.50"));
  EXPECT_THAT(with(0.0025), HasSubstr("2.50"));
  EXPECT_THAT(with(0.0025), HasSubstr("ms"));
  EXPECT_THAT(with(2.5e-6), HasSubstr("us"));
  const auto mixed = recent_table(file_of({point(1, 4e-4), point(2, 0.08)}, {}).runs[0], 5, core::any_width);
  EXPECT_THAT(mixed, HasSubstr("  0.40 ")) << "in ms, which is between";
  EXPECT_THAT(mixed, HasSubstr("80.0"));
}

TEST(RecentTable, LeavesOutFirstWhatFollowsFromOtherFactors) {
  std::vector<core::Point> points;
  for (std::int64_t i = 1; i < 3; ++i) {
    points.push_back(point(16 * i, 1));
    points.back().factors[core::Factor::ranks] = 2 * i;
    points.back().factors[core::Factor::ranks_per_node] = 2 * i;
    points.back().factors[core::Factor::nodes] = i;
    points.back().factors[core::Factor::batch_global] = 32 * i * i;
    points.back().factors[core::Factor::strategy] = std::string(i == 1 ? "sync" : "independent");
    points.back().factors[core::Factor::bucket_bytes] = 1024 * i;
    points.back().factors[core::Factor::overlap] = std::string(i == 1 ? "none" : "bucketed");
    if (i == 1) points.back().factors[core::Factor::algorithm] = std::string("ring");
  }
  const auto table = recent_table(file_of(points, {}).runs[0], 5, core::any_width);
  EXPECT_LT(table.find("bucket_bytes"), table.find("batch_global"));
  EXPECT_LT(table.find("overlap"), table.find("algorithm")) << "which has one value, where it applies";
  const auto narrow = recent_table(file_of(points, {}).runs[0], 5, 70);
  EXPECT_EQ(narrow.substr(0, narrow.find("\n")).find("ranks_per_node"), std::string::npos) << narrow;
  EXPECT_NE(narrow.substr(0, narrow.find("\n")).find("bucket_bytes"), std::string::npos) << narrow;
}

TEST(PointLine, HasFactorsTimeAndReason) {
  EXPECT_EQ(point_line(point(16, 0.0125)), "scale ranks=2 model=mlp batch_per_rank=16  time 12.5 ms");
  EXPECT_EQ(point_line(point(16, 0, core::Status::failed, "lost")),
            "scale ranks=2 model=mlp batch_per_rank=16  failed: lost");
}

TEST(ShortLine, NamesThePointAsPeopleDo) {
  core::Point p = point(16, 0.0125);
  p.factors[core::Factor::algorithm] = std::string("ring");
  p.factors[core::Factor::codec] = std::string("none");
  p.metrics[core::Metric::efficiency] = 0.47;
  EXPECT_EQ(short_line(p), "mlp b16 2 ranks ring: 12.5 ms, 47 %");
  p = point(16, 0.0125);
  p.metrics[core::Metric::accuracy] = 0.92;
  EXPECT_EQ(short_line(p), "mlp b16 2 ranks: 12.5 ms, 92 % accuracy");
  EXPECT_EQ(short_line(point(16, 0, core::Status::failed, "lost")), "mlp b16 2 ranks: failed");
}

}  // namespace
}  // namespace gradmeter::report
