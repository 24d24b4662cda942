#include "importers/lines.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <set>
#include <span>
#include <utility>

#include "core/error.hpp"
#include "core/format.hpp"
#include "core/name.hpp"
#include "core/units.hpp"

namespace gradmeter::importers {

using core::UsageError;

std::string Faults::text() const {
  std::vector<std::string> left_out;
  const auto rows = [](std::size_t n) { return fmt::format("{} row{}", n, n == 1 ? "" : "s"); };
  for (const auto& [name, other] : other_kinds)
    left_out.push_back(fmt::format("{} of '{}' (line {}: {})", rows(other.rows), name, other.line,
                                   other.why.empty() ? no_kind : other.why));
  if (without_time > 0) left_out.push_back(rows(without_time) + " whose time or rate is 0 or less");
  if (without_bytes > 0) left_out.push_back(rows(without_bytes) + " of 0 bytes");
  if (torn > 0) left_out.push_back(fmt::format("{} that cannot be read ({})", rows(torn), why_torn));
  if (cut_line > 0) left_out.push_back(fmt::format("line {}, the last row, which is cut", cut_line));
  std::string out = left_out.empty() ? "" : fmt::format("left out: {}", fmt::join(left_out, ", "));
  if (contradictory > 0) {
    out += fmt::format("{}mistrusted: {} whose columns contradict each other", out.empty() ? "" : "; ",
                       rows(contradictory));
  }
  return out;
}

void Faults::add_other(const std::string& name, std::size_t line, const std::string& why) {
  OtherKind& other = other_kinds[name];
  if (other.rows++ == 0) {
    other.line = line;
    other.why = why;
  }
}

void Faults::add_unreadable(std::string why) {
  if (torn++ == 0) why_torn = std::move(why);
}

namespace {

constexpr std::string_view digits = "0123456789", blanks = " \t",
                           of_hosts = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_";

std::string without_escapes(std::string_view line) {
  std::string out;
  for (std::size_t at = 0; at < line.size(); ++at) {
    if (line[at] != '\x1b') {
      out += line[at];
    } else if (at + 1 < line.size() && line[at + 1] == '[') {  // up to its letter
      at = std::min(line.find_first_not_of("0123456789;?", at + 2), line.size());
    } else {
      ++at;
    }
  }
  return out;
}

/// Whether `line` begins with `form`, in which 0 is any digit.
bool has_form(std::string_view line, std::string_view form) {
  if (line.size() < form.size()) return false;
  return std::ranges::equal(line.substr(0, form.size()), form,
                            [](char c, char f) { return f == '0' ? c >= '0' && c <= '9' : c == f; });
}

/// The length of what a launcher or a collector of logs has put before a line; 0: nothing.
std::size_t prefix_length(std::string_view line) {
  constexpr std::size_t longest = 64, longest_tag = 256;  // a tag has the host's whole name
  const auto past_blank = [&](std::size_t at) { return at + (line.substr(at).starts_with(' ') ? 1 : 0); };
  // mpirun --tag-output, --timestamp-output: [1,0]<stdout>:
  for (const std::string_view tag : {"<stdout>:", "<stderr>:"})
    if (const std::size_t at = line.substr(0, longest_tag).find(tag); at != std::string_view::npos)
      return at + tag.size();
  // Kubernetes and the container runtimes: 2026-03-04T10:11:00.123456789Z stdout F
  if (has_form(line, "0000-00-00T00:00:00") || has_form(line, "0000-00-00 00:00:00")) {
    constexpr std::size_t seconds = 19;
    std::size_t end = std::min(line.find_first_not_of("0123456789.,", seconds), line.size());
    if (line.substr(end).starts_with('Z')) ++end;
    for (const std::string_view zone : {"+00:00", "-00:00", "+0000", "-0000"}) {
      if (!has_form(line.substr(end), zone)) continue;
      end += zone.size();
      break;
    }
    for (const std::string_view stream : {" stdout F", " stderr F"})
      if (line.substr(end).starts_with(stream)) end += stream.size();
    return past_blank(end);
  }
  // journals: Jun 04 10:11:12
  constexpr std::array<std::string_view, 12> months{"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                                    "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  for (const std::string_view form : {" 00 00:00:00 ", "  0 00:00:00 "})
    if (std::ranges::find(months, line.substr(0, 3)) != months.end() && has_form(line.substr(3), form))
      return 3 + form.size();
  // kubectl --prefix, mpiexec -prepend-rank, torchrun: [pod/x/y] [0]:
  const std::size_t bracket = line.starts_with('[') ? line.substr(0, longest).find(']') : std::string_view::npos;
  if (bracket != std::string_view::npos && bracket + 1 < line.size()) {
    if (line[bracket + 1] == ':') return past_blank(bracket + 2);
    if (line[bracket + 1] == ' ') return bracket + 2;
  }
  // srun --label: " 3: "
  const std::size_t first = line.find_first_not_of(' '),
                    colon = line.find_first_not_of(digits, std::min(first, line.size()));
  if (colon != std::string_view::npos && colon > first && line[colon] == ':' &&
      (colon + 1 == line.size() || line[colon + 1] == ' '))
    return past_blank(colon + 1);
  return 0;
}

/// HOST:PID:TID, with which NCCL begins a message; the place of the first colon, 0: none.
std::size_t process_colon(std::string_view word) {
  const std::size_t last = word.rfind(':');
  const std::size_t first = last == std::string_view::npos || last == 0 ? last : word.rfind(':', last - 1);
  if (first == std::string_view::npos || first == 0) return 0;
  return is_count(word.substr(first + 1, last - first - 1)) && is_count(word.substr(last + 1)) ? first : 0;
}

/// The length of a number at the begin of `text` that a letter follows, which is not its exponent's; else 0.
std::size_t number_before_letter(std::string_view text) {
  const auto past = [&](std::size_t at) { return std::min(text.find_first_not_of(digits, at), text.size()); };
  const std::size_t sign = text.starts_with('-') ? 1 : 0;
  std::size_t end = past(sign);
  if (end == sign) return 0;
  if (text.substr(end).starts_with('.')) end = past(end + 1);
  if (text.substr(end).starts_with("e-") || text.substr(end).starts_with("e+")) end = past(end + 2);
  const char next = end < text.size() ? text[end] : ' ';
  return (next >= 'a' && next <= 'z') || (next >= 'A' && next <= 'Z') ? end : 0;
}

using Hosts = std::set<std::string, std::less<>>;

/// HOST:PID:TID [GPU] of a message of NCCL in a line: where the word begins, and the host in it, before which the
/// tool's own output may stand without a blank. npos: there is no message; a message whose begin is lost is all of the
/// line.
struct Message {
  std::size_t begin = std::string_view::npos;
  std::string_view host = {};
};
Message message_in(std::string_view line) {
  std::size_t said = std::string_view::npos;
  for (const std::string_view level : {"NCCL INFO", "NCCL WARN", "NCCL TRACE"}) said = std::min(said, line.find(level));
  if (said == std::string_view::npos) return {};
  for (std::size_t gpu = line.find(" ["); gpu < said; gpu = line.find(" [", gpu + 1)) {
    const std::size_t begin = line.find_last_of(blanks, gpu - 1) + 1;
    const std::string_view word = line.substr(begin, gpu - begin);
    const std::size_t colon = process_colon(word);
    if (colon == 0) continue;
    const std::size_t host = word.find_last_not_of(of_hosts, colon - 1) + 1;  // npos + 1 is 0
    return {.begin = begin + host, .host = word.substr(host, colon - host)};
  }
  return {.begin = 0};
}

/// A line's part before a message. Hosts are found by their names where these are known, else a number is the tool's
/// and the letter behind it begins the host.
std::string_view own_part(std::string_view line, const Message& message, const Hosts& hosts) {
  if (message.begin == std::string_view::npos) return line;
  for (const auto& known : hosts)
    if (message.host.ends_with(known)) return line.substr(0, message.begin + message.host.size() - known.size());
  return line.substr(0, message.begin + number_before_letter(message.host));
}

/// What stands before each line of one log, word by word.
using Prefixes = std::set<std::string, std::less<>>;

/// Lines without their ends and what is put before and around them.
class PlainLines {
 public:
  /// `indentation`: how many blanks at most stand before each line besides.
  explicit PlainLines(std::string_view text, const Prefixes& prefixes, std::size_t indentation = 0)
      : text_(text), prefixes_(prefixes), indentation_(indentation) {}
  bool next() {
    if (text_.empty()) return false;
    ++number;
    const std::size_t end = text_.find('\n');
    has_end = end != std::string_view::npos;
    line = text_.substr(0, end);
    text_.remove_prefix(has_end ? end + 1 : text_.size());
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.find('\x1b') != std::string_view::npos) line = plain_ = without_escapes(line);
    for (bool goes_on = true; goes_on;) {
      while (const std::size_t length = prefix_length(line)) line.remove_prefix(length);
      const auto known = std::ranges::find_if(prefixes_, [this](const auto& p) { return line.starts_with(p); });
      goes_on = known != prefixes_.end();
      if (goes_on) line.remove_prefix(known->size());
    }
    line.remove_prefix(std::min({line.find_first_not_of(' '), line.size(), indentation_}));
    return true;
  }
  std::string_view line;
  std::size_t number = 0;
  bool has_end = true;

 private:
  std::string_view text_;
  std::string plain_;
  const Prefixes& prefixes_;
  std::size_t indentation_;
};

/// What stands before # in several lines and ends like a name that somebody put there: "node01: " of pdsh,
/// "worker-0  | " of compose, "(Worker pid=12) " of Ray. Only such a text, the same each time, is taken for no part of
/// the tool's own output.
Prefixes prefixes_in(std::string_view text) {
  constexpr std::size_t longest = 128, least = 3, most = 64;
  constexpr std::string_view ends = ":|)]";
  std::map<std::string, std::size_t, std::less<>> counts;
  const Prefixes none;
  for (PlainLines lines(text, none); lines.next();) {
    const std::size_t head = lines.line.find('#');
    if (head == 0 || head > longest || lines.line.find(" NCCL ") != std::string_view::npos) continue;
    const std::string_view before = lines.line.substr(0, head);
    const std::size_t last = before.find_last_not_of(blanks);
    if (last != std::string_view::npos && ends.find(before[last]) != std::string_view::npos)
      ++counts[std::string(before)];
  }
  Prefixes out;
  for (const auto& [prefix, count] : counts)
    if (count >= least) out.insert(prefix);
  return out.size() > most ? none : out;
}

/// Of the first line that begins with #, where all tools begin at the line's begin; without one, of all lines.
std::size_t indentation_of(std::string_view text, const Prefixes& prefixes) {
  std::size_t least = text.size();
  for (PlainLines lines(text, prefixes); lines.next();) {
    const std::size_t begin = lines.line.find_first_not_of(' ');
    if (begin == std::string_view::npos) continue;
    if (lines.line[begin] == '#') return begin;
    least = std::min(least, begin);
  }
  return least;
}

/// Hosts of a log's messages and of nccl-tests' list of ranks. What begins with a part of a row is none: what is
/// there once, and begins with a number or ends with another host, or is there without its number too.
Hosts hosts_in(std::string_view text, const Prefixes& prefixes) {
  std::map<std::string, int, std::less<>> counts;
  if (text.find(" NCCL ") == std::string_view::npos) return {};
  for (PlainLines lines(text, prefixes); lines.next();) {
    const Message message = message_in(lines.line);
    if (!message.host.empty() && lines.line.find_first_not_of(blanks) == message.begin)
      ++counts[std::string(message.host)];
    if (lines.line.find(" Rank ") == std::string_view::npos) continue;
    const auto words = words_of(lines.line);
    if (const auto on = std::ranges::find(words, "on"); words.end() - on > 1) ++counts[*(on + 1)];
  }
  Hosts out;
  for (const auto& [host, count] : counts) {
    const std::size_t number = number_before_letter(host);
    const bool ends_with_other = std::ranges::any_of(counts, [&name = host](const auto& other) {
      return other.first.size() < name.size() && name.ends_with(other.first);
    });
    if (count > 1 ? number == 0 || !counts.contains(host.substr(number)) : number == 0 && !ends_with_other)
      out.insert(host);
  }
  return out;
}

/// Where a line of a tool's head begins in a line, before which others may have printed without a line end. npos:
/// nowhere.
std::size_t head_in(std::string_view line) {
  std::size_t first = std::string_view::npos;
  for (const std::string_view head : {"# OSU ", "# Benchmarking ", "# #processes =", "# nccl-tests version",
                                      "# Collective test starting:", "# nThread ", "# Using devices"})
    first = std::min(first, line.find(head));
  return first;
}

/// Tools by the lines with which their output begins.
struct Tool {
  std::string_view format, name;
};
constexpr std::array tools{Tool{"deepbench", "DeepBench"}, Tool{"nccl-tests", "nccl-tests"},
                           Tool{"osu", "OSU micro-benchmarks"}, Tool{"imb", "Intel MPI Benchmarks"},
                           Tool{"param", "PARAM"}};

/// The format of the tool whose output begins with the line; empty: it begins none.
std::string_view format_begun_by(std::string_view line) {
  if (line.starts_with("# OSU ")) return "osu";
  for (const std::string_view head :
       {"# nccl-tests version", "# Collective test starting:", "# nThread", "# Using devices"})
    if (line.starts_with(head)) return "nccl-tests";
  if (line.starts_with('#') &&
      (line.find("MPI Benchmarks") != std::string_view::npos || line.starts_with("# Benchmarking ")))
    return "imb";
  if (line.find("COMMS-RES") != std::string_view::npos) return "param";
  return line.find("# of floats") == std::string_view::npos ? "" : "deepbench";
}

}  // namespace

bool OtherTools::takes(std::string_view line, std::size_t number) {
  if (const std::string_view begun = format_begun_by(line); !begun.empty()) {
    rows_.end();
    format_ = begun == own_format_ ? "" : begun;
  }
  if (format_.empty()) return false;
  if (begins_with_count(line) || line.find("COMMS-RES-") != std::string_view::npos) {
    const auto* const tool = std::ranges::find(tools, format_, &Tool::format);
    faults_.add_other(std::string(tool->name), number, fmt::format("another tool's, which --format {} reads", format_));
  }
  return true;
}

bool is_count(std::string_view word) {
  return !word.empty() && word.find_first_not_of(digits) == std::string_view::npos;
}

bool begins_with_count(std::string_view line) {
  const auto words = words_of(line);
  if (words.empty() || !is_count(words[0])) return false;
  static const std::set<std::string, std::less<>> no_numbers{"nan", "-nan", "inf", "-inf"};
  return words.size() == 1 || no_numbers.contains(words[1]) ||
         words[1].find_first_not_of("0123456789.,e+-") == std::string::npos;
}

void each_line(std::string_view text, Faults& faults, const std::function<void(std::string_view, std::size_t)>& use) {
  const Prefixes prefixes = prefixes_in(text);
  const Hosts hosts = hosts_in(text, prefixes);
  std::string before;  // of what a message has cut in two, the first side
  std::size_t number_before = 0;
  const auto give_part = [&](std::string_view line, std::size_t number) {
    const std::size_t begin = line.find_first_not_of(blanks);
    if (begin != std::string_view::npos && line[begin] == '#') line.remove_prefix(begin);
    use(line, number);
  };
  const auto give = [&](std::string_view line, std::size_t number) {
    const std::size_t head = head_in(line);
    if (head != std::string_view::npos && line.substr(0, head).find_first_not_of(blanks) != std::string_view::npos) {
      give_part(line.substr(0, head), number);
      line.remove_prefix(head);
    }
    give_part(line, number);
  };
  for (PlainLines lines(text, prefixes, indentation_of(text, prefixes)); lines.next();) {
    if (!lines.has_end) faults.unended_line = lines.number;
    const Message message = message_in(lines.line);
    const bool is_cut = message.begin != std::string_view::npos;
    const std::string_view line = own_part(lines.line, message, hosts);
    const std::size_t begin = line.find_first_not_of(blanks);
    if (is_cut && begin == std::string_view::npos) continue;
    // The end of the first side may be lost, so that a line of its own follows.
    if (!before.empty() && begin != std::string_view::npos &&
        (line[begin] == '#' || (begins_with_count(line) && words_of(line).size() == words_of(before).size())))
      give(std::exchange(before, {}), number_before);
    if (before.empty()) number_before = lines.number;
    before += line;
    if (!is_cut) give(std::exchange(before, {}), number_before);
  }
  if (!before.empty()) give(before, number_before);
}

std::string first_plain_line(std::string_view text) {
  constexpr std::size_t longest = 60;
  const Prefixes prefixes = prefixes_in(text);
  for (PlainLines lines(text, prefixes); lines.next();) {
    const std::size_t begin = lines.line.find_first_not_of(blanks);
    if (begin == std::string_view::npos || lines.line[begin] == '#') continue;
    if (message_in(lines.line).begin != std::string_view::npos) continue;
    return fmt::format("line {}: '{}{}'", lines.number, lines.line.substr(begin, longest),
                       lines.line.size() > begin + longest ? "..." : "");
  }
  return {};
}

void Rows::end(bool of_log) {
  if (!piece_.empty() && of_log && piece_is_cut_) {
    faults_.cut_line = piece_line_;
  } else if (!piece_.empty()) {
    faults_.add_unreadable(why_);
  }
  piece_.clear();
}

namespace {

/// Whether the last four words are numbers: of a row whose begin is hidden.
bool ends_like_a_row(std::string_view line) {
  constexpr std::size_t least = 4;
  const auto words = words_of(line);
  return words.size() >= least && std::ranges::all_of(words.end() - least, words.end(), [](const std::string& word) {
           return word.find_first_not_of("0123456789.e+-") == std::string::npos &&
                  word.find_first_of(digits) != std::string::npos;
         });
}

}  // namespace

void Rows::add(std::string_view line, std::size_t number, bool begins, const Read& read) {
  if (number == faults_.unended_line) {  // it may look like a whole one with other numbers
    if (begins || !piece_.empty()) faults_.cut_line = piece_.empty() ? number : piece_line_;
    piece_.clear();
    return;
  }
  if (piece_.empty() && !begins) {
    if (ends_like_a_row(line))
      faults_.add_unreadable(
          fmt::format("line {}: something else stands before the row, or its begin is lost", number));
    return;
  }
  bool is_cut = false;
  const auto refusal = [&](std::string_view row, bool joined) -> std::optional<std::string> {
    const Faults before = faults_;
    try {
      read(row, joined);
      return std::nullopt;
    } catch (const UsageError& e) {
      is_cut = dynamic_cast<const CutRow*>(&e) != nullptr;
      faults_ = before;
      return e.what();
    }
  };
  std::string joined = piece_ + std::string(line);
  const bool number_goes_on = !piece_.empty() && digits.find(piece_.back()) != std::string_view::npos &&
                              digits.find(line.front()) != std::string_view::npos;
  if (begins && number_goes_on && words_of(joined).size() == words_of(line).size()) {
    end();  // a row, or the rest of one: nobody knows
    return faults_.add_unreadable(fmt::format("line {}: it may continue line {}", number, piece_line_));
  }
  const auto why = begins ? refusal(line, false) : std::string();
  if (!why) return end();
  const bool began_cut = is_cut;
  // What begins like a row is the rest of one only within a number.
  if (!piece_.empty() && (!begins || number_goes_on) && !refusal(joined, true)) {
    piece_.clear();
  } else if (begins) {
    end();
    piece_ = line;
    piece_is_cut_ = began_cut;
    piece_line_ = number;
    why_ = *why;
  } else if (line.find_first_not_of("0123456789.e+-NA/ \t") == std::string_view::npos) {
    piece_ = std::move(joined);
  }
}

std::vector<std::string> words_of(std::string_view line) {
  std::vector<std::string> out;
  for (std::size_t begin = line.find_first_not_of(" \t"); begin != std::string_view::npos;) {
    const std::size_t end = std::min(line.find_first_of(" \t", begin), line.size());
    out.emplace_back(line.substr(begin, end - begin));
    begin = line.find_first_not_of(" \t", end);
  }
  return out;
}

void refuse_line(std::size_t number, const std::string& why) {
  throw UsageError(number == 0 ? why : fmt::format("line {}: {}", number, why));
}

void refuse_cut(std::size_t number, const std::string& why) { throw CutRow(fmt::format("line {}: {}", number, why)); }

void refuse_columns(std::size_t number, std::size_t found, std::size_t expected) {
  if (found < expected) refuse_cut(number, fmt::format("the row is cut; it should have {} columns", expected));
  refuse_line(number, fmt::format("the row has {} columns, but its table's head names {}", found, expected));
}

double number_of(const std::string& word, std::size_t line) {
  double value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc{} || end != word.data() + word.size() || !std::isfinite(value)) {
    refuse_line(line, fmt::format("'{}' is no number", word));
  }
  return value;
}

