// Logs of other benchmarks as runs of our result file, so that compare and report work over them. What a log does not
// say is null, and `silent` says what that is. A format is one file and one row of the table.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.hpp"
#include "core/result_file.hpp"

namespace gradmeter::importers {

/// What the user says that the log does not.
struct Hints {
  std::int64_t ranks = 0;  ///< 0: unknown
  std::string collective;  ///< empty: unknown
  std::string interconnect;
};

struct Imported {
  std::vector<core::Run> runs = std::vector<core::Run>(1);  ///< a launch each, in the log's order
  std::string silent;                                       ///< "the spread of times; the number of ranks"
  /// "left out: 2 rows whose time or rate is 0 or less"; empty: the whole log was read and believed
  std::string faults;
  core::Run& run() { return runs.back(); }  ///< that is being read
  /// A log of several programs, or of one in a loop, has the next one's head here.
  void begin_run() {
    if (!run().points.empty()) runs.emplace_back();
    run() = {};
  }
};

struct Format {
  std::string_view name, about, source;
  /// Whether a log is of this format, by what its tool prints first.
  bool (*recognises)(std::string_view log);
  /// Errors: UsageError "line N: what is wrong", for a row that is cut or no row of this format; and for a log without
  /// rows.
  Imported (*read)(std::string_view log, const Hints&);
};
std::span<const Format> formats();

/// By name, or with "auto" the first that recognises the log. `label`: the file, for errors and for the runs' ids.
/// A row whose factors its run has already begins the next run, so that none stands for another.
/// Errors: UsageError "FILE: line N: …", and for a log of no known format.
Imported import_log(std::string_view log, const std::string& label, const std::string& format, const Hints&);

// one source each
bool is_nccl_tests(std::string_view log);
Imported read_nccl_tests(std::string_view log, const Hints&);
bool is_nccl_tests_json(std::string_view log);
Imported read_nccl_tests_json(std::string_view log, const Hints&);
bool is_osu(std::string_view log);
Imported read_osu(std::string_view log, const Hints&);
bool is_deepbench(std::string_view log);
Imported read_deepbench(std::string_view log, const Hints&);
bool is_imb(std::string_view log);
Imported read_imb(std::string_view log, const Hints&);
bool is_inspector(std::string_view log);
Imported read_inspector(std::string_view log, const Hints&);
bool is_kineto(std::string_view log);
Imported read_kineto(std::string_view log, const Hints&);
bool is_execution_trace(std::string_view log);
Imported read_execution(std::string_view log, const Hints&);
bool is_chakra(std::string_view log);
Imported read_chakra(std::string_view log, const Hints&);
bool is_param(std::string_view log);
Imported read_param(std::string_view log, const Hints&);

}  // namespace gradmeter::importers
