// A result file that another process may be writing, read from where the last look ended.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "core/result_file.hpp"

namespace gradmeter::core {

/// Who holds the lock that a ResultWriter has. unknown: the file system has no locks, or there is no file. Locks of
/// another machine are seen on some network file systems only: `none` means little there.
enum class WriterLock : std::uint8_t { held, none, unknown };
/// Takes the lock for a moment to see whether it is free, which a writer that is just starting waits for.
WriterLock writer_lock(const std::filesystem::path&);

class ResultFollower {
 public:
  explicit ResultFollower(std::filesystem::path);
  ~ResultFollower();
  ResultFollower(const ResultFollower&) = delete;
  ResultFollower& operator=(const ResultFollower&) = delete;

  /// replaced: another file has the name, or the same one was emptied: `file` begins anew. absent: it is not there, or
  /// cannot be read now (`problem`); what was read stays.
  enum class Change : std::uint8_t { none, grown, replaced, absent };
  /// Reads what was added, whole lines only: half a line is being written, and zeros stand where a network's disk has
  /// not brought the data yet. Lines that cannot be used are left out. Opens the file anew each time, so that a
  /// network's disk looks at the server. Cost: of what was added.
  /// Errors: UsageError for a file that is no result file, or may not be read.
  Change look();
  /// Points without raw times.
  const ResultFile& file() const;
  const std::string& problem() const { return problem_; }
  /// When the file last grew [s since 1970], by its own time stamp.
  double last_growth() const { return last_growth_; }

 private:
  struct Parser;
  Change fail(int code);
  void begin_anew();

  std::filesystem::path path_;
  std::unique_ptr<Parser> parser_;
  std::string problem_, head_;  ///< of the file's first bytes, which tell another file of the same name
  std::uint64_t device_ = 0, inode_ = 0, read_ = 0;
  double last_growth_ = 0;
};

}  // namespace gradmeter::core
