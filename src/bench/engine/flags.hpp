// SPDX-License-Identifier: Apache-2.0
// The flags of a subcommand: their description, those that were given, and parsers whose errors tell a person what to
// do.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/engine/sweep.hpp"
#include "bench/train/training.hpp"
#include "core/error.hpp"
#include "core/injection.hpp"
#include "core/name.hpp"
#include "core/stopping_rule.hpp"
#include "core/units.hpp"
#include "report/cells.hpp"
#include "runtime/clock.hpp"
#include "runtime/host/environment.hpp"

namespace gradmeter::bench {

struct FlagDescription {
  std::string name;           ///< "out": without its dashes
  std::string short_name;     ///< "h"; empty: none
  bool takes_value = false;   ///< false: the flag is a switch
  std::string fallback = {};  ///< the value where the flag is not given; empty: none
  std::string help = {};
  bool repeats = false;  ///< may be given several times
};

/// The flags of a subcommand in the order of --help.
struct FlagList {
  std::string title;
  unsigned columns = 80;  ///< width of the text of --help [columns]
  std::vector<FlagDescription> flags = {};
};

/// The title of the flags of a subcommand whose flags take lists of values.
inline constexpr const char* heading_of_factors =
    "Flags (where flags have comma lists, all combinations are measured; \"all\" stands for every named value)";

/// The way a subcommand is called: its flags and words.
struct Usage {
  FlagList flags;
  std::string about;       ///< "gradmeter NAME WORDS: what it does"; after an empty line more text and examples
  std::string words = {};  ///< what --help calls the words that belong to no flag; empty: none may be given
  std::vector<std::string> choices = {};  ///< the words that are allowed; empty: any, mostly files
};

/// The flags and words that the command line of one subcommand had.
class Flags {
 public:
  struct Value {
    std::string text;  ///< empty for a switch; the last text for a flag that repeats
    bool is_fallback = false;
    std::vector<std::string> texts = {};  ///< all texts of a flag that repeats
  };
  /// values: by the flag's name. resumes_any: true for --resume=any.
  Flags(std::map<std::string, Value> values, std::vector<std::string> words, bool resumes_any)
      : values_(std::move(values)), words_(std::move(words)), resumes_any_(resumes_any) {}
  /// True where the flag was given, or has a value by default.
  bool has(const std::string& name) const { return values_.contains(name); }
  /// True where the command line has the flag.
  bool given(const std::string& name) const { return has(name) && !values_.at(name).is_fallback; }
  /// For a switch: true where it was given.
  bool on(const std::string& name) const { return has(name); }
  /// True for --resume=any.
  bool resumes_any() const { return resumes_any_; }
  const std::string& text(const std::string& name) const { return values_.at(name).text; }
  /// All texts of a flag that repeats, in the order in which they were given.
  const std::vector<std::string>& texts(const std::string& name) const { return values_.at(name).texts; }
  /// The words that belong to no flag.
  const std::vector<std::string>& words() const { return words_; }

