// What the formats share: lines with their numbers, words, numbers, and points of collectives.
#pragma once
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/element.hpp"
#include "core/error.hpp"
#include "core/result.hpp"
#include "importers/importers.hpp"

namespace gradmeter::importers {

/// Why most rows are left out by name.
constexpr const char* no_kind = "no kind of gradmeter's";

/// What is wrong with a log that can be read all the same, counted.
struct Faults {
  std::size_t without_time = 0;   ///< rows that are no points: their time or rate is 0 or less
  std::size_t without_bytes = 0;  ///< likewise: our sizes begin at one
  std::size_t contradictory = 0;  ///< points that are mistrusted: their columns contradict each other
  std::size_t cut_line = 0;       ///< the last row, where it is too short, or could be since it has no end; 0: none
  std::size_t torn = 0;           ///< rows of which others' output left no whole one
  std::string why_torn = {};      ///< "line 12: 'x' is no number", of the first
  /// Rows that this format leaves out, by the name of their table.
  struct OtherKind {
    std::size_t rows = 0, line = 0;
    std::string why = {};
  };
  std::map<std::string, OtherKind> other_kinds = {};
  /// Counts a row of the table `name`, which is not read.
  void add_other(const std::string& name, std::size_t line, const std::string& why = no_kind);
  /// Counts a row that cannot be read. The first one's reason is said.
  void add_unreadable(std::string why);
  std::size_t unended_line = 0;  ///< the last line of a log that ends within it
  std::string text() const;
};

/// Each line of the tool itself, with its number from 1: without its end, colours, and what launchers and collectors of
/// logs print before it (mpirun's tags, srun's labels, times); without messages of NCCL, whose two sides are put
/// together where one stands within a line. A line that begins with # has no blanks before it.
void each_line(std::string_view text, Faults&, const std::function<void(std::string_view line, std::size_t number)>&);
/// "line 1: 'node01 says ...'", the first line that neither is blank nor begins with #; empty: there is none.
std::string first_plain_line(std::string_view text);

/// A row that may have lost its end.
struct CutRow : core::UsageError {
  using core::UsageError::UsageError;
};

/// Rows of tables. Others may print between two pieces of one: these are put together, or counted as torn.
class Rows {
 public:
  /// Takes what a row says, all or nothing. `joined`: of pieces, so that only columns that agree should be believed.
  /// Errors: UsageError where it is no row.
  using Read = std::function<void(std::string_view row, bool joined)>;
  explicit Rows(Faults& faults) : faults_(faults) {}
  /// `begins`: whether the line could be the begin of a row.
  void add(std::string_view line, std::size_t number, bool begins, const Read&);
  /// A head's line or, at the end of the log, the last one: what stands above is not continued.
  void end(bool of_log = false);

 private:
  Faults& faults_;
  std::string piece_, why_;
  std::size_t piece_line_ = 0;
  bool piece_is_cut_ = false;  // and not wrong besides
};
/// Leaves out by name what another tool has printed into the log, from its first line to the next line with which the
/// format's own tool begins.
class OtherTools {
 public:
  OtherTools(std::string_view own_format, Faults& faults, Rows& rows)
      : own_format_(own_format), faults_(faults), rows_(rows) {}
  /// Whether the line is another tool's.
  bool takes(std::string_view line, std::size_t number);

