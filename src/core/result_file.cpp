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
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "core/detail/result_line.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "core/print.hpp"

namespace gradmeter::core {
namespace {

/// True if a torn first line may be one that gradmeter began to write. A file that begins with other text is not a
/// result file, and --resume must not cut it.
bool begins_as_ours(std::string_view line) {
  constexpr std::string_view head = R"({"kind":"run","schema":)";
  const std::size_t n = std::min(head.size(), line.size());
  return line.substr(0, n) == head.substr(0, n);
}

}  // namespace

/// Assembles a result file from its lines.
class detail::FileReader {
 public:
  FileReader(std::string label, Reading reading, RawTimes raw_times)
      : label_(std::move(label)), reading_(reading), lines_(reading, raw_times) {}

  /// ended: the line has its line end; only the last line may lack it.
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
  detail::FileReader file(label, reading, RawTimes::kept);
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    const bool ended = end != std::string_view::npos;
    file.add(text.substr(0, end), ended);
    text.remove_prefix(ended ? end + 1 : text.size());
  }
  return file.finish();
}

ResultFile read_results(const std::filesystem::path& path, Reading reading, RawTimes raw_times) {
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
  detail::FileReader file(path.string(), reading, raw_times);
  for (std::string line; std::getline(in, line);) file.add(line, !in.eof());
  if (in.bad()) throw BackendError("file system", "read", fmt::format("'{}' broke off", path.string()));
  return file.finish();
}

RunPlan make_plan(std::size_t points, std::size_t kept) {
  return {.points = static_cast<std::int64_t>(points), .kept = static_cast<std::int64_t>(kept)};
}

Conditions conditions_of(const RunInfo& info) {
  Conditions out{{"machine", info.fingerprint},
                 {"version", info.version},
                 {"commit", info.commit},
                 {"MPI", info.mpi},
                 {"MPI's single copy", info.mpi_copy_mechanism},
                 {"binding", info.binding}};
  for (const auto& [name, version] : info.libraries) out["library " + name] = version;
  for (const auto& [name, value] : info.environment) {
    const bool is_number_of_job = name == "SLURM_JOB_ID" || name == "SLURM_STEP_ID";
    // made printable, as texts are when a file is read
    if (!is_number_of_job) out["environment " + printable(name)] = printable(value);
  }
  return out;
}

std::vector<std::string> differing_conditions(const RunInfo& then, const RunInfo& now) {
  const Conditions before = conditions_of(then), after = conditions_of(now);
  std::vector<std::string> out;
  const auto value_of = [](const Conditions& conditions, const std::string& name) {
    const auto at = conditions.find(name);
    return at == conditions.end() ? std::string("not set") : at->second;
  };
  Conditions names = before;
  names.insert(after.begin(), after.end());
  for (const auto& [name, unused] : names) {
    const std::string old_value = value_of(before, name), new_value = value_of(after, name);
    if (old_value != new_value && !old_value.empty() && !new_value.empty())
      out.push_back(fmt::format("{} {} (now {})", name, old_value, new_value));
  }
  return out;
}

void erase_superseded_points(std::vector<Run>& runs) {
  const auto key_of = [](const Point& p) { return fmt::format("{} {}", p.experiment, p.factors.key()); };
  std::set<std::string> resumed;  // the points of later runs that went on with the earlier ones
  for (auto run = runs.rbegin(); run != runs.rend(); ++run) {
    if (!resumed.empty())
      std::erase_if(run->points,
                    [&](const Point& p) { return p.status == Status::skipped && resumed.contains(key_of(p)); });
    if (run->info.command.find(" --resume") == std::string::npos) continue;
    for (const Point& p : run->points) resumed.insert(key_of(p));
  }
}

FinishedPoints finished_points(const ResultFile& file, const RunInfo& now, const std::string& experiment,
                               bool any_conditions) {
  FinishedPoints out;
  for (const Run& run : file.runs) {
    const bool is_here = run.info.fingerprint == now.fingerprint;
    const auto differing = differing_conditions(run.info, now);
    for (const Point& point : run.points) {
      if (point.experiment != experiment) continue;
      if (!is_here || (!any_conditions && !differing.empty())) {
        ++out.not_comparable[differing.empty() ? "machine" : differing.front()];
        continue;
      }
      if (point.status == Status::ok || point.status == Status::unsupported) {
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
class ReadOnlyFile {
 public:
  explicit ReadOnlyFile(const std::filesystem::path& path) {
    do {
      file_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    } while (file_ < 0 && errno == EINTR);
    code_ = file_ < 0 ? errno : 0;
  }
  ~ReadOnlyFile() {
    if (file_ >= 0) ::close(file_);
  }
  ReadOnlyFile(const ReadOnlyFile&) = delete;
  ReadOnlyFile& operator=(const ReadOnlyFile&) = delete;
  int get() const { return file_; }
  int code() const { return code_; }  ///< the error number of opening the file; 0: it is open

 private:
  int file_ = -1, code_ = 0;
};

using FileStatus = struct stat;  // `stat` is also the name of a function

constexpr std::size_t head_bytes = 512;

/// Reads up to `size` bytes from `offset` on, fewer at the end of the file; empty: it failed, with the reason in errno.
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
  const ReadOnlyFile file(path);
  if (file.code() != 0) return WriterLock::unknown;
  if (::flock(file.get(), LOCK_SH | LOCK_NB) != 0) return errno == EWOULDBLOCK ? WriterLock::held : WriterLock::unknown;
  return WriterLock::none;  // closing the file releases the lock
}

namespace {

std::unique_ptr<detail::FileReader> follow(const std::filesystem::path& path) {
  return std::make_unique<detail::FileReader>(path.string(), Reading::lenient, RawTimes::left_out);
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
  const ReadOnlyFile file(path_);
  if (file.code() != 0) return fail(file.code());
  FileStatus now{};
  if (::fstat(file.get(), &now) != 0) return fail(errno);
  if (S_ISDIR(now.st_mode)) return fail(EISDIR);
  if (!S_ISREG(now.st_mode)) throw UsageError(fmt::format("'{}' is not a regular file; name one", path_.string()));
  const auto size = static_cast<std::uint64_t>(now.st_size);
  const auto head = read_from(file.get(), 0, std::min<std::uint64_t>(size, head_bytes));
  if (!head) return fail(errno);
  const bool is_replaced = inode_ != 0 && (inode_ != now.st_ino || device_ != now.st_dev);
  const bool is_other_file = is_replaced || size < read_ || head->substr(0, head_.size()) != head_;
  const std::uint64_t from = is_other_file ? 0 : read_;
  const auto added = read_from(file.get(), from, size - from);
  if (!added) return fail(errno);
  problem_.clear();
  if (is_other_file) restart();
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
  return is_other_file ? Change::replaced : grown ? Change::grown : Change::none;
}

}  // namespace gradmeter::core