 private:
  std::map<std::string, Value> values_;
  std::vector<std::string> words_;
  bool resumes_any_;
};

/// Adds a flag with a value, and with a default unless `fallback` is empty.
/// name: "out", or with its short form "out,o".
void add_text(FlagList&, std::string_view name, const std::string& fallback, const char* help);
/// Adds a flag that may be given several times; each value counts.
void add_texts(FlagList&, std::string_view name, const char* help);
void add_switch(FlagList&, std::string_view name, const char* help);
/// Reads a flag's text that becomes part of rows. `core::printable` puts it on one line and replaces control
/// characters.
std::string read_label(const Flags&, const std::string& name);

/// The help texts of --time-budget, --min-samples, --precision-goal and --strict, for every command that measures
/// points until they are known well.
struct StoppingHelp {
  const char* budget = "";           ///< says that the budget is for all points together, and what happens without one
  const char* samples = "";          ///< says what the samples of a point are
  const char* least_samples = "10";  ///< the least number of samples of a point
  const char* goal = "a point is done when its 95 % interval is within this share of the median: 0.025 is ± 2.5 %";
  const char* strict = "refuse a --time-budget that cannot be kept, instead of saying so and taking longer";
};
void add_stopping_flags(FlagList&, const StoppingHelp&);
/// Reads the flags of `add_stopping_flags` into a command's rule and budget; without --time-budget, the budget stays as
/// it is. Errors: UsageError.
void read_stopping(const Flags&, core::StoppingRule&, std::optional<TimeBudget>& budget);

/// Adds --repeats, for commands whose points can be measured several times in one launch.
void add_repeats_flag(FlagList&);
/// Errors: UsageError.
std::size_t read_repeats(const Flags&);
/// The values of the factor `repeat`: 1 to n. If n is 1, there is only the value 0, which means that rows leave the
/// factor out.
std::vector<std::size_t> numbers_of_repeats(std::size_t n);

/// Adds --timeout and --thread-ranks, for every command that measures over ranks.
void add_rank_flags(FlagList&);
inline constexpr const char* thread_ranks_help =
    "run this many ranks as threads of one process, without mpirun; 4:bind also binds each to its share of the cores";
/// The value of `--thread-ranks`: 4 or 4:bind. ranks: 0 where the flag was not given. bind: each rank is bound to its
/// share of the process's cores, so its `--threads` must fit into that share.
struct ThreadRanks {
  int ranks = 0;
  bool bind = false;
};
ThreadRanks parse_thread_ranks(const std::string& text);
/// For `--dry-run`: the launcher of the ranks, which is `--thread-ranks` where it is given, else the one that started
/// this process.
runtime::Launcher planned_launcher(const Flags&);

/// Adds --inject, for every command that measures over ranks.
void add_injection(FlagList&);
/// Reads --inject. Errors: UsageError for a fault that cannot be injected, and for a rank beyond the number of ranks.
core::Injection read_injection(const Flags&, int ranks);
/// The line about injected faults in the head of an output; empty where nothing is injected.
std::string injection_line(const core::Injection&);
/// Lets this rank's clock drift if a fault says so; call it before measuring. Errors: UsageError if ranks are threads.
void start_drift(const core::Injection&, const runtime::Communicator& world);

/// Splits a list such as "16,64,256". Errors: UsageError naming the flag and the item.
std::vector<std::string> split_list(const std::string& flag, const std::string& text);
std::uint64_t parse_count(const std::string& flag, const std::string& text, std::uint64_t least, std::uint64_t most);
std::vector<std::uint64_t> parse_counts(const std::string& flag, const std::string& text, std::uint64_t least,
                                        std::uint64_t most);
std::vector<int> to_ints(const std::vector<std::uint64_t>&);
/// Reads a number of bytes such as "64K".
std::size_t parse_size(const std::string& flag, const std::string& text);
core::Seconds parse_time(const std::string& flag, const std::string& text);
double parse_number(const std::string& flag, const std::string& text, double least, double most);

/// The values that the comma list `text` names; "all" stands for every known value, and a value given twice counts
/// once. what: the kind of value, for the error of an unknown name. name_of: returns the name of a value.
template <class T, class NameOf>
std::vector<T> choose(const std::string& flag, std::string_view what, const std::string& text,
                      const std::vector<T>& known, NameOf name_of) {
  std::vector<std::string> names;
  for (const T& k : known) names.emplace_back(name_of(k));
  std::vector<T> out;
  for (const std::string& item : split_list(flag, text)) {
    if (item == "all") {
      out = known;
      continue;
    }
    const auto it = std::find(names.begin(), names.end(), item);
    if (it == names.end()) core::refuse_unknown(what, item, names);
    const T value = known[static_cast<std::size_t>(it - names.begin())];
    if (std::find(out.begin(), out.end(), value) == out.end()) out.push_back(value);
  }
  return out;
}

/// Returns the result of `parse()`. Puts the flag's name before the text of a UsageError, since parsers of units and
/// names do not know the flag.
template <class Parse>
auto naming_flag(const std::string& flag, Parse parse) {
  try {
    return parse();
  } catch (const core::UsageError& e) {
    throw core::UsageError(flag + ": " + e.what());
  }
}

/// Parsers of factors whose values have names. Errors: UsageError that lists the names. "all" means the
/// transports mpi and shm, and all algorithms of the registry except selections (such as `auto`), which only choose
/// among the others. If `collective_kind` is given, "all" has only the algorithms that serve this kind.
std::vector<allreduce::AlgorithmPtr> parse_algorithms(
    const std::string& text, std::optional<allreduce::CollectiveKind> collective_kind = std::nullopt);
std::vector<dataparallel::TransportKind> parse_transports(const std::string& text);
std::vector<runtime::Cadence> parse_cadences(const std::string& text);
/// Refuses a `text` that is not in `known`.
void check_one_of(const std::string& flag, const std::string& text, const std::vector<std::string>& known);

// The flags that shape tables: --wide and --legend.

void add_wide_flag(FlagList&);

/// Adds the flag --legend.
void add_legend_flag(FlagList&);
report::Legend read_legend(const Flags&);

/// The width of a line of standard output [cells]: unlimited with --wide; else COLUMNS where it is set; else the width
/// of the terminal. It is 80 where there is no terminal (a pipe), or one that does not know its size (as under mpirun).
std::size_t table_width(const Flags&);

}  // namespace gradmeter::bench