double number_of(const std::string& word, std::size_t decimals, std::size_t line) {
  const bool is_of_digits = word.find_first_not_of("-0123456789.") == std::string::npos;
  if (const std::size_t point = word.find('.');
      is_of_digits && (point == std::string::npos || word.size() - point <= decimals))
    refuse_cut(line, fmt::format("'{}' is cut; it should have {} decimals", word, decimals));
  return number_of(word, line);
}

std::int64_t count_of(const std::string& word, std::size_t line) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc{} || end != word.data() + word.size() || value < 0) {
    refuse_line(line, fmt::format("'{}' is no count", word));
  }
  return value;
}

std::vector<std::string> units_of(std::string_view head) {
  std::vector<std::string> out;
  for (std::size_t begin = head.find_first_of("(["); begin != std::string_view::npos;) {
    const std::size_t end = std::min(head.find_first_of(")]", begin), head.size());
    out.emplace_back(head.substr(begin + 1, end - begin - 1));
    begin = head.find_first_of("([", end);
  }
  return out;
}

namespace {

struct NamedUnit {
  std::string_view name;
  double size;
};

std::optional<double> size_of_unit(std::span<const NamedUnit> table, std::string_view name) {
  const auto found = std::ranges::find(table, name, &NamedUnit::name);
  return found == table.end() ? std::nullopt : std::optional(found->size);
}

/// "Mbytes/sec", "MiB/s", "Gbit/s" as the bytes or bits of a second that they are.
std::optional<double> size_of_rate(std::string_view unit) {
  static constexpr std::array prefixes{NamedUnit{"", 1},      NamedUnit{"K", 1e3},     NamedUnit{"k", 1e3},
                                       NamedUnit{"M", 1e6},   NamedUnit{"G", 1e9},     NamedUnit{"T", 1e12},
                                       NamedUnit{"Ki", 1024}, NamedUnit{"Mi", 0x1p20}, NamedUnit{"Gi", 0x1p30}};
  static constexpr std::array amounts{NamedUnit{"bytes", 1}, NamedUnit{"bits", 0.125}, NamedUnit{"bit", 0.125},
                                      NamedUnit{"B", 1}, NamedUnit{"b", 0.125}};
  const std::string_view time = unit.ends_with("/s") ? "/s" : "/sec";
  if (!unit.ends_with(time)) return std::nullopt;
  unit.remove_suffix(time.size());
  for (const NamedUnit& amount : amounts) {
    if (!unit.ends_with(amount.name)) continue;
    const auto prefix = size_of_unit(prefixes, unit.substr(0, unit.size() - amount.name.size()));
    return prefix ? std::optional(*prefix * amount.size) : std::nullopt;
  }
  return std::nullopt;
}

}  // namespace

