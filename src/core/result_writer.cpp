#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <mutex>
#include <stdexcept>
#include <system_error>
#include <thread>

#include "core/error.hpp"
#include "core/format.hpp"
#include "core/print.hpp"
#include "core/result_file.hpp"

namespace gradmeter::core {

namespace {

/// A device or a pipe (/dev/stdout, /dev/null) has no contents to lose.
bool is_stream(const std::filesystem::path& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode);
}

/// A file can be read too, to be written anew where somebody removes it.
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

/// The error number; 0: all is written.
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

/// The lock goes with the process, however it ends. Errors: UsageError where another job has it.
void lock(int file, const std::filesystem::path& path) {
  // `gradmeter watch` looks at the lock by taking it for a moment.
  constexpr int tries = 10;
  constexpr std::chrono::milliseconds pause{20};
  for (int i = 0; i < tries; ++i) {
    // A file system without locks leaves things as they are.
    if (::flock(file, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;
    std::this_thread::sleep_for(pause);
  }
  throw UsageError(fmt::format(
      "another job is writing '{}', and lines of both would mix; wait for it, or name another file", path.string()));
}

/// Of a network's file system whose server is away, or has started anew.
bool may_pass(int code) {
  constexpr std::array codes{EIO, ESTALE, ETIMEDOUT, ENOTCONN, EHOSTDOWN, ENETDOWN, EHOSTUNREACH, EREMOTEIO, ENOENT};
  return std::ranges::find(codes, code) != codes.end();
}

/// Where the last line begins, and whether it lacks its newline.
struct LastLine {
  std::uintmax_t start;
  bool open;
};
LastLine last_line(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  if (!in && !in.eof()) throw BackendError("file system", "read", fmt::format("'{}' broke off", path.string()));
  const std::size_t newline = text.rfind('\n');
  return {newline == std::string::npos ? 0 : newline + 1, !text.empty() && text.back() != '\n'};
}

/// Makes the file end with a whole line. Errors: UsageError when it is not a result file, which is left as it was.
void mend_end(int file, const std::filesystem::path& path) {
  const bool torn = !read_results(path).note.empty();
  const LastLine last = last_line(path);
  if (torn) {
    int result;
    do {
      result = ::ftruncate(file, static_cast<off_t>(last.start));
    } while (result != 0 && errno == EINTR);
    if (result != 0) {
      throw BackendError("file system", "ftruncate", fmt::format("'{}': {}", path.string(), std::strerror(errno)));
    }
  } else if (last.open) {
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
    if (mode == OpenMode::resume) mend_end(file_, path);
    struct stat status {};
    if (::fstat(file_, &status) == 0) size_ = static_cast<std::uintmax_t>(status.st_size);
  } catch (...) {
    ::close(file_);  // no destructor runs for an object that was not made
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

void tell(const std::string& what) { print(stderr, "gradmeter: {}\n", what); }

/// Opens the file anew in place of `file`, and writes after its last whole line. Returns the error number; 0: written.
int write_anew(int file, const std::filesystem::path& path, const std::string& run_id, std::string_view line) {
  // Not made anew: in an empty mount point it would be another file.
  const int opened = ::open(path.c_str(), O_RDWR | O_APPEND | O_CLOEXEC);
  if (opened < 0) return errno;
  const int moved = ::dup3(opened, file, O_CLOEXEC);
  ::close(opened);
  if (moved < 0) return errno;
  lock(file, path);
  try {
    mend_end(file, path);
  } catch (const BackendError&) {
    return EIO;
  }
  const auto has_run = [&](const Run& r) { return r.info.run_id == run_id; };
  if (!run_id.empty() && !std::ranges::any_of(read_results(path).runs, has_run)) {
    throw BackendError("file system", "write",
                       fmt::format("'{}' is another file now: this run is not in it", path.string()));
  }
  return try_to_write(file, line);
}

}  // namespace

void ResultWriter::write_line(const std::string& line) {
  const std::lock_guard lock(writing_);
  failed_ = true;  // until all of this is done
  if (!is_stream_) find_again();
  write_over_outages(line + '\n');
  if (!is_stream_) sync(false);
  failed_ = false;
}

void ResultWriter::write_over_outages(const std::string& text) {
  using std::chrono::steady_clock;
  constexpr std::chrono::seconds patience{60};
  constexpr std::chrono::milliseconds pause{200};
  int code = try_to_write(file_, text);
  size_ += text.size();
  if (code == 0) return;
  if (!may_pass(code) || is_stream_) fail_to_write(path_, code);
  tell(fmt::format("cannot write '{}': {}; trying again for {} s", path_.string(), std::strerror(code),
                   patience.count()));
  const auto end = steady_clock::now() + patience;
  do {
    std::this_thread::sleep_for(pause);
    code = write_anew(file_, path_, run_id_, text);
  } while (code != 0 && may_pass(code) && steady_clock::now() < end);
  if (code != 0) fail_to_write(path_, code);
  find_again();  // a server that started anew may have lost what it took before
  struct stat status {};
  if (::fstat(file_, &status) == 0) size_ = static_cast<std::uintmax_t>(status.st_size);
  tell(fmt::format("'{}' can be written again, and nothing is missing", path_.string()));
}

/// Is what was written still there, under its name? A file system that cannot say is asked again by the write.
void ResultWriter::find_again() {
  struct stat own {
  }, named{};
  if (::fstat(file_, &own) != 0) return;
  if (static_cast<std::uintmax_t>(own.st_size) < size_) {
    fail_to("write", path_,
            fmt::format("somebody cut it short while this run wrote it: {} of {} bytes are left, and rows are gone",
                        own.st_size, size_));
  }
  if (::stat(path_.c_str(), &named) == 0 ? named.st_dev == own.st_dev && named.st_ino == own.st_ino : errno != ENOENT)
    return;
  std::error_code unknown;
  const auto now = std::filesystem::read_symlink(fmt::format("/proc/self/fd/{}", file_), unknown);
  // A network's file system keeps a removed file under such a name until it is closed.
  const bool is_removed = own.st_nlink == 0 || unknown || now.filename().string().starts_with(".nfs");
  if (is_removed) return restore();
  if (now == std::filesystem::weakly_canonical(path_, unknown)) return;  // some file systems number files anew
  tell(fmt::format("'{}' was renamed while this run wrote it: its rows are in '{}'", path_.string(), now.string()));
  path_ = now;
}

/// Writes the removed file anew, with all that it had.
void ResultWriter::restore() {
  const int anew = ::open(path_.c_str(), O_RDWR | O_APPEND | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (anew < 0)
    fail_to("write", path_,
            fmt::format("it was removed while this run wrote it, and cannot be made anew: {}", std::strerror(errno)));
  int code = 0;
  std::vector<char> bytes(1 << 16);
  for (std::uintmax_t at = 0; code == 0 && at < size_;) {
    const ssize_t got =
        ::pread(file_, bytes.data(), std::min<std::uintmax_t>(bytes.size(), size_ - at), static_cast<off_t>(at));
    if (got > 0) {
      code = try_to_write(anew, {bytes.data(), static_cast<std::size_t>(got)});
      at += static_cast<std::uintmax_t>(got);
    } else if (got == 0 || errno != EINTR) {
      code = got == 0 ? EIO : errno;
    }
  }
  if (code == 0 && ::dup3(anew, file_, O_CLOEXEC) < 0) code = errno;
  ::close(anew);
  if (code != 0) fail_to_write(path_, code);
  lock(file_, path_);
  tell(fmt::format("'{}' was removed while this run wrote it: it is there again, with all rows", path_.string()));
}

/// Rarely enough to cost nothing between points, and always in the end.
void ResultWriter::sync(bool always) {
  constexpr std::chrono::seconds rarely{1};
  const auto now = std::chrono::steady_clock::now();
  if (!always && now - synced_ < rarely) return;
  synced_ = now;
  int result;
  do {
    result = ::fdatasync(file_);
  } while (result != 0 && errno == EINTR);
  // A file system that knows no such thing leaves it as it is.
  if (result != 0 && errno != EINVAL && errno != ENOSYS && errno != EOPNOTSUPP) {
    failed_ = true;
    fail_to("fdatasync", path_, std::strerror(errno));
  }
}

void ResultWriter::append_at_once(const RunEnd& end) noexcept {
  constexpr std::chrono::milliseconds patience{200};
  const std::unique_lock lock(writing_, patience);
  if (!lock || failed_ || run_id_.empty() || file_ < 0) return;
  try {
    try_to_write(file_, to_json_line(end, run_id_) + '\n');
  } catch (const std::exception&) {
    return;  // out of memory: the process ends anyway
  }
}

void ResultWriter::finish() {
  const std::lock_guard lock(writing_);
  if (file_ < 0) return;
  failed_ = true;
  if (!is_stream_) {
    find_again();
    sync(true);
  }
  // Quotas and network disks may refuse what they took only now. The descriptor is gone in any case (close(2)).
  const int result = ::close(file_);
  file_ = -1;
  if (result != 0 && errno != EINTR) fail_to("close", path_, std::strerror(errno));
  failed_ = false;
}

}  // namespace gradmeter::core