 private:
  std::string_view own_format_, format_;  // of the tool whose output this is; empty: the format's own
  Faults& faults_;
  Rows& rows_;
};
/// Whether a word is digits alone; and whether a line begins with such a word, and another number where it goes on.
bool is_count(std::string_view word);
bool begins_with_count(std::string_view line);

std::vector<std::string> words_of(std::string_view line);

/// Errors: UsageError "line N: 'word' is no number".
double number_of(const std::string& word, std::size_t line);
/// Of a tool that prints so many decimals: one with fewer has lost its end.
double number_of(const std::string& word, std::size_t decimals, std::size_t line);
std::int64_t count_of(const std::string& word, std::size_t line);
/// "line 12: why"; of 0, which is no line, the reason alone.
[[noreturn]] void refuse_line(std::size_t number, const std::string& why);
/// Errors: CutRow, always.
[[noreturn]] void refuse_cut(std::size_t number, const std::string& why);
/// For a row that has more or fewer columns than its table's head names.
[[noreturn]] void refuse_columns(std::size_t number, std::size_t found, std::size_t expected);

/// What the log says of it, else the user. Errors: UsageError "line N: …" where they contradict each other; line 0:
/// none.
std::int64_t ranks_of(std::int64_t said, const Hints&, std::size_t line);
std::string kind_of(const std::string& said, const Hints&, std::size_t line);

/// What stands in brackets of a table's head: B, us, GB/s of "(B) Time(us) [GB/s]".
std::vector<std::string> units_of(std::string_view head);
/// Seconds of "us", "usec", "ms" …; bytes a second of "GB/s", "MiB/s", "Mbytes/sec", "Gbit/s" …
/// Errors: UsageError "line N: …" for another unit.
double time_unit(std::string_view unit, std::size_t line);
double rate_unit(std::string_view unit, std::size_t line);
bool is_rate_unit(std::string_view unit);

/// "allreduce" of all_reduce_perf, Allreduce, "allreduce"; nothing for a name that no collective has.
std::optional<std::string> collective_of(std::string_view name);

/// A program of nccl-tests, "all_reduce_perf", as a collective, or its own name where it is no kind of ours; and one of
/// its element types ("half", "uint8") as ours, where there is that. Errors: UsageError for a type that it has not.
std::string nccl_kind(std::string_view program);
std::string nccl_type(std::string_view name, std::size_t line);

/// MPI_CHAR, MPI_FLOAT and ncclFloat as our element types; other types keep their names.
std::string mpi_element(std::string_view name);

/// The element type that PyTorch and others call float32, Float, c10::BFloat16, Half, Long; nothing for other names.
std::optional<core::Element> element_of(std::string_view name);

/// A point of a collective with what every log says of it.
core::Point collective_point(const std::string& collective, std::int64_t ranks, std::int64_t size, const Hints&);
/// One number for all iterations: a summary whose median it stands for, with nothing else. `silent` says that it is a
/// mean.
core::Summary mean_time(double seconds);
/// The time and the rates that follow from it and the point's size and ranks.
void set_time(core::Point&, double seconds);
/// The point is mistrusted, since its columns contradict each other: "400 floats are not 400 bytes". A wrong one stays
/// so.
void mistrust(core::Point&, const std::string& why, Faults&);
/// Whether the point with its size and time can have these rates, which the log has beside them; else it is mistrusted.
/// `digit`: what the last printed digit of a rate stands for. All in bytes a second.
void check_rates(core::Point&, double algbw, double busbw, double digit, Faults&);
/// Whether the ratio of the two rates is the collective's at the point's ranks, where the rates have three digits and
/// the collective is one whose ratio tells ranks apart; else the point is mistrusted.
void check_bus_factor(core::Point&, double algbw, double busbw, double digit, Faults&);
/// Whether `ratio` is within 2 % of `factor`, as rates of three digits are.
bool is_near(double ratio, std::optional<double> factor);
/// The ranks of each group, which must be the same number. Errors: UsageError "line N: ...".
std::int64_t size_of_groups(const std::map<std::int64_t, std::int64_t>& ranks_by_group, std::size_t line);
/// Why rows of nccl-tests with this operation (empty: none) and this root (-1: none) are not of the collective; empty:
/// they can be.
std::string why_not_of(const std::string& collective, const std::string& op, std::int64_t root);
/// Whether a mean of times lies between the shortest and the longest [s]; else the point is mistrusted.
void check_order(core::Point&, double least, double mean, double most, Faults&);
/// What the measurement is besides its collective and size: root=3, non-blocking.
void add_problem(core::Point&, const std::string& what);
/// Whether OSU, IMB, Chakra and NCCL's Inspector count one rank's part of such a buffer.
bool counts_parts(std::string_view collective);
/// Where the log's size is one rank's part, ours is the whole buffer: that times the ranks. `always`: of this tool's
/// collective it is, whatever counts_parts() says. Errors: UsageError "line N: …" without ranks.
void take_parts(core::Point&, std::size_t line, bool always = false);
/// Elements out of bounds, as the log says: a point that has any is wrong.
void set_wrong(core::Point&, double elements);
/// busbw from algbw: the collective's factor at so many ranks; nothing where ranks are unknown, and for collectives
/// for which nobody has defined one.
std::optional<double> bus_factor(const std::string& collective, std::int64_t ranks);

}  // namespace gradmeter::importers