double time_unit(std::string_view unit, std::size_t line) {
  static constexpr std::array known{NamedUnit{"ns", 1e-9},   NamedUnit{"nsec", 1e-9}, NamedUnit{"us", 1e-6},
                                    NamedUnit{"usec", 1e-6}, NamedUnit{"µs", 1e-6},   NamedUnit{"μs", 1e-6},
                                    NamedUnit{"ms", 1e-3},   NamedUnit{"msec", 1e-3}, NamedUnit{"s", 1},
                                    NamedUnit{"sec", 1}};
  const auto size = size_of_unit(known, unit);
  if (!size) refuse_line(line, fmt::format("the unit of times '{}' is not known; known are ns, us, ms and s", unit));
  return *size;
}

double rate_unit(std::string_view unit, std::size_t line) {
  const auto size = size_of_rate(unit);
  if (!size) refuse_line(line, fmt::format("the unit of rates '{}' is not known; known are MB/s, GB/s, ...", unit));
  return *size;
}

bool is_rate_unit(std::string_view unit) { return size_of_rate(unit).has_value(); }

std::optional<std::string> collective_of(std::string_view name) {
  std::string plain;
  for (const char c : core::lower(name))
    if (c >= 'a' && c <= 'z') plain += c;
  if (plain.ends_with("perf")) plain.resize(plain.size() - 4);
  struct Known {
    std::string_view plain, collective;
  };
  static constexpr std::array known{
      Known{"allreduce", "allreduce"}, Known{"reducescatter", "reduce_scatter"}, Known{"allgather", "all_gather"},
      Known{"broadcast", "broadcast"}, Known{"bcast", "broadcast"}, Known{"alltoall", "all_to_all"},
      Known{"sendrecv", "sendrecv"}, Known{"pingpong", "ping_pong"}, Known{"reduce", "reduce"},
      Known{"gather", "gather"}, Known{"scatter", "scatter"},
      // NCCL's Inspector, PARAM and PyTorch
      Known{"allall", "all_to_all"}, Known{"alltoallsingle", "all_to_all"}, Known{"alltoallbase", "all_to_all"},
      Known{"allgatherbase", "all_gather"}, Known{"allgatherintotensor", "all_gather"},
      Known{"reducescatterbase", "reduce_scatter"}, Known{"reducescattertensor", "reduce_scatter"},
      // with counts for each rank, which are other collectives
      Known{"alltoallv", "all_to_allv"}, Known{"allgatherv", "all_gatherv"},
      Known{"reducescatterv", "reduce_scatterv"}};
  for (const auto& k : known)
    if (plain == k.plain) return std::string(k.collective);
  return std::nullopt;
}

