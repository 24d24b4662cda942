#include <algorithm>

#include "core/element.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "importers/importers.hpp"
#include "importers/lines.hpp"

namespace gradmeter::importers {
namespace {

/// What the lines that begin with "#" say before the rows.
struct Head {
  std::string collective;
  std::int64_t ranks = 0;
  bool per_iteration = false;  ///< four more columns after each half
};

void add_host(const std::string& host, core::RunInfo& info) {
  if (std::find(info.hosts.begin(), info.hosts.end(), host) == info.hosts.end()) info.hosts.push_back(host);
}

void read_head(std::string_view line, Head& head, core::RunInfo& info) {
  const auto words = words_of(line);
  if (line.starts_with("# Collective test starting:") && words.size() > 4) {
    if (const auto name = collective_of(words[4])) head.collective = *name;
  }
  if (words.size() > 8 && words[0] == "#" && words[1] == "Rank") {
    ++head.ranks;
    const auto on = std::find(words.begin(), words.end(), "on");  // older versions have no group before it
    if (on != words.end() && on + 1 != words.end()) add_host(*(on + 1), info);
    if (const auto place = line.find("] "); place != std::string_view::npos)
      info.gpus.emplace_back(line.substr(place + 2));
  }
  if (line.starts_with("# nccl-tests version") && words.size() > 3)
    info.version = fmt::format("nccl-tests {}", words[3]);
  if (line.starts_with("# Per-Iteration Report")) head.per_iteration = true;
}

/// time, algbw, busbw, #wrong of one half of a row, from `at` on.
core::Point half(const std::vector<std::string>& words, std::size_t at, std::size_t line, const Head& head,
                 bool in_place, const Hints& hints) {
  core::Point p = collective_point(head.collective, head.ranks, count_of(words[0], line), hints);
  p.factors[core::Factor::dtype] = std::string(core::info(core::parse_element(words[2])).name);
  if (words[3] != "none") p.factors[core::Factor::op] = words[3];
  p.factors[core::Factor::in_place] = in_place;
  p.factors[core::Factor::algorithm] = std::string("nccl");
  p.factors[core::Factor::device] = std::string("cuda");
  p.metrics[core::Metric::time_s] = mean_time(number_of(words[at], line) * 1e-6);
  p.metrics[core::Metric::algbw_bytes_per_s] = number_of(words[at + 1], line) * 1e9;
  p.metrics[core::Metric::busbw_bytes_per_s] = number_of(words[at + 2], line) * 1e9;
  if (words[at + 3] != "N/A") set_wrong(p, number_of(words[at + 3], line));
  return p;
}

}  // namespace

bool is_nccl_tests(std::string_view log) {
  return log.find("#wrong") != std::string_view::npos || log.find("# nThread") != std::string_view::npos ||
         log.find("# nccl-tests version") != std::string_view::npos;
}

Imported read_nccl_tests(std::string_view log, const Hints& hints) {
  Imported out;
  Head head{.collective = hints.collective};
  bool unchecked = false;
  each_line(log, [&](std::string_view line, std::size_t number) {
    if (line.starts_with('#')) return read_head(line, head, out.run.info);
    const auto words = words_of(line);
    if (words.empty() || words[0].find_first_not_of("0123456789") != std::string::npos)
      return;  // what others print between
    const std::size_t width = head.per_iteration ? 8 : 4, first = 5;
    if (words.size() < first + width + 4)
      refuse_line(number, "the row is cut; it should have size, count, type, redop, root and both halves");
    if (head.collective.empty()) {
      refuse_line(number,
                  "which collective it is is not said before it (older versions do not); give --collective allreduce");
    }
    unchecked = unchecked || words[first + 3] == "N/A";
    out.run.points.push_back(half(words, first, number, head, false, hints));
    out.run.points.push_back(half(words, first + width, number, head, true, hints));
  });
  out.silent = "the spread of times (each is a mean over iterations)";
  if (unchecked) out.silent += "; whether results were right (run with -c 0)";
  if (head.ranks == 0 && hints.ranks == 0) out.silent += "; the number of ranks (--ranks says it)";
  return out;
}

}  // namespace gradmeter::importers
