// Puts the lines of a result file together: which run a point belongs to.
#pragma once
#include "core/detail/result_line.hpp"
#include "core/result_file.hpp"

namespace gradmeter::core::detail {

/// `add` in the order of the lines. Errors: UsageError without place, as those of `LineReader`.
class Collector {
 public:
  void add(RunInfo);
  void add(PointLine);
  void add(const PlanLine&);
  void add(EndLine);
  void add(const NoteLine&) {}
  ResultFile& file() { return file_; }
  const ResultFile& file() const { return file_; }

 private:
  Run* find(const std::string& run_id);
  /// what: "a point", for the message.
  Run& run_of(const std::string& run_id, const char* what);
  ResultFile file_;
};

}  // namespace gradmeter::core::detail