std::string nccl_kind(std::string_view program) {
  const std::string name = core::lower(program.substr(0, program.rfind("_perf")));
  return collective_of(name).value_or(name);
}

std::string nccl_type(std::string_view name, std::size_t line) {
  if (name == "uint8" || name == "uint32" || name == "uint64") return std::string(name);  // in which we measure nothing
  try {
    return std::string(core::info(core::parse_element(name)).name);
  } catch (const UsageError&) {
    refuse_line(line, fmt::format("'{}' is no element type of nccl-tests", name));
  }
}

std::int64_t ranks_of(std::int64_t said, const Hints& hints, std::size_t line) {
  if (said == 0 || hints.ranks == 0 || said == hints.ranks) return said > 0 ? said : hints.ranks;
  refuse_line(line, fmt::format("it says {} rank{}, but --ranks {}, and rates depend on it; leave --ranks out", said,
                                said == 1 ? "" : "s", hints.ranks));
}

std::string kind_of(const std::string& said, const Hints& hints, std::size_t line) {
  if (said.empty() || hints.collective.empty() || said == hints.collective)
    return said.empty() ? hints.collective : said;
  refuse_line(line, fmt::format("it says {}, but --collective {}; leave --collective out", said, hints.collective));
}

std::string mpi_element(std::string_view name) {
  static const std::map<std::string, std::string, std::less<>> known{
      {"MPI_CHAR", "int8"},   {"MPI_INT", "int32"},    {"MPI_FLOAT", "fp32"},   {"MPI_DOUBLE", "fp64"},
      {"ncclChar", "int8"},   {"ncclInt8", "int8"},    {"ncclInt", "int32"},    {"ncclInt32", "int32"},
      {"ncclHalf", "fp16"},   {"ncclFloat", "fp32"},   {"ncclFloat32", "fp32"}, {"ncclDouble", "fp64"},
      {"ncclInt64", "int64"}, {"ncclBfloat16", "bf16"}};
  const auto found = known.find(name);
  return found == known.end() ? std::string(name) : found->second;
}

