// SPDX-License-Identifier: Apache-2.0
// The result file as a whole: reading it, choosing the points that a run may keep, and following it while it is
// written.
#include "core/result_file.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "core/detail/result_line.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "core/print.hpp"

namespace gradmeter::core {
namespace {

/// A torn line must be something that gradmeter itself may have begun to write. Other text at the top of a file belongs
/// to someone else, and --resume must not cut it.
bool begins_as_ours(std::string_view line) {
  constexpr std::string_view head = R"({"kind":"run","schema":)";
  const std::size_t n = std::min(head.size(), line.size());
  return line.substr(0, n) == head.substr(0, n);
}

}  // namespace

/// Assembles a result file from its lines.
class detail::FileReader {
 public:
  FileReader(std::string label, Reading reading, Samples samples)
      : label_(std::move(label)), reading_(reading), lines_(reading, samples) {}

  /// ended: the line has its end, as all but the last have.
  void add(std::string_view line, bool ended) {
    ++number_;
    try {
      lines_.read(line, file_);
    } catch (const NotJson& e) {
      if (ended || (number_ == 1 && !begins_as_ours(line))) {
        refuse(e);
        return;
      }
      file_.note = fmt::format("{}:{}: the last line is torn (a run was killed) and was left out", label_, number_);
    } catch (const UsageError& e) {
      refuse(e);
    }
  }

  ResultFile finish() {
    if (reading_ == Reading::lenient && file_.runs.empty()) {
      throw UsageError(fmt::format("{}: no line of it begins a gradmeter run; the first problem is {}", label_,
                                   file_.left_out.empty() ? "that it is empty" : file_.left_out.front()));
    }
    return std::move(file_);
  }
  const ResultFile& so_far() const { return file_; }

 private:
  void refuse(const UsageError& e) {
    std::string message = fmt::format("{}:{}: {}", label_, number_, e.what());
    if (reading_ == Reading::strict) throw UsageError(message);
    file_.left_out.push_back(std::move(message));
  }

  std::string label_;
  Reading reading_;
  LineReader lines_;
  ResultFile file_;
  std::size_t number_ = 0;
};

ResultFile parse_results(std::string_view text, const std::string& label, Reading reading) {
  detail::FileReader file(label, reading, Samples::kept);
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    const bool ended = end != std::string_view::npos;
    file.add(text.substr(0, end), ended);
    text.remove_prefix(ended ? end + 1 : text.size());
  }
  return file.finish();
}

ResultFile read_results(const std::filesystem::path& path, Reading reading, Samples samples) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    throw UsageError(fmt::format("'{}' is a directory; name a result file", path.string()));
  }
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  if (!in) {
    throw UsageError(
        fmt::format("cannot read '{}': {}; name an existing result file", path.string(), std::strerror(errno)));
  }
  detail::FileReader file(path.string(), reading, samples);
  for (std::string line; std::getline(in, line);) file.add(line, !in.eof());
  if (in.bad()) throw BackendError("file system", "read", fmt::format("'{}' broke off", path.string()));
  return file.finish();
}

RunPlan make_plan(std::size_t points, std::size_t kept) {
  return {.points = static_cast<std::int64_t>(points), .kept = static_cast<std::int64_t>(kept)};
}

namespace {

using Conditions = std::map<std::string, std::string>;

/// The conditions, beside its factors, that a row's numbers depend on, by name.
Conditions conditions_of(const RunInfo& info) {
  Conditions out{{"machine", info.fingerprint},
                 {"version", info.version},
                 {"commit", info.commit},
                 {"MPI", info.mpi},
                 {"MPI's single copy", info.mpi_single_copy},
                 {"binding", info.binding}};
  for (const auto& [name, version] : info.libraries) out["library " + name] = version;
  for (const auto& [name, value] : info.environment) {
    const bool is_number_of_job = name == "SLURM_JOB_ID" || name == "SLURM_STEP_ID";
    // printable, as in files that were read
    if (!is_number_of_job) out["environment " + printable(name)] = printable(value);
  }
  return out;
}

}  // namespace

std::vector<std::string> differing_conditions(const RunInfo& then, const RunInfo& now) {
  const Conditions before = conditions_of(then), after = conditions_of(now);
  std::vector<std::string> out;
  const auto shown = [](const Conditions& of, const std::string& name) {
    const auto at = of.find(name);
    return at == of.end() ? std::string("not set") : at->second;
  };
  Conditions names = before;
  names.insert(after.begin(), after.end());
  for (const auto& [name, unused] : names) {
    const std::string was = shown(before, name), is = shown(after, name);
    if (was != is && !was.empty() && !is.empty()) out.push_back(fmt::format("{} {} (now {})", name, was, is));
  }
  return out;
}

