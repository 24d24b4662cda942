// Flags of a subcommand: the adapter of Boost.Program_options, with errors that a person can act on.
#pragma once
#include <algorithm>
#include <boost/program_options.hpp>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/train/training.hpp"
#include "core/error.hpp"
#include "core/injection.hpp"
#include "core/name.hpp"
#include "core/units.hpp"
#include "runtime/host/launcher.hpp"
#include "runtime/time/cadence.hpp"

namespace gradmeter::cli {

namespace options = boost::program_options;

/// How a subcommand is called.
struct Usage {
  options::options_description flags;
  std::string about;       ///< "gradmeter NAME WORDS: what it does", after an empty line more and examples
  std::string words = {};  ///< what words that belong to no flag are called; empty: there must be none
  std::vector<std::string> choices = {};  ///< such words; empty: any, mostly files
};

/// What `--help` prints: `about` and the flags.
std::string help_text(const Usage&);

/// Parsed flags of one subcommand. Boost's messages are rewritten: what is wrong, and the flags there are.
class Flags {
 public:
  /// Errors: UsageError for an unknown flag (with the nearest known one), a missing value, a flag given twice, a word
  /// that belongs to no flag.
  Flags(std::string_view command, const Usage&, const std::vector<std::string>& arguments);
  bool has(const std::string& name) const { return map_.count(name) > 0; }
  bool given(const std::string& name) const { return has(name) && !map_[name].defaulted(); }
  bool on(const std::string& name) const { return has(name) && map_[name].as<bool>(); }
  /// --resume=any
  bool resumes_any() const { return resumes_any_; }
  std::string text(const std::string& name) const { return map_[name].as<std::string>(); }
  /// The words that belong to no flag.
  std::vector<std::string> words() const;

 private:
  options::variables_map map_;
  std::string words_;
  bool resumes_any_ = false;
};

/// A flag with a value, and its default where it is not empty.
void add_text(options::options_description&, const char* name, const std::string& fallback, const char* help);
void add_switch(options::options_description&, const char* name, const char* help);
/// A flag's text that becomes part of rows: on one line, and without what a terminal would obey.
std::string read_label(const Flags&, const std::string& name);

/// --timeout and --thread-ranks, for every command that measures over ranks.
void add_rank_flags(options::options_description&);
inline constexpr const char* thread_ranks_help =
    "so many ranks as threads of one process, without mpirun; 4:bind binds each to its share of the cores";
/// `--thread-ranks 4` or `4:bind`; no ranks: not given. bind: a rank's compute threads share its cores, so `--threads`
/// must fit them.
struct ThreadRanks {
  int ranks = 0;
  bool bind = false;
};
ThreadRanks parse_thread_ranks(const std::string& text);
/// Who would start the ranks: `--thread-ranks`, or what started this process. For `--dry-run`.
runtime::Launcher planned_launcher(const Flags&);

/// --inject, for every command that measures over ranks.
void add_injection(options::options_description&);
/// Errors: UsageError for what cannot be injected, and for a rank that is none of so many.
core::Injection read_injection(const Flags&, int ranks);
/// A line for the head of what is printed; empty where nothing is injected.
std::string injection_line(const core::Injection&);
/// Lets this rank's clock drift, where that was asked for: before anything is measured.
void start_drift(const core::Injection&, const runtime::Communicator& world);

/// "16,64,256". Errors: UsageError naming the flag and the item.
std::vector<std::string> split_list(const std::string& flag, const std::string& text);
std::uint64_t parse_count(const std::string& flag, const std::string& text, std::uint64_t least, std::uint64_t most);
std::vector<std::uint64_t> parse_counts(const std::string& flag, const std::string& text, std::uint64_t least,
                                        std::uint64_t most);
std::vector<int> to_ints(const std::vector<std::uint64_t>&);
/// Bytes: "64K".
std::size_t parse_size(const std::string& flag, const std::string& text);
core::Seconds parse_time(const std::string& flag, const std::string& text);
double parse_number(const std::string& flag, const std::string& text, double least, double most);

/// Values by name, "all" for every one; a value given twice counts once.
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

/// What `parse()` gives; its UsageError begins with the flag, which parsers of units and names do not know.
template <class Parse>
auto naming_flag(const std::string& flag, Parse parse) {
  try {
    return parse();
  } catch (const core::UsageError& e) {
    throw core::UsageError(flag + ": " + e.what());
  }
}

/// Values of a factor by name; "all" gives every one. Errors: UsageError that lists those that exist.
/// `all`: every row but selections, which are one of the others; `collective_kind`: of these, the ones that have it
/// anywhere.
std::vector<allreduce::AlgorithmPtr> parse_algorithms(
    const std::string& text, std::optional<allreduce::CollectiveKind> collective_kind = std::nullopt);
/// `all`: every row and none. A null stands for none.
std::vector<compression::CodecChoicePtr> parse_codecs(const std::string& text);
std::vector<dataparallel::TransportKind> parse_transports(const std::string& text);
std::vector<runtime::Cadence> parse_cadences(const std::string& text);
/// For factors that have one value so far: refuses every other by name.
void check_only(const std::string& flag, const std::string& text, const std::vector<std::string>& known);

}  // namespace gradmeter::cli