std::optional<core::Element> element_of(std::string_view name) {
  using enum core::Element;
  if (const std::size_t colon = name.rfind(':'); colon != std::string_view::npos) name.remove_prefix(colon + 1);
  struct Known {
    std::string_view name;
    core::Element element;
  };
  static constexpr std::array known{
      Known{"float", f32}, Known{"float32", f32},        Known{"double", f64},       Known{"float64", f64},
      Known{"half", f16},  Known{"float16", f16},        Known{"bfloat16", bf16},    Known{"int", i32},
      Known{"int32", i32}, Known{"long", i64},           Known{"int64", i64},        Known{"char", i8},
      Known{"int8", i8},   Known{"float8_e4m3fn", e4m3}, Known{"float8_e5m2", e5m2}, Known{"long int", i64},
  };
  const std::string plain = core::lower(name);
  for (const auto& k : known)
    if (plain == k.name) return k.element;
  return std::nullopt;
}

core::Point collective_point(const std::string& collective, std::int64_t ranks, std::int64_t size, const Hints& hints) {
  core::Point p;
  p.experiment = "allreduce";
  p.factors[core::Factor::collective] = collective;
  p.factors[core::Factor::size_bytes] = size;
  const std::int64_t known_ranks = ranks > 0 ? ranks : hints.ranks;
  if (known_ranks > 0) p.factors[core::Factor::ranks] = known_ranks;
  if (!hints.interconnect.empty()) p.factors[core::Factor::interconnect] = hints.interconnect;
  return p;
}