FinishedPoints finished_points(const ResultFile& file, const RunInfo& now, const std::string& experiment, bool any) {
  FinishedPoints out;
  for (const Run& run : file.runs) {
    const bool is_here = run.info.fingerprint == now.fingerprint;
    const auto differing = differing_conditions(run.info, now);
    for (const Point& point : run.points) {
      if (point.experiment != experiment) continue;
      if (!is_here || (!any && !differing.empty())) {
        ++out.differently[differing.empty() ? "machine" : differing.front()];
        continue;
      }
      const bool done =
          point.status == Status::ok || point.status == Status::unsupported || point.status == Status::skipped;
      if (done) {
        out.points[point.factors.key()] = point;
      } else {
        out.points.erase(point.factors.key());
      }
    }
  }
  return out;
}

namespace {

/// A file open for reading, which closes itself.
class OpenFile {
 public:
  explicit OpenFile(const std::filesystem::path& path) {
    do {
      file_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    } while (file_ < 0 && errno == EINTR);
    code_ = file_ < 0 ? errno : 0;
  }
  ~OpenFile() {
    if (file_ >= 0) ::close(file_);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  int get() const { return file_; }
  int code() const { return code_; }  ///< the error that kept it closed; 0: it is open

 private:
  int file_ = -1, code_ = 0;
};

using FileStatus = struct stat;  // `stat` is also the name of a function

constexpr std::size_t head_bytes = 512;

/// Reads all that there is; none if the disk gives an error (errno).
std::optional<std::string> read_from(int file, std::uint64_t offset, std::uint64_t size) {
  std::string text(size, '\0');
  std::size_t got = 0;
  while (got < size) {
    const ssize_t n = ::pread(file, text.data() + got, size - got, static_cast<off_t>(offset + got));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return std::nullopt;
    if (n == 0) break;
    got += static_cast<std::size_t>(n);
  }
  text.resize(got);
  return text;
}

}  // namespace

WriterLock writer_lock(const std::filesystem::path& path) {
  const OpenFile file(path);
  if (file.code() != 0) return WriterLock::unknown;
  if (::flock(file.get(), LOCK_SH | LOCK_NB) != 0) return errno == EWOULDBLOCK ? WriterLock::held : WriterLock::unknown;
  return WriterLock::none;  // closing the file releases the lock
}

namespace {

std::unique_ptr<detail::FileReader> follow(const std::filesystem::path& path) {
  return std::make_unique<detail::FileReader>(path.string(), Reading::lenient, Samples::left_out);
}

}  // namespace

ResultFollower::ResultFollower(std::filesystem::path path) : path_(std::move(path)), reader_(follow(path_)) {}
ResultFollower::~ResultFollower() = default;

const ResultFile& ResultFollower::file() const { return reader_->so_far(); }

ResultFollower::Change ResultFollower::fail(int code) {
  if (code == EACCES || code == EPERM || code == EISDIR) {
    throw UsageError(
        fmt::format("cannot read '{}': {}; name a result file that can be read", path_.string(), std::strerror(code)));
  }
  problem_ = std::strerror(code);
  return Change::absent;
}

void ResultFollower::restart() {
  reader_ = follow(path_);
  read_ = 0;
  head_.clear();
}

ResultFollower::Change ResultFollower::look() {
  const OpenFile file(path_);
  if (file.code() != 0) return fail(file.code());
  FileStatus now{};
  if (::fstat(file.get(), &now) != 0) return fail(errno);
  if (S_ISDIR(now.st_mode)) return fail(EISDIR);
  if (!S_ISREG(now.st_mode)) throw UsageError(fmt::format("'{}' is not a regular file; name one", path_.string()));
  const auto size = static_cast<std::uint64_t>(now.st_size);
  const auto head = read_from(file.get(), 0, std::min<std::uint64_t>(size, head_bytes));
  if (!head) return fail(errno);
  const bool moved = inode_ != 0 && (inode_ != now.st_ino || device_ != now.st_dev);
  const bool anew = moved || size < read_ || head->substr(0, head_.size()) != head_;
  const std::uint64_t from = anew ? 0 : read_;
  const auto added = read_from(file.get(), from, size - from);
  if (!added) return fail(errno);
  problem_.clear();
  if (anew) restart();
  device_ = now.st_dev;
  inode_ = now.st_ino;
  last_growth_ = static_cast<double>(now.st_mtim.tv_sec) + 1e-9 * static_cast<double>(now.st_mtim.tv_nsec);
  std::string_view rest = std::string_view(*added).substr(0, added->find('\0'));
  rest = rest.substr(0, rest.rfind('\n') + 1);
  read_ += rest.size();
  head_ = head->substr(0, std::min<std::uint64_t>(read_, head_bytes));
  const bool grown = !rest.empty();
  for (std::size_t end; !rest.empty(); rest.remove_prefix(end + 1)) {
    end = rest.find('\n');
    reader_->add(rest.substr(0, end), true);
  }
  if (this->file().runs.empty() && !this->file().left_out.empty()) throw UsageError(this->file().left_out.front());
  return anew ? Change::replaced : grown ? Change::grown : Change::none;
}

}  // namespace gradmeter::core
