// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <sys/resource.h>

#include <csignal>

#include "core/result_file.hpp"
#include "support.hpp"

namespace gradmeter::core {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(ResultWriter, EachLineIsInTheFileWhenAppendReturns) {
  const Folder folder;
  const auto path = folder / "r.jsonl";
  ResultWriter writer(path, OpenMode::create);
  EXPECT_EQ(writer.path(), path);
  writer.append(sample_run());
  EXPECT_EQ(read_file(path), to_json_line(sample_run()) + "\n");
  writer.append(sample_point());
  EXPECT_EQ(read_results(path).runs.at(0).points.size(), 1u);
}

TEST(ResultWriter, CreateRefusesAnExistingFileAndSaysWhatToDo) {
  const Folder folder;
  const auto path = folder / "r.jsonl";
  write_file(path, "precious\n");
  const std::string message = refusal([&] { ResultWriter(path, OpenMode::create); });
  EXPECT_THAT(message, HasSubstr("--force"));
  EXPECT_THAT(message, HasSubstr("--resume"));
  EXPECT_EQ(read_file(path), "precious\n");
}

TEST(ResultWriter, OverwriteBeginsAnew) {
  const Folder folder;
  const auto path = folder / "r.jsonl";
  write_file(path, "old\n");
  ResultWriter(path, OpenMode::overwrite).append(sample_run());
  EXPECT_EQ(read_file(path), to_json_line(sample_run()) + "\n");
}

TEST(ResultWriter, AMissingDirectoryIsNamed) {
  const Folder folder;
  for (const OpenMode mode : {OpenMode::create, OpenMode::overwrite, OpenMode::resume}) {
    EXPECT_THAT(refusal([&] { ResultWriter(folder / "no/such/r.jsonl", mode); }), HasSubstr("no/such' does not exist"));
  }
  EXPECT_THAT(refusal([&] { ResultWriter(folder / "", OpenMode::resume); }), HasSubstr("cannot write"));
}

TEST(ResultWriter, APointBeforeItsRunIsAMistakeOfTheProgram) {
  const Folder folder;
  ResultWriter writer(folder / "r.jsonl", OpenMode::create);
  EXPECT_THROW(writer.append(sample_point()), std::logic_error);
}

TEST(ResultWriter, ResumeCutsATornLineAndGoesOn) {
  const Folder folder;
  const auto path = folder / "r.jsonl";
  const std::string whole = to_json_line(sample_run()) + "\n" + to_json_line(sample_point(), "r1") + "\n";
  write_file(path, whole + to_json_line(sample_point(), "r1").substr(0, 100));
  ResultWriter writer(path, OpenMode::resume);
  EXPECT_EQ(read_file(path), whole);
  writer.append(sample_run("r2"));
  writer.append(sample_point());
  const ResultFile file = read_results(path);
  EXPECT_EQ(file.note, "");
  EXPECT_EQ(file.runs.at(0).points.size(), 1u);
  EXPECT_EQ(file.runs.at(1).points.size(), 1u);
}

TEST(ResultWriter, ResumeKeepsAWholeLastLineThatLacksItsNewline) {
  const Folder folder;
  const auto path = folder / "r.jsonl";
  const std::string text = to_json_line(sample_run()) + "\n" + to_json_line(sample_point(), "r1");
  write_file(path, text);
  ResultWriter writer(path, OpenMode::resume);
  EXPECT_EQ(read_file(path), text + "\n");
}

TEST(ResultWriter, ResumeOfAnEmptyATornOrNoFileStartsOne) {
  const Folder folder;
  write_file(folder / "empty", "");
  write_file(folder / "torn", to_json_line(sample_run()).substr(0, 30));
  for (const char* name : {"none", "empty", "torn"}) {
    ResultWriter(folder / name, OpenMode::resume).append(sample_run());
    EXPECT_EQ(read_file(folder / name), to_json_line(sample_run()) + "\n") << name;
  }
}

TEST(ResultWriter, ResumeLeavesAForeignFileAsItWas) {
  const Folder folder;
  for (const char* text : {"my thesis, line 1", "ranks,time\n1,2", "{\"a\":", "[1]\n"}) {
    const auto path = folder / "r.jsonl";
    write_file(path, text);
    EXPECT_THAT(refusal([&] { ResultWriter(path, OpenMode::resume); }), HasSubstr("r.jsonl:1: ")) << text;
    EXPECT_EQ(read_file(path), text);
  }
}

TEST(ResultWriter, AFullDiskIsABackendError) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  ResultWriter writer("/dev/full", OpenMode::create);
  try {
    writer.append(sample_run());
    FAIL() << "the write should have failed";
  } catch (const BackendError& e) {
    EXPECT_THAT(e.what(), HasSubstr("'/dev/full': No space left on device"));
  }
}

/// Limits the size of files for as long as it lives; writes beyond it fail with EFBIG instead of a signal.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit before_{};
  void (*handler_)(int);
};