core::Summary mean_time(double seconds) {
  core::Summary s;
  for (const auto& [key, value] : core::statistics) s.*value = std::numeric_limits<double>::quiet_NaN();
  s.median = seconds;
  s.n = 1;
  return s;
}

namespace {
std::int64_t whole(const core::Point& p, core::Factor f) {
  const auto* value = p.factors[f].as<std::int64_t>();
  return value ? *value : 0;
}
}  // namespace

void set_time(core::Point& p, double seconds) {
  const double rate = static_cast<double>(whole(p, core::Factor::size_bytes)) / seconds;
  p.metrics[core::Metric::time_s] = mean_time(seconds);
  p.metrics[core::Metric::algbw_bytes_per_s] = rate;
  const auto factor = bus_factor(core::to_text(p.factors[core::Factor::collective]), whole(p, core::Factor::ranks));
  if (factor) p.metrics[core::Metric::busbw_bytes_per_s] = *factor * rate;
}

namespace {

/// Wide enough for what tools count differently: a gather without the root's own part is a half of it on two ranks.
constexpr double tolerance = 2.2;

bool agree(double x, double y, double digit) { return x <= tolerance * y + digit && y <= tolerance * x + digit; }

}  // namespace

void mistrust(core::Point& p, const std::string& why, Faults& faults) {
  if (p.status != core::Status::ok) return;
  ++faults.contradictory;
  p.status = core::Status::mistrusted;
  p.reason = fmt::format("its columns contradict each other: {}", why);
}

