// SPDX-License-Identifier: Apache-2.0
#include "bench/engine/output.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "bench/engine/session.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "core/print.hpp"
#include "runtime/process/signals.hpp"

namespace gradmeter::bench {

using core::UsageError;
namespace fs = std::filesystem;

void add_output_flags(FlagList& list) {
  add_text(list, "out", "",
           "result file (JSON Lines); points are appended once those that they are compared with are measured too");
  add_switch(list, "force", "replace an existing result file");
  add_switch(list, "resume",
             "continue an existing file: keep points of the same machine, build, libraries, environment and binding, "
             "measure the rest; --resume=any keeps all points of this machine");
  add_switch(list, "append", "add another run to an existing file, and measure everything again");
}

void add_result_file_flags(FlagList& list) {
  add_text(list, "out", "", "result file (JSON Lines) for the rows");
  add_switch(list, "force", "replace an existing result file");
  add_switch(list, "append", "add the rows to an existing file, as another run");
}

OutputFlags read_output_flags(const Flags& f) {
  OutputFlags output{.path = f.has("out") ? f.text("out") : "",
                     .force = f.on("force"),
                     .resume = f.on("resume"),
                     .append = f.on("append"),
                     .resume_any = f.resumes_any()};
  if (output.force + output.resume + output.append > 1) throw UsageError("give one of --force, --resume and --append");
  const bool other_file =
      f.has("dump-gradients") || f.has("dump-weights") || f.has("output");  // --force may be meant for that file
  if (output.path.empty() && (output.force && !other_file) + output.resume + output.append > 0) {
    throw UsageError("--force, --resume and --append need the result file's name in --out");
  }
  // The path is printed in notes, at the end of a run, and in the commands to run next.
  if (std::ranges::any_of(output.path, [](char c) { return (c >= 0 && c < ' ') || c == 0x7F; }))
    throw UsageError(fmt::format("--out {}: has control characters; give a plain name", output.path));
  return output;
}

namespace {

void check_writable(const fs::path& path) {
  std::error_code error;
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  if (fs::is_directory(path, error))
    throw UsageError(fmt::format("--out {}: is a directory; give a file", path.string()));
  if (!fs::is_directory(folder, error)) {
    throw UsageError(fmt::format("--out {}: there is no directory {}; make it first", path.string(), folder.string()));
  }
  const bool exists = fs::exists(path, error);
  if (access(exists ? path.c_str() : folder.c_str(), W_OK) != 0) {
    throw UsageError(fmt::format("--out {}: no permission to write; choose another place", path.string()));
  }
}

}  // namespace

EarlierResults check_output(const OutputFlags& output, const core::RunInfo& this_run, const std::string& experiment) {
  EarlierResults earlier;
  if (output.path.empty()) return earlier;
  check_writable(output.path);
  std::error_code error;
  if (!fs::exists(output.path, error) || output.force || !fs::is_regular_file(output.path, error)) return earlier;
  if (!output.resume && !output.append) {
    throw UsageError(fmt::format("--out {}: exists; --resume goes on with it, --append adds a run, --force replaces it",
                                 output.path));
  }
  const core::ResultFile file = core::read_results(output.path);
  if (!file.note.empty()) earlier.note = file.note;
  if (output.resume) {
    auto [finished, measured_anew] = core::finished_points(file, this_run, experiment, output.resume_any);
    earlier.finished = std::move(finished);
    std::size_t earlier_points = 0;
    for (const auto& run : file.runs) earlier_points += run.points.size();
    if (!earlier.note.empty()) earlier.note += "\n";
    earlier.note += fmt::format("{}: {} of {} earlier points are finished ones of this machine and are kept",
                                output.path, earlier.finished.size(), earlier_points);
    for (const auto& [condition, points] : measured_anew) {
      earlier.note +=
          fmt::format("\n{} of them {} measured with {}: measured anew{}", points, points == 1 ? "was" : "were",
                      condition, condition.starts_with("machine") ? "" : ", where --resume=any keeps what it finds");
    }
  }
  return earlier;
}

std::unique_ptr<core::ResultWriter> open_output(const OutputFlags& output, const core::RunInfo& info) {
  if (output.path.empty()) return nullptr;
  const auto mode = output.force                       ? core::OpenMode::overwrite
                    : (output.resume || output.append) ? core::OpenMode::resume
                                                       : core::OpenMode::create;
  auto writer = std::make_unique<core::ResultWriter>(output.path, mode);
  writer->append(info);
  return writer;
}

core::ResultWriter* CommandOutput::open(const OutputFlags& output, const core::RunInfo& info) {
  writer_ = open_output(output, info);
  if (writer_) {
    runtime::before_sudden_end([writer = writer_.get()](int code, const std::string& why) {
      writer->append_at_once({.time = utc_now(), .exit = code, .reason = why});
    });
  }
  return writer_.get();
}

int CommandOutput::end(int code, std::string_view reason) noexcept {
  try {
    if (writer_) runtime::before_sudden_end({});
    if (writer_ && !writer_->failed()) {
      writer_->append(core::RunEnd{.time = utc_now(), .exit = code, .reason = std::string(reason)});
      writer_->finish();
    }
  } catch (const std::exception& e) {
    core::print(stderr, "gradmeter: {}\n", core::printable(e.what()));
    if (code == 0) code = static_cast<int>(core::ExitCode::backend);
  }
  writer_.reset();
  return code;
}

std::map<std::string, core::Point> share_finished(const runtime::Communicator& world,
                                                  std::map<std::string, core::Point> finished) {
  std::string text;
  for (const auto& [key, point] : finished) text += core::to_json_line(point, "kept") + "\n";
  text = world.broadcast_text(text);
  if (world.rank() == 0 || text.empty()) return finished;
  core::RunInfo info;
  info.run_id = "kept";
  const std::string head = core::to_json_line(info) + "\n";
  const core::ResultFile file = core::parse_results(head + text, "kept points");
  for (const auto& p : file.runs.front().points) finished[p.factors.key()] = p;
  return finished;
}

}  // namespace gradmeter::bench
