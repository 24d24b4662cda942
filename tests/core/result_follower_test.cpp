// SPDX-License-Identifier: Apache-2.0
#include "core/result_file.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/file.h>
#include <unistd.h>

#include <fstream>

#include "support.hpp"

namespace gradmeter::core {
namespace {

using Change = ResultFollower::Change;
using testing::HasSubstr;

void add_to(const std::filesystem::path& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary | std::ios::app);
  out << text;
  ASSERT_TRUE(out.flush()) << path;
}

std::string head(const std::string& run_id) { return to_json_line(sample_run(run_id)) + "\n"; }
std::string point(const std::string& run_id) { return to_json_line(sample_point(), run_id) + "\n"; }

TEST(ResultFollower, ReadsWhatIsAddedAndNoHalfLine) {
  const Folder folder;
  const auto path = folder / "r.jsonl";
  ResultFollower follower(path);
  EXPECT_EQ(follower.look(), Change::absent);
  EXPECT_THAT(follower.problem(), HasSubstr("No such file"));
  write_file(path, "");
  EXPECT_EQ(follower.look(), Change::none);
  const std::string line = point("r1");
  add_to(path, head("r1") + line.substr(0, line.size() / 2));
  EXPECT_EQ(follower.look(), Change::grown);
  EXPECT_EQ(follower.problem(), "");
  EXPECT_EQ(follower.file().runs.at(0).points.size(), 0u);
  EXPECT_EQ(follower.look(), Change::none);
  add_to(path, line.substr(line.size() / 2));
  EXPECT_EQ(follower.look(), Change::grown);
  ASSERT_EQ(follower.file().runs.at(0).points.size(), 1u);
  EXPECT_EQ(follower.file().runs[0].points[0].factors, sample_point().factors);
  EXPECT_TRUE(follower.file().left_out.empty());
}

TEST(ResultFollower, WaitsForDataThatANetworkDiskHasNotBroughtYet) {
  const Folder folder;
  const auto path = folder / "r.jsonl";
  const std::string line = point("r1");
  write_file(path, head("r1") + std::string(line.size() - 1, '\0') + "\n" + point("r1"));
  ResultFollower follower(path);
  follower.look();
  EXPECT_EQ(follower.file().runs.at(0).points.size(), 0u);
  write_file(path, head("r1") + line + point("r1"));
  EXPECT_EQ(follower.look(), Change::grown);
  EXPECT_EQ(follower.file().runs.at(0).points.size(), 2u);
  EXPECT_TRUE(follower.file().left_out.empty());
}

TEST(ResultFollower, BeginsAnewWhenTheFileIsAnotherOne) {
  const Folder folder;
  const auto path = folder / "r.jsonl";
  write_file(path, head("old") + point("old"));
  ResultFollower follower(path);
  follower.look();
  // --force empties the same file; by the next look it may be longer than before.
  write_file(path, head("new") + point("new") + point("new"));
  EXPECT_EQ(follower.look(), Change::replaced);
  ASSERT_EQ(follower.file().runs.size(), 1u);
  EXPECT_EQ(follower.file().runs[0].points.size(), 2u);
  // Cut off at its end.
  write_file(path, head("new"));
  EXPECT_EQ(follower.look(), Change::replaced);
  EXPECT_EQ(follower.file().runs.at(0).points.size(), 0u);
  // Moved away, and later made anew with the same lines.
  std::filesystem::rename(path, folder / "r.jsonl.1");
  EXPECT_EQ(follower.look(), Change::absent);
  EXPECT_EQ(follower.file().runs.size(), 1u) << "what was read stays";
  write_file(path, head("new") + point("new"));
  EXPECT_EQ(follower.look(), Change::replaced);
  EXPECT_EQ(follower.file().runs.at(0).points.size(), 1u);
}

TEST(ResultFollower, KeepsWhatItReadWhileTheDiskGivesErrors) {
  // A file of the kernel's that has a size and cannot be read, where there is one.
  const std::filesystem::path unreadable = "/sys/class/net/lo/speed";
  if (!std::filesystem::is_regular_file(unreadable) || std::ifstream(unreadable).get() != EOF) GTEST_SKIP();
  const Folder folder;
  const auto path = folder / "r.jsonl";
  write_file(path, head("r1") + point("r1"));
  ResultFollower follower(path);
  follower.look();
  std::filesystem::rename(path, folder / "kept");
  std::filesystem::create_symlink(unreadable, path);
  EXPECT_EQ(follower.look(), Change::absent);
  EXPECT_NE(follower.problem(), "");
  EXPECT_EQ(follower.file().runs.size(), 1u);
  std::filesystem::rename(folder / "kept", path);
  add_to(path, point("r1"));
  EXPECT_EQ(follower.look(), Change::grown);
  EXPECT_EQ(follower.file().runs.at(0).points.size(), 2u);
}

TEST(ResultFollower, ALineThatResumeCutsOffIsNoNewFile) {
  const Folder folder;
  const auto path = folder / "r.jsonl";
  write_file(path, head("r1") + point("r1") + "{\"kind\":\"poi");
  ResultFollower follower(path);
  follower.look();
  ResultWriter writer(path, OpenMode::resume);
  EXPECT_EQ(follower.look(), Change::none);
  writer.append(sample_run("r2"));
  EXPECT_EQ(follower.look(), Change::grown);
  EXPECT_EQ(follower.file().runs.size(), 2u);
}

TEST(ResultFollower, LeavesOutABadLineAndRefusesAForeignFile) {
  const Folder folder;
  write_file(folder / "r.jsonl", head("r1") + "{\"kind\":\"poem\"}\n" + point("r1"));
  ResultFollower follower(folder / "r.jsonl");
  follower.look();
  EXPECT_EQ(follower.file().runs.at(0).points.size(), 1u);
  ASSERT_EQ(follower.file().left_out.size(), 1u);
  EXPECT_THAT(follower.file().left_out[0], HasSubstr("r.jsonl:2: kind"));
  write_file(folder / "poem", "Whose woods these are\n");
  EXPECT_THAT(refusal([&] { ResultFollower(folder / "poem").look(); }), HasSubstr("poem:1: not JSON"));
  EXPECT_THAT(refusal([&] { ResultFollower(folder / "").look(); }), HasSubstr("directory"));
}

TEST(WriterLock, IsHeldWhileAWriterLives) {
  const Folder folder;
  const auto path = folder / "r.jsonl";
  EXPECT_EQ(writer_lock(path), WriterLock::unknown);
  {
    const ResultWriter writer(path, OpenMode::create);
    EXPECT_EQ(writer_lock(path), WriterLock::held);
  }
  EXPECT_EQ(writer_lock(path), WriterLock::none);
  EXPECT_EQ(writer_lock(path), WriterLock::none) << "looking gives the lock back";
  const int other = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_EQ(::flock(other, LOCK_SH | LOCK_NB), 0);
  EXPECT_EQ(writer_lock(path), WriterLock::none) << "another process that looks is no writer";
  ::close(other);
}

TEST(RunPlan, OfARunAddsUpAndAnEndIsRead) {
  const std::string text =
      head("r1") + to_json_line(make_plan(3, 1), "r1") + "\n" + point("r1") + to_json_line(make_plan(2, 0), "r1") +
      "\n" + to_json_line(RunEnd{.time = "2024-05-01T12:01:00Z", .exit = 143, .reason = "interrupted"}, "r1") + "\n" +
      head("r2");
  const ResultFile file = parse_results(text, "f");
  ASSERT_EQ(file.runs.size(), 2u);
  ASSERT_TRUE(file.runs[0].plan && file.runs[0].end);
  EXPECT_EQ(file.runs[0].plan->points, 5);
  EXPECT_EQ(file.runs[0].plan->kept, 1);
  EXPECT_EQ(file.runs[0].end->exit, 143);
  EXPECT_EQ(file.runs[0].end->reason, "interrupted");
  EXPECT_EQ(file.runs[0].end->time, "2024-05-01T12:01:00Z");
  EXPECT_FALSE(file.runs[1].plan || file.runs[1].end);
}

TEST(RunPlan, ABadOneIsRefusedWithItsPlace) {
  const auto refused = [](const std::string& line) { return refusal([&] { parse_results(head("r1") + line, "f"); }); };
  EXPECT_THAT(refused(R"({"kind":"plan","run_id":"r1","points":-1})"), HasSubstr("f:2: 'points' is -1"));
  EXPECT_THAT(refused(R"({"kind":"plan","run_id":"r9","points":1})"), HasSubstr("a plan of run 'r9' stands before"));
  EXPECT_THAT(refused(R"({"kind":"end","run_id":"r1"})"), HasSubstr("'exit' is missing"));
  EXPECT_THAT(refused(R"({"kind":"end","run_id":"r1","exit":"0"})"), HasSubstr("'exit' is a text"));
}

TEST(Spans, AreReadBackAsTheyWere) {
  Point p = sample_point();
  const Spans spans{{.name = "fc2", .begin_s = 0.25, .end_s = 0.5},
                    {.name = "bucket 1", .begin_s = 0.5, .end_s = 0.75, .ready_s = 0.375, .bytes = 4096}};
  p.metrics[Metric::timeline_exchange] = spans;
  const auto file = parse_results(head("r1") + to_json_line(p, "r1"), "f");
  EXPECT_EQ(file.runs.at(0).points.at(0).metrics[Metric::timeline_exchange].get<Spans>(), spans);
  const std::string bad =
      R"({"kind":"point","run_id":"r1","experiment":"scale","status":"ok","metrics":{"timeline_exchange":[)";
  EXPECT_THAT(refusal([&] { parse_results(head("r1") + bad + R"({"name":"a","begin_s":0}]}})", "f"); }),
              HasSubstr("a span of 'timeline_exchange' has no 'end_s'"));
  EXPECT_THAT(refusal([&] { parse_results(head("r1") + bad + "3]}}", "f"); }), HasSubstr("list of spans"));
}

}  // namespace
}  // namespace gradmeter::core