void check_rates(core::Point& p, double algbw, double busbw, double digit, Faults& faults) {
  const double time = p.metrics.number(core::Metric::time_s);
  const std::int64_t size = whole(p, core::Factor::size_bytes);
  const double rate = static_cast<double>(size) / time;
  const auto factor = bus_factor(core::to_text(p.factors[core::Factor::collective]), whole(p, core::Factor::ranks));
  const bool bus_agrees = factor ? agree(busbw, *factor * rate, digit) : busbw <= 2 * tolerance * rate + digit;
  const bool agrees = agree(algbw, rate, digit);
  if (agrees && bus_agrees) return;
  mistrust(p,
           fmt::format("{} in {} are {}, but {} says {}", core::to_text(core::Bytes{static_cast<std::size_t>(size)}),
                       core::to_text(core::Seconds{time}), core::to_text(core::BytesPerSecond{rate}),
                       agrees ? "busbw" : "algbw", core::to_text(core::BytesPerSecond{agrees ? busbw : algbw})),
           faults);
}

bool is_near(double ratio, std::optional<double> factor) {
  constexpr double rounding = 0.02;
  return factor && std::abs(ratio - *factor) <= rounding * *factor;
}

void check_bus_factor(core::Point& p, double algbw, double busbw, double digit, Faults& faults) {
  constexpr double digits_of_ratio = 100;
  const std::string collective = core::to_text(p.factors[core::Factor::collective]);
  const std::int64_t ranks = whole(p, core::Factor::ranks);
  const auto factor = bus_factor(collective, ranks);
  const bool tells_ranks = collective == "allreduce" || collective == "all_gather" || collective == "reduce_scatter";
  if (!tells_ranks || !factor || algbw < digits_of_ratio * digit || is_near(busbw / algbw, factor)) return;
  mistrust(p, fmt::format("busbw is {:.3g} times algbw, but {:.3g} times for {} ranks", busbw / algbw, *factor, ranks),
           faults);
}

