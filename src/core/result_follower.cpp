#include "core/result_follower.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "core/detail/collector.hpp"
#include "core/error.hpp"
#include "core/format.hpp"

namespace gradmeter::core {
namespace {

/// Closes itself.
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
  int code() const { return code_; }  ///< why it is not open; 0: it is

 private:
  int file_ = -1, code_ = 0;
};

constexpr std::size_t head_bytes = 512;

/// As much as there is; nothing where the disk gives an error (errno).
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
  return WriterLock::none;  // closing gives it back
}

struct ResultFollower::Parser {
  detail::LineReader reader{Reading::lenient, Samples::left_out};
  detail::Collector collector;
  std::size_t lines = 0;

  void add(std::string_view line, const std::string& label) {
    ++lines;
    const auto keep = [this](auto&& parsed) { collector.add(std::forward<decltype(parsed)>(parsed)); };
    try {
      std::visit(keep, reader.read(line));
    } catch (const UsageError& e) {
      collector.file().left_out.push_back(fmt::format("{}:{}: {}", label, lines, e.what()));
    }
  }
};

ResultFollower::ResultFollower(std::filesystem::path path)
    : path_(std::move(path)), parser_(std::make_unique<Parser>()) {}
ResultFollower::~ResultFollower() = default;

const ResultFile& ResultFollower::file() const { return parser_->collector.file(); }

ResultFollower::Change ResultFollower::fail(int code) {
  if (code == EACCES || code == EPERM || code == EISDIR) {
    throw UsageError(
        fmt::format("cannot read '{}': {}; name a result file that can be read", path_.string(), std::strerror(code)));
  }
  problem_ = std::strerror(code);
  return Change::absent;
}

void ResultFollower::begin_anew() {
  parser_ = std::make_unique<Parser>();
  read_ = 0;
  head_.clear();
}

ResultFollower::Change ResultFollower::look() {
  const OpenFile file(path_);
  if (file.code() != 0) return fail(file.code());
  struct stat now {};
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
  if (anew) begin_anew();
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
    parser_->add(rest.substr(0, end), path_.string());
  }
  if (this->file().runs.empty() && !this->file().left_out.empty()) throw UsageError(this->file().left_out.front());
  return anew ? Change::replaced : grown ? Change::grown : Change::none;
}

}  // namespace gradmeter::core
