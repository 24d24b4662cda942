#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <system_error>

#include "core/error.hpp"
#include "core/format.hpp"
#include "core/result_file.hpp"

namespace gradmeter::core {

namespace {

/// A device or a pipe (/dev/stdout, /dev/null) has no contents to lose.
bool is_stream(const std::filesystem::path& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode);
}

int flags_of(const std::filesystem::path& path, OpenMode mode) {
  constexpr int always = O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC;
  if (is_stream(path) || mode == OpenMode::resume) return always;
  return always | (mode == OpenMode::create ? O_EXCL : O_TRUNC);
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

void write_fully(int file, std::string_view bytes, const std::filesystem::path& path) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file, bytes.data(), bytes.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      throw BackendError("file system", "write", fmt::format("'{}': {}", path.string(), std::strerror(errno)));
    }
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
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

ResultWriter::ResultWriter(const std::filesystem::path& path, OpenMode mode) : path_(path) {
  do {
    file_ = ::open(path.c_str(), flags_of(path, mode), 0666);
  } while (file_ < 0 && errno == EINTR);
  if (file_ < 0) refuse_to_open(path, errno);
  if (mode != OpenMode::resume || is_stream(path)) return;
  try {
    mend_end(file_, path);
  } catch (...) {
    ::close(file_);  // no destructor runs for an object that was not made
    throw;
  }
}

ResultWriter::~ResultWriter() { ::close(file_); }

void ResultWriter::append(const RunInfo& info) {
  write_line(to_json_line(info));
  run_id_ = info.run_id;
}

void ResultWriter::append(const Point& point) {
  if (run_id_.empty()) throw std::logic_error("a point was appended before its run");
  write_line(to_json_line(point, run_id_));
}

void ResultWriter::write_line(const std::string& line) { write_fully(file_, line + '\n', path_); }

}  // namespace gradmeter::core