std::int64_t size_of_groups(const std::map<std::int64_t, std::int64_t>& ranks_by_group, std::size_t line) {
  const std::int64_t size = ranks_by_group.begin()->second;
  for (const auto& [group, ranks] : ranks_by_group)
    if (ranks != size)
      refuse_line(line,
                  fmt::format("group {} has {} ranks and others {}, so that a row has no one number of ranks; run "
                              "groups of one size",
                              group, ranks, size));
  return size;
}

std::string why_not_of(const std::string& collective, const std::string& op, std::int64_t root) {
  static const std::set<std::string> reducing{"allreduce", "reduce", "reduce_scatter"},
      moving{"all_gather", "broadcast", "all_to_all", "gather", "scatter", "sendrecv", "ping_pong"},
      rooted{"reduce", "broadcast", "gather", "scatter"};
  if (!op.empty() && moving.contains(collective)) return fmt::format("its rows have the operation {}", op);
  if (op.empty() && reducing.contains(collective)) return "its rows have no operation";
  const bool is_known = reducing.contains(collective) || moving.contains(collective);
  if (is_known && root >= 0 && !rooted.contains(collective)) return fmt::format("its rows have the root {}", root);
  if (root < 0 && rooted.contains(collective)) return "its rows have no root";
  return "";
}

void check_order(core::Point& p, double least, double mean, double most, Faults& faults) {
  constexpr double rounding = 1.02;
  if (least <= mean * rounding && mean <= most * rounding) return;
  mistrust(p,
           fmt::format("a mean of {} is not from {} to {}", core::to_text(core::Seconds{mean}),
                       core::to_text(core::Seconds{least}), core::to_text(core::Seconds{most})),
           faults);
}

void add_problem(core::Point& p, const std::string& what) {
  const std::string before = core::to_text(p.factors[core::Factor::problem]);
  p.factors[core::Factor::problem] = before == "null" ? what : fmt::format("{},{}", before, what);
}

bool counts_parts(std::string_view collective) {
  return collective == "all_gather" || collective == "all_to_all" || collective == "gather" || collective == "scatter";
}

void take_parts(core::Point& p, std::size_t line, bool always) {
  const std::string collective = core::to_text(p.factors[core::Factor::collective]);
  if (!always && !counts_parts(collective)) return;
  const std::int64_t ranks = whole(p, core::Factor::ranks), part = whole(p, core::Factor::size_bytes);
  if (ranks == 0)
    refuse_line(line, fmt::format("the size of an {} is one rank's part; --ranks says of how many", collective));
  if (part > std::numeric_limits<std::int64_t>::max() / ranks) refuse_line(line, fmt::format("'{}' is no size", part));
  p.factors[core::Factor::size_bytes] = part * ranks;
}

void set_wrong(core::Point& p, double elements) {
  constexpr double most = 0x1p53;
  p.metrics[core::Metric::wrong] = static_cast<std::int64_t>(std::clamp(elements, 0.0, most));
  if (!(elements > 0)) return;
  p.status = core::Status::wrong;
  p.reason = fmt::format("{:.0f} elements out of bounds", elements);
}

std::optional<double> bus_factor(const std::string& collective, std::int64_t ranks) {
  if (ranks < 1) return std::nullopt;
  const auto p = static_cast<double>(ranks);
  if (collective == "allreduce") return 2 * (p - 1) / p;
  if (counts_parts(collective) || collective == "reduce_scatter") return (p - 1) / p;
  static const std::set<std::string> of_one{"broadcast", "reduce", "sendrecv", "ping_pong", "send", "recv"};
  return of_one.contains(collective) ? std::optional(1.0) : std::nullopt;
}

}  // namespace gradmeter::importers