TEST(ResultWriter, AFileThatAnotherJobWritesIsRefusedAndUntouched) {
  const Folder folder;
  const auto path = folder / "r.jsonl";
  {
    ResultWriter first(path, OpenMode::create);
    first.append(sample_run());
    for (const OpenMode mode : {OpenMode::overwrite, OpenMode::resume}) {
      EXPECT_THAT(refusal([&] { ResultWriter(path, mode); }), HasSubstr("another job is writing"));
    }
    first.append(sample_point());
    EXPECT_EQ(read_results(path).runs.at(0).points.size(), 1u);
  }
  EXPECT_NO_THROW(ResultWriter(path, OpenMode::resume));
}

TEST(ResultWriter, AShortWriteIsGoneOnWithUntilItFails) {
  // A file size limit in the middle of the line makes the kernel take a part, then refuse the rest.
  const Folder folder;
  const auto path = folder / "r.jsonl";
  std::size_t whole = 0;
  {
    ResultWriter writer(path, OpenMode::create);
    writer.append(sample_run());
    whole = read_file(path).size();
    const FileSizeLimit limit(whole + 50);
    EXPECT_FALSE(writer.failed());
    EXPECT_THROW(writer.append(sample_point()), BackendError);
    EXPECT_TRUE(writer.failed());
  }
  EXPECT_EQ(read_file(path).size(), whole + 50);
  ResultWriter resumed(path, OpenMode::resume);
  EXPECT_EQ(read_file(path).size(), whole) << "what was torn by the failure is mended by --resume";
}

/// A run and a point in a file, then `blow` to it, then another point; what is told on standard error.
template <class Blow>
std::string after(const Folder& folder, Blow blow) {
  ResultWriter writer(folder / "r.jsonl", OpenMode::create);
  writer.append(sample_run());
  writer.append(sample_point());
  blow(folder / "r.jsonl");
  testing::internal::CaptureStderr();
  try {
    writer.append(sample_point());
    writer.finish();
  } catch (const BackendError& e) {
    return testing::internal::GetCapturedStderr() + e.what();
  }
  return testing::internal::GetCapturedStderr();
}
std::size_t points_in(const std::filesystem::path& path) { return read_results(path).runs.at(0).points.size(); }

TEST(ResultWriter, WritesARenamedFileOnAndNamesIt) {
  const Folder folder;
  const auto told = after(folder, [&](const auto& path) { std::filesystem::rename(path, folder / "moved.jsonl"); });
  EXPECT_THAT(told, HasSubstr("its rows are in '" + (folder / "moved.jsonl").string()));
  EXPECT_EQ(points_in(folder / "moved.jsonl"), 2u);
  EXPECT_FALSE(std::filesystem::exists(folder / "r.jsonl"));
}

TEST(ResultWriter, WritesARemovedFileAnew) {
  const Folder folder;
  EXPECT_THAT(after(folder, [](const auto& path) { std::filesystem::remove(path); }), HasSubstr("with all rows"));
  EXPECT_EQ(points_in(folder / "r.jsonl"), 2u);
}

TEST(ResultWriter, TouchesNoOtherFileInThePlaceOfItsOwn) {
  const Folder folder;
  const auto replace = [](const auto& path) {
    std::filesystem::remove(path);
    write_file(path, "somebody's");
  };
  EXPECT_THAT(after(folder, replace), HasSubstr("cannot be made anew: File exists"));
  EXPECT_EQ(read_file(folder / "r.jsonl"), "somebody's");
}

TEST(ResultWriter, RefusesAFileThatWasCutShort) {
  const Folder folder;
  const auto cut = [](const auto& path) { std::filesystem::resize_file(path, 10); };
  EXPECT_THAT(after(folder, cut), HasSubstr("somebody cut it short while this run wrote it: 10 of "));
}

TEST(ResultWriter, SaysNothingOfAFileThatIsAsItWas) {
  const Folder folder;
  EXPECT_EQ(after(folder, [](const auto&) {}), "");
}

TEST(ResultWriter, WritesAnEndAtOnceUnlessALineFailed) {
  const Folder folder;
  ResultWriter writer(folder / "r.jsonl", OpenMode::create);
  writer.append_at_once({.time = "now", .exit = 143, .reason = "before the run"});
  writer.append(sample_run());
  writer.append_at_once({.time = "now", .exit = 143, .reason = "ended"});
  EXPECT_THAT(read_file(folder / "r.jsonl"), AllOf(HasSubstr("\"ended\""), testing::Not(HasSubstr("before the run"))));
  std::filesystem::resize_file(folder / "r.jsonl", 10);
  EXPECT_THROW(writer.append(sample_point()), BackendError);
  writer.append_at_once({.time = "now", .exit = 3, .reason = "too late"});
  EXPECT_THAT(read_file(folder / "r.jsonl"), testing::Not(HasSubstr("too late")));
}

}  // namespace
}  // namespace gradmeter::core
