// SPDX-License-Identifier: Apache-2.0
// Rows of a log's tables: joins pieces of rows, reads numbers, and counts faults.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "core/error.hpp"
#include "importers/importers.hpp"
#include "importers/lines.hpp"

namespace gradmeter::importers {

/// The usual reason why rows of a table are left out.
constexpr const char* unknown_kind = "no kind of gradmeter's";

/// The counted faults of a log that can still be read.
struct Faults {
  std::size_t without_time = 0;   ///< rows that give no point, since their time or rate is 0 or less
  std::size_t without_bytes = 0;  ///< rows that give no point, since their size is 0
  std::size_t contradictory = 0;  ///< points that are mistrusted, since their columns contradict each other
  /// The line of the last row, if that row is too short, or may be cut because the log does not end with a line end; 0:
  /// none.
  std::size_t cut_line = 0;
  std::size_t unreadable = 0;       ///< rows that cannot be read, mostly because other output has broken them up
  std::string why_unreadable = {};  ///< reason of the first such row: "line 12: 'x' is no number"
  /// Rows that the importer leaves out, since it does not read their table, or since they are another tool's. Keys of
  /// `other_kinds` are the names of these tables and tools. `line` and `why` are those of the first row.
  struct OtherKind {
    std::size_t rows = 0, line = 0;
    std::string why = {};
  };
  std::map<std::string, OtherKind> other_kinds = {};
  /// Counts a row of the table `name`, which is not read.
  void add_other(const std::string& name, std::size_t line, const std::string& why = unknown_kind);
  /// Counts a row that cannot be read, and keeps the reason of the first.
  void add_unreadable(std::string why);
  /// True if rows were left out, all of them because gradmeter does not have their kind.
  bool are_all_of_unknown_kind() const;
  std::string text() const;
};

/// The error of a row that may have lost its end.
struct CutRow : core::UsageError {
  using core::UsageError::UsageError;
};

/// Reads the tables of a log. If other output has broken a row into pieces, these are joined; if they cannot be joined,
/// the row is counted as unreadable.
class LogReader {
 public:
  /// own_format: the name of the format that is read.
  explicit LogReader(std::string_view text, std::string_view own_format);
  /// Visits each line of the log: see lines.hpp.
  void each_line(const std::function<void(std::string_view line, std::size_t number)>& use) const {
    importers::each_line(text_, use);
  }
  /// True if the line belongs to the output of another tool. Such output begins with that tool's first line, and ends
  /// where the next output of the format's own tool begins. Its rows are counted as left out, under that tool's name.
  bool is_of_other_tool(std::string_view line, std::size_t number);
  /// A function that reads a whole row. joined: the row was joined from pieces, so it may be believed only if its
  /// columns agree. If the text is no row, the function throws UsageError and leaves everything as it was, except
  /// `faults`, which add_row restores.
  using Read = std::function<void(std::string_view row, bool joined)>;
  /// Takes a line that is a row, or a piece of one. begins: the line could begin a row. hides: a row may stand after
  /// other text on the line. A line that is neither a row nor a piece is counted as unreadable if it may hide a row or
  /// ends with four numbers; otherwise it is ignored.
  void add_row(std::string_view line, std::size_t number, bool begins, const Read&, bool hides = false);
  /// Must be called at the head of each table, since no row continues beyond it. `is_log_end`: the log ends too
  /// (`finish` passes it).
  void end_rows(bool is_log_end = false);
  /// Ends the log's rows, and reports their faults.
  void finish(Imported&);
  Faults faults;

 private:
  std::string_view text_, own_format_;
  // the other tool to whose output the present line belongs; empty: the format's own tool
  std::string_view other_format_;
  std::size_t unended_line_ = 0;  // number of the last line, if its line end is missing
  std::string piece_, why_;       // the beginning of a row whose rest has not come, and why it is no row
  std::size_t piece_line_ = 0;
  bool piece_is_cut_ = false;  // the piece is cut and has no other fault
};

/// Reads a number. Errors: UsageError "line N: 'word' is no number".
double number_of(const std::string& word, std::size_t line);
/// Reads a number from a tool that always prints `decimals` decimals: a number with fewer has lost its end. Errors:
/// CutRow.
double number_of(const std::string& word, std::size_t decimals, std::size_t line);
/// Reads a whole number of at least 0. Errors: UsageError "line N: 'word' is no count".
std::int64_t count_of(const std::string& word, std::size_t line);
/// Throws UsageError "line 12: why"; for number 0, which by convention means no line, only "why".
[[noreturn]] void refuse_line(std::size_t number, const std::string& why);
/// Always throws CutRow.
[[noreturn]] void refuse_cut(std::size_t number, const std::string& why);
/// Refuses a row that has more or fewer columns than its table's head names.
[[noreturn]] void refuse_columns(std::size_t number, std::size_t found, std::size_t expected);

}  // namespace gradmeter::importers
