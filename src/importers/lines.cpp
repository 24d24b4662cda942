// SPDX-License-Identifier: Apache-2.0
#include "importers/lines.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>

#include "core/format.hpp"

namespace gradmeter::importers {
namespace {

constexpr std::string_view blanks = " \t",
                           host_characters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_";

std::string without_escapes(std::string_view line) {
  std::string out;
  for (std::size_t at = 0; at < line.size(); ++at) {
    if (line[at] != '\x1b') {
      out += line[at];
    } else if (at + 1 < line.size() && line[at + 1] == '[') {  // skips up to its letter
      at = std::min(line.find_first_not_of("0123456789;?", at + 2), line.size());
    } else {
      ++at;
    }
  }
  return out;
}

/// True if `line` begins with `form`, in which 0 is any digit.
bool has_form(std::string_view line, std::string_view form) {
  if (line.size() < form.size()) return false;
  return std::ranges::equal(line.substr(0, form.size()), form,
                            [](char c, char f) { return f == '0' ? c >= '0' && c <= '9' : c == f; });
}

/// The length of the text that a launcher or a collector of logs has put before a line; 0: none.
std::size_t prefix_length(std::string_view line) {
  constexpr std::size_t longest = 64, longest_tag = 256;  // a tag contains the host's whole name
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

/// The offset of the first colon in HOST:PID:TID, with which NCCL begins a message; 0: the word is none.
std::size_t process_colon(std::string_view word) {
  const std::size_t last = word.rfind(':');
  const std::size_t first = last == std::string_view::npos || last == 0 ? last : word.rfind(':', last - 1);
  if (first == std::string_view::npos || first == 0) return 0;
  return is_count(word.substr(first + 1, last - first - 1)) && is_count(word.substr(last + 1)) ? first : 0;
}

/// The length of the number with which `text` begins, if a letter other than that of its exponent follows; else 0.
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

/// NCCL's message in a line, which begins with HOST:PID:TID [GPU]. `begin`: the offset of `host`; npos: there is no
/// message; 0, with an empty host: the begin of the message is lost, and the whole line counts as the message. `host`
/// may begin with the tool's own output, which can precede HOST without a blank (`own_part`).
struct Message {
  std::size_t begin = std::string_view::npos;
  std::string_view host = {};
};
Message message_in(std::string_view line) {
  std::size_t level_begin = std::string_view::npos;
  for (const std::string_view level : {"NCCL INFO", "NCCL WARN", "NCCL TRACE"})
    level_begin = std::min(level_begin, line.find(level));
  if (level_begin == std::string_view::npos) return {};
  for (std::size_t gpu = line.find(" ["); gpu < level_begin; gpu = line.find(" [", gpu + 1)) {
    const std::size_t begin = line.find_last_of(blanks, gpu - 1) + 1;
    const std::string_view word = line.substr(begin, gpu - begin);
    const std::size_t colon = process_colon(word);
    if (colon == 0) continue;
    const std::size_t host = word.find_last_not_of(host_characters, colon - 1) + 1;  // npos + 1 is 0
    return {.begin = begin + host, .host = word.substr(host, colon - host)};
  }
  return {.begin = 0};
}

/// The part of a line before the message. If `hosts` has the name with which `message.host` ends, the text before the
/// name is the tool's; else a number at its begin is the tool's, and the letter after the number begins the host.
std::string_view own_part(std::string_view line, const Message& message, const Hosts& hosts) {
  if (message.begin == std::string_view::npos) return line;
  for (const auto& known : hosts)
    if (message.host.ends_with(known)) return line.substr(0, message.begin + message.host.size() - known.size());
  return line.substr(0, message.begin + number_before_letter(message.host));
}

/// Texts that stand before lines of one log, character by character.
using Prefixes = std::set<std::string, std::less<>>;

/// Lines without their ends, prefixes and messages.
class PlainLines {
 public:
  /// `indentation`: at most so many blanks are removed before each line, besides prefixes.
  explicit PlainLines(std::string_view text, const Prefixes& prefixes, std::size_t indentation = 0)
      : text_(text), prefixes_(prefixes), indentation_(indentation) {}
  bool next() {
    if (text_.empty()) return false;
    ++number;
    const std::size_t end = text_.find('\n');
    line = text_.substr(0, end);
    text_.remove_prefix(end == std::string_view::npos ? text_.size() : end + 1);
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

 private:
  std::string_view text_;
  std::string plain_;
  const Prefixes& prefixes_;
  std::size_t indentation_;
};

/// Prefixes: texts that stand before # in at least three lines, always the same, and end like a name that somebody put
/// there: "node01: " of pdsh, "worker-0  | " of compose, "(Worker pid=12) " of Ray. Any other text is the tool's own
/// output.
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

/// The number of blanks before each line: those before the first line with #, which all tools write at the begin of a
/// line; without such a line, the fewest before any line.
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

/// Finds the hosts of a log's messages and of nccl-tests' list of ranks. A name to which the end of a row belongs is no
/// host: one that occurs once and begins with a number or ends with another host, or one that also occurs without the
/// number at its begin.
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

/// The offset in a line at which a tool's head begins, since others may have printed before it without a line end;
/// npos: there is none.
std::size_t head_in(std::string_view line) {
  std::size_t first = std::string_view::npos;
  for (const std::string_view head : {"# OSU ", "# Benchmarking ", "# #processes =", "# nccl-tests version",
                                      "# Collective test starting:", "# nThread ", "# Using devices"})
    first = std::min(first, line.find(head));
  return first;
}

}  // namespace

std::vector<std::string> words_of(std::string_view line) {
  std::vector<std::string> out;
  for (std::size_t begin = line.find_first_not_of(" \t"); begin != std::string_view::npos;) {
    const std::size_t end = std::min(line.find_first_of(" \t", begin), line.size());
    out.emplace_back(line.substr(begin, end - begin));
    begin = line.find_first_not_of(" \t", end);
  }
  return out;
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

void each_line(std::string_view text, const std::function<void(std::string_view, std::size_t)>& use) {
  const Prefixes prefixes = prefixes_in(text);
  const Hosts hosts = hosts_in(text, prefixes);
  std::string cut_line;  // the begin of a line that a message has cut in two
  std::size_t cut_line_number = 0;
  const auto visit_part = [&](std::string_view line, std::size_t number) {
    const std::size_t begin = line.find_first_not_of(blanks);
    if (begin != std::string_view::npos && line[begin] == '#') line.remove_prefix(begin);
    use(line, number);
  };
  const auto visit_line = [&](std::string_view line, std::size_t number) {
    const std::size_t head = head_in(line);
    if (head != std::string_view::npos && line.substr(0, head).find_first_not_of(blanks) != std::string_view::npos) {
      visit_part(line.substr(0, head), number);
      line.remove_prefix(head);
    }
    visit_part(line, number);
  };
  for (PlainLines lines(text, prefixes, indentation_of(text, prefixes)); lines.next();) {
    const Message message = message_in(lines.line);
    const bool is_cut = message.begin != std::string_view::npos;
    const std::string_view line = own_part(lines.line, message, hosts);
    const std::size_t begin = line.find_first_not_of(blanks);
    if (is_cut && begin == std::string_view::npos) continue;
    // The rest of a cut line may be lost: then the next line is a line of its own.
    if (!cut_line.empty() && begin != std::string_view::npos &&
        (line[begin] == '#' || (begins_with_count(line) && words_of(line).size() == words_of(cut_line).size())))
      visit_line(std::exchange(cut_line, {}), cut_line_number);
    if (cut_line.empty()) cut_line_number = lines.number;
    cut_line += line;
    if (!is_cut) visit_line(std::exchange(cut_line, {}), cut_line_number);
  }
  if (!cut_line.empty()) visit_line(cut_line, cut_line_number);
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

}  // namespace gradmeter::importers
