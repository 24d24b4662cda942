// SPDX-License-Identifier: Apache-2.0
// The lines of a result file as JSON, and the writer that appends them.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <mutex>
#include <stdexcept>
#include <system_error>
#include <thread>

#include "core/detail/result_line.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "core/json.hpp"
#include "core/print.hpp"
#include "core/result_file.hpp"

namespace gradmeter::core {
namespace {

/// The number; if it is not finite: null, and its place is added to `nonfinite`.
Json finite(double x, const std::string& place, Json& nonfinite) {
  if (std::isfinite(x)) return x;
  nonfinite.push_back(place);
  return nullptr;
}

Json summary_json(const Summary& s, const std::string& place, Json& nonfinite) {
  Json json = Json::object();
  for (const auto& [part, value] : statistics) {
    const std::string key(part);
    json[key] = finite(s.*value, place + "." + key, nonfinite);
  }
  json["n"] = s.n;
  json["stop"] = name(s.stop);
  return json;
}

Json spans_json(const Spans& spans, const std::string& place, Json& nonfinite) {
  Json json = Json::array();
  for (const Span& s : spans) {
    const std::string path = fmt::format("{}.{}", place, json.size());
    Json span{{"name", s.name}};
    if (s.ready_s) span["ready_s"] = finite(*s.ready_s, path + ".ready_s", nonfinite);
    span["begin_s"] = finite(s.begin_s, path + ".begin_s", nonfinite);
    span["end_s"] = finite(s.end_s, path + ".end_s", nonfinite);
    if (s.bytes) span["bytes"] = *s.bytes;
    json.push_back(std::move(span));
  }
  return json;
}

Json value_json(const Value& value, const std::string& place, Json& nonfinite) {
  if (const auto* summary = value.as<Summary>()) return summary_json(*summary, place, nonfinite);
  if (const auto* spans = value.as<Spans>()) return spans_json(*spans, place, nonfinite);
  if (const auto* number = value.as<double>()) return finite(*number, place, nonfinite);
  if (const auto* integer = value.as<std::int64_t>()) return *integer;
  if (const auto* truth = value.as<bool>()) return *truth;
  if (const auto* text = value.as<std::string>()) return *text;
  return nullptr;
}

}  // namespace

std::string to_json_line(const RunInfo& info) {
  Json json{{"kind", "run"}, {"schema", result_schema}};
  detail::each_run_field(info, [&json](const char* key, const auto& value) { json[key] = value; });
  return json_text(json);
}

std::string to_json_line(const RunPlan& plan, const std::string& run_id) {
  Json json{{"kind", "plan"}, {"run_id", run_id}};
  detail::each_plan_field(plan, [&json](const char* key, const auto& value) { json[key] = value; });
  return json_text(json);
}

std::string to_json_line(const RunEnd& end, const std::string& run_id) {
  Json json{{"kind", "end"}, {"run_id", run_id}};
  detail::each_end_field(end, [&json](const char* key, const auto& value) { json[key] = value; });
  return json_text(json);
}

std::string to_json_line(const Point& point, const std::string& run_id) {
  Json nonfinite = Json::array(), factors = Json::object(), metrics = Json::object(), raw = Json::array();
  for (std::size_t i = 0; i < factor_count; ++i) {
    const auto factor = static_cast<Factor>(i);
    const std::string key(name(factor));
    factors[key] = value_json(point.factors[factor], "factors." + key, nonfinite);
  }
  for (std::size_t i = 0; i < metric_count; ++i) {
    const auto metric = static_cast<Metric>(i);
    if (is_null(point.metrics[metric])) continue;
    const std::string key(name(metric));
    metrics[key] = value_json(point.metrics[metric], "metrics." + key, nonfinite);
  }
  for (std::size_t i = 0; i < point.raw_times_s.size(); ++i) {
    raw.push_back(finite(point.raw_times_s[i], "raw_times_s." + std::to_string(i), nonfinite));
  }
  Json json{{"kind", "point"},
            {"run_id", run_id},
            {"experiment", point.experiment},
            {"status", name(point.status)},
            {"reason", point.reason},
            {"factors", std::move(factors)},
            {"metrics", std::move(metrics)}};
  if (!nonfinite.empty()) json["nonfinite"] = std::move(nonfinite);
  json["raw_times_s"] = std::move(raw);
  return json_text(json);
}

namespace {

using FileStatus = struct stat;  // `stat` is also the name of a function

/// True for a device or a pipe (/dev/stdout, /dev/null), which has no contents to lose.
bool is_stream(const std::filesystem::path& path) {
  FileStatus status{};
  return ::stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode);
}

/// The flags of open(2). A regular file is opened for reading too, so that its lines can be written again if somebody
/// removes it.
int flags_of(const std::filesystem::path& path, OpenMode mode) {
  constexpr int always = O_APPEND | O_CREAT | O_CLOEXEC;
  if (is_stream(path)) return always | O_WRONLY;
  return always | O_RDWR | (mode == OpenMode::create ? O_EXCL : 0);
}

[[noreturn]] void refuse_to_open(const std::filesystem::path& path, int code) {
  const std::string file = path.string();
  if (code == EEXIST) {
    throw UsageError(fmt::format("'{}' exists: --resume goes on from it, --force overwrites it", file));
  }
  const std::filesystem::path parent = path.parent_path();
  std::error_code unknown;
  if (code == ENOENT && !parent.empty() && !std::filesystem::exists(parent, unknown)) {
    throw UsageError(
        fmt::format("cannot write '{}': the directory '{}' does not exist; create it first", file, parent.string()));
  }
  throw UsageError(fmt::format("cannot write '{}': {}; name a file that can be written", file, std::strerror(code)));
}

/// Writes all bytes. Returns the error number; 0: all are written.
int try_to_write(int file, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file, bytes.data(), bytes.size());
    if (written >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

[[noreturn]] void fail_to(const char* what, const std::filesystem::path& path, const std::string& why) {
  throw BackendError("file system", what, fmt::format("'{}': {}", path.string(), why));
}
[[noreturn]] void fail_to_write(const std::filesystem::path& path, int code) {
  fail_to("write", path, std::strerror(code));
}

void write_fully(int file, std::string_view bytes, const std::filesystem::path& path) {
  if (const int code = try_to_write(file, bytes)) fail_to_write(path, code);
}

/// Takes the lock of the file, which the process holds until it closes the file or ends. Errors: UsageError if another
/// job holds the lock.
void lock(int file, const std::filesystem::path& path) {
  // Tries several times, since `gradmeter watch` takes the lock for a moment to look at it.
  constexpr int tries = 10;
  constexpr std::chrono::milliseconds pause{20};
  for (int i = 0; i < tries; ++i) {
    // On a file system without locks, it continues without one.
    if (::flock(file, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;
    std::this_thread::sleep_for(pause);
  }
  throw UsageError(fmt::format(
      "another job is writing '{}', and lines of both would mix; wait for it, or name another file", path.string()));
}

/// True for an error that a network file system gives while its server is away, or after it has restarted.
bool may_be_temporary(int code) {
  constexpr std::array codes{EIO, ESTALE, ETIMEDOUT, ENOTCONN, EHOSTDOWN, ENETDOWN, EHOSTUNREACH, EREMOTEIO, ENOENT};
  return std::ranges::find(codes, code) != codes.end();
}

std::string read_all(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(in), {}};
  if (!in && !in.eof()) throw BackendError("file system", "read", fmt::format("'{}' broke off", path.string()));
  return text;
}

/// The treatment of a last line that is whole but for its end of line.
enum class Unended : std::uint8_t {
  keep,  ///< the line is kept, and ended
  cut    ///< the line is cut off, since it is written once more
};

/// Makes the file end with a whole line. Errors: UsageError if it is not a result file; it is then left as it is.
void trim_torn_line(int file, const std::filesystem::path& path, Unended unended) {
  const std::string text = read_all(path);
  const bool torn = !parse_results(text, path.string()).note.empty();
  const bool ends = text.empty() || text.back() == '\n';
  if (torn || (!ends && unended == Unended::cut)) {
    const std::size_t last_line = text.rfind('\n') + 1;  // npos + 1 is 0
    int result;
    do {
      result = ::ftruncate(file, static_cast<off_t>(last_line));
    } while (result != 0 && errno == EINTR);
    if (result != 0) fail_to("ftruncate", path, std::strerror(errno));
  } else if (!ends) {
    write_fully(file, "\n", path);
  }
}

}  // namespace

ResultWriter::ResultWriter(const std::filesystem::path& path, OpenMode mode)
    : path_(path), is_stream_(is_stream(path)) {
  do {
    file_ = ::open(path.c_str(), flags_of(path, mode), 0666);
  } while (file_ < 0 && errno == EINTR);
  if (file_ < 0) refuse_to_open(path, errno);
  if (is_stream_) return;
  try {
    lock(file_, path);
    if (mode == OpenMode::overwrite && ::ftruncate(file_, 0) != 0) fail_to_write(path, errno);
    if (mode == OpenMode::resume) trim_torn_line(file_, path, Unended::keep);
    FileStatus status{};
    if (::fstat(file_, &status) == 0) size_ = static_cast<std::uintmax_t>(status.st_size);
  } catch (...) {
    ::close(file_);  // the destructor does not run if the constructor throws
    throw;
  }
}

ResultWriter::~ResultWriter() {
  if (file_ >= 0) ::close(file_);
}

void ResultWriter::append(const RunInfo& info) {
  write_line(to_json_line(info));
  run_id_ = info.run_id;
}

const std::string& ResultWriter::run_id() const {
  if (run_id_.empty()) throw std::logic_error("a line of a run was appended before the run's own");
  return run_id_;
}

void ResultWriter::append(const Point& point) { write_line(to_json_line(point, run_id())); }
void ResultWriter::append(const RunPlan& plan) { write_line(to_json_line(plan, run_id())); }
void ResultWriter::append(const RunEnd& end) { write_line(to_json_line(end, run_id())); }

namespace {

void warn(const std::string& what) { print(stderr, "gradmeter: {}\n", what); }

/// Opens the file again, puts it in place of the descriptor `file`, and writes `line` after its last whole line.
/// Returns the error number; 0: written.
int reopen_and_write(int file, const std::filesystem::path& path, const std::string& run_id, std::string_view line) {
  // Does not create the file: if its file system is not mounted, that would make another file in the mount point.
  const int opened = ::open(path.c_str(), O_RDWR | O_APPEND | O_CLOEXEC);
  if (opened < 0) return errno;
  const int replaced = ::dup3(opened, file, O_CLOEXEC);
  ::close(opened);
  if (replaced < 0) return errno;
  bool has_run = run_id.empty();
  try {
    lock(file, path);
    trim_torn_line(file, path, Unended::cut);
    has_run = has_run || std::ranges::any_of(parse_results(read_all(path), path.string()).runs,
                                             [&](const Run& r) { return r.info.run_id == run_id; });
  } catch (const BackendError&) {
    return EIO;
  } catch (const UsageError& e) {
    throw BackendError("file system", "write", e.what());  // the other ranks know nothing of it
  }
  if (!has_run) {
    throw BackendError("file system", "write",
                       fmt::format("'{}' is another file now: this run is not in it", path.string()));
  }
  return try_to_write(file, line);
}

}  // namespace

void ResultWriter::write_line(const std::string& line) {
  const std::lock_guard lock(write_mutex_);
  failed_ = true;  // stays true if anything below throws
  if (!is_stream_) follow_or_restore_file();
  write_with_retries(line + '\n');
  if (!is_stream_) sync(false);
  failed_ = false;
}

void ResultWriter::write_with_retries(const std::string& text) {
  using std::chrono::steady_clock;
  constexpr std::chrono::seconds timeout{60};
  constexpr std::chrono::milliseconds pause{200};
  int code = try_to_write(file_, text);
  size_ += text.size();
  if (code == 0) return;
  if (!may_be_temporary(code) || is_stream_) fail_to_write(path_, code);
  warn(fmt::format("cannot write '{}': {}; trying again for {} s", path_.string(), std::strerror(code),
                   timeout.count()));
  const auto end = steady_clock::now() + timeout;
  do {
    std::this_thread::sleep_for(pause);
    code = reopen_and_write(file_, path_, run_id_, text);
  } while (code != 0 && may_be_temporary(code) && steady_clock::now() < end);
  if (code != 0) fail_to_write(path_, code);
  follow_or_restore_file();  // a server that has restarted may have lost data that it had accepted
  FileStatus status{};
  if (::fstat(file_, &status) == 0) size_ = static_cast<std::uintmax_t>(status.st_size);
  warn(fmt::format("'{}' can be written again, and nothing is missing", path_.string()));
}

/// Throws if written lines are no longer in the file. If the file was renamed, takes its new name; if it was removed,
/// creates it again. If the file system cannot tell, the next write shows it.
void ResultWriter::follow_or_restore_file() {
  FileStatus opened_file{}, by_name{};
  if (::fstat(file_, &opened_file) != 0) return;
  if (static_cast<std::uintmax_t>(opened_file.st_size) < size_) {
    fail_to("write", path_,
            fmt::format("somebody cut it short while this run wrote it: {} of {} bytes are left, and rows are gone",
                        opened_file.st_size, size_));
  }
  if (::stat(path_.c_str(), &by_name) == 0
          ? by_name.st_dev == opened_file.st_dev && by_name.st_ino == opened_file.st_ino
          : errno != ENOENT)
    return;
  std::error_code unknown;
  const auto now = std::filesystem::read_symlink(fmt::format("/proc/self/fd/{}", file_), unknown);
  // NFS gives a removed file a name that begins with ".nfs" until it is closed.
  const bool is_removed = opened_file.st_nlink == 0 || unknown || now.filename().string().starts_with(".nfs");
  if (is_removed) return restore();
  // The file may still have its name, since some file systems give files new inode numbers.
  if (now == std::filesystem::weakly_canonical(path_, unknown)) return;
  warn(fmt::format("'{}' was renamed while this run wrote it: its rows are in '{}'", path_.string(), now.string()));
  path_ = now;
}

/// Creates the removed file again, with all its contents.
void ResultWriter::restore() {
  const int restored = ::open(path_.c_str(), O_RDWR | O_APPEND | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (restored < 0)
    fail_to("write", path_,
            fmt::format("it was removed while this run wrote it, and cannot be made anew: {}", std::strerror(errno)));
  int code = 0;
  std::vector<char> bytes(1 << 16);
  for (std::uintmax_t at = 0; code == 0 && at < size_;) {
    const ssize_t got =
        ::pread(file_, bytes.data(), std::min<std::uintmax_t>(bytes.size(), size_ - at), static_cast<off_t>(at));
    if (got > 0) {
      code = try_to_write(restored, {bytes.data(), static_cast<std::size_t>(got)});
      at += static_cast<std::uintmax_t>(got);
    } else if (got == 0 || errno != EINTR) {
      code = got == 0 ? EIO : errno;
    }
  }
  if (code == 0 && ::dup3(restored, file_, O_CLOEXEC) < 0) code = errno;
  ::close(restored);
  if (code != 0) fail_to_write(path_, code);
  lock(file_, path_);
  warn(fmt::format("'{}' was removed while this run wrote it: it is there again, with all rows", path_.string()));
}

/// Synchronises the file with the disk, at most once a second unless `always` is true.
void ResultWriter::sync(bool always) {
  constexpr std::chrono::seconds least_interval{1};
  const auto now = std::chrono::steady_clock::now();
  if (!always && now - synced_ < least_interval) return;
  synced_ = now;
  int result;
  do {
    result = ::fdatasync(file_);
  } while (result != 0 && errno == EINTR);
  // Ignores the errors of a file system that does not support fdatasync.
  if (result != 0 && errno != EINVAL && errno != ENOSYS && errno != EOPNOTSUPP) {
    failed_ = true;
    fail_to("fdatasync", path_, std::strerror(errno));
  }
}

void ResultWriter::append_at_once(const RunEnd& end) noexcept {
  constexpr std::chrono::milliseconds timeout{200};
  const std::unique_lock lock(write_mutex_, timeout);
  if (!lock || failed_ || run_id_.empty() || file_ < 0) return;
  try {
    try_to_write(file_, to_json_line(end, run_id_) + '\n');
  } catch (const std::exception&) {
    return;  // out of memory: the process ends anyway
  }
}

void ResultWriter::finish() {
  const std::lock_guard lock(write_mutex_);
  if (file_ < 0) return;
  failed_ = true;
  if (!is_stream_) {
    follow_or_restore_file();
    sync(true);
  }
  // With quotas and network disks, errors of earlier writes may appear only here. The descriptor is closed in any case
  // (close(2)).
  const int result = ::close(file_);
  file_ = -1;
  if (result != 0 && errno != EINTR) fail_to("close", path_, std::strerror(errno));
  failed_ = false;
}

}  // namespace gradmeter::core
