#include "core/error.hpp"
#include "core/format.hpp"
#include "importers/importers.hpp"
#include "importers/lines.hpp"

namespace gradmeter::importers {
namespace {

/// The number after `key`; 0: none on this line.
std::int64_t ranks_after(std::string_view line, std::string_view key, std::size_t number) {
  const std::size_t at = line.find(key);
  if (at == std::string_view::npos) return 0;
  const std::string_view rest = line.substr(at + key.size());
  return count_of(std::string(rest.substr(0, rest.find_first_not_of("0123456789"))), number);
}

/// COMMS-RES-all_reduce-float32-TAG: what a row begins with.
struct ParamName {
  std::string collective, dtype;
};
ParamName name_in(std::string_view word, std::size_t number) {
  word.remove_prefix(std::string_view("COMMS-RES-").size());
  const std::size_t dash = word.find('-');
  if (dash == std::string_view::npos) refuse_line(number, fmt::format("'{}' names no element type", word));
  const std::string_view rest = word.substr(dash + 1), dtype = rest.substr(0, rest.find('-'));
  const auto element = element_of(dtype);
  const std::string collective(word.substr(0, dash));
  return {collective_of(collective).value_or(collective), std::string(element ? core::info(*element).name : dtype)};
}

core::Point param_row(const std::vector<std::string>& words, std::size_t number, std::int64_t ranks,
                      const Hints& hints) {
  constexpr std::size_t columns = 11, least = 6, most = 7;  // total-size, nElementsPerRank, p50, p75, p95, Min, Max, …
  if (words.size() < columns) refuse_line(number, fmt::format("the row is cut; it should have {} columns", columns));
  const ParamName name = name_in(words[0], number);
  const std::int64_t size = count_of(words[1], number);
  if (size == 0) refuse_line(number, "a call of 0 bytes has no rate");
  core::Point p = collective_point(name.collective, ranks, size, hints);
  p.factors[core::Factor::dtype] = name.dtype;
  p.factors[core::Factor::reduction] = std::string("max");  // p50 to p95 are over ranks, not over iterations
  const double slowest = number_of(words[most], number) * 1e-6, fastest = number_of(words[least], number) * 1e-6;
  if (!(slowest > 0)) refuse_line(number, "a time of 0 µs says nothing");
  set_time(p, slowest);
  if (fastest > 0) p.metrics[core::Metric::ranks_spread] = slowest / fastest;
  return p;
}

}  // namespace

bool is_param(std::string_view log) { return log.find("COMMS-RES") != std::string_view::npos; }

Imported read_param(std::string_view log, const Hints& hints) {
  Imported out;
  std::int64_t ranks = 0;
  std::size_t left_out = 0;
  bool is_collective = false;
  each_line(log, [&](std::string_view line, std::size_t number) {
    if (const auto said = ranks_after(line, "groupSize ", number)) ranks = said;
    const auto words = words_of(line);
    if (words.empty() || !words[0].starts_with("COMMS-RES")) return;
    if (words[0] == "COMMS-RES" || words[0] == "COMMS-RES-QUANT") {
      is_collective = words[0] == "COMMS-RES" && line.find("BusBW") != std::string_view::npos;
    } else if (is_collective) {
      out.run.points.push_back(param_row(words, number, ranks, hints));
    } else {
      ++left_out;
    }
  });
  out.run.info.version = "PARAM comms.py";
  out.silent = "the spread of times over iterations, whether results were right";
  if (ranks == 0 && hints.ranks == 0) out.silent += ", the number of ranks (--ranks says it)";
  if (left_out > 0) out.silent += fmt::format("; {} rows of pt2pt and of quantized collectives are left out", left_out);
  return out;
}

}  // namespace gradmeter::importers
