#include "core/error.hpp"
#include "core/format.hpp"
#include "core/name.hpp"
#include "importers/importers.hpp"
#include "importers/lines.hpp"

namespace gradmeter::importers {
namespace {

/// "# OSU MPI Allreduce Latency Test v7.3": words between the library and Latency or Bandwidth.
std::string collective_in(std::string_view title) {
  const auto words = words_of(title);
  std::string name;
  for (std::size_t i = 3; i < words.size(); ++i) {
    if (words[i] == "Latency" || words[i] == "Bandwidth" || words[i] == "Bi-Directional") break;
    name += words[i];
  }
  return name.empty() ? "ping_pong" : collective_of(name).value_or(core::lower(name));
}

}  // namespace

bool is_osu(std::string_view log) { return log.find("# OSU ") != std::string_view::npos; }

Imported read_osu(std::string_view log, const Hints& hints) {
  Imported out;
  std::string collective;
  bool is_bandwidth = false, with_extremes = false, has_columns = false;
  each_line(log, [&](std::string_view line, std::size_t number) {
    if (line.starts_with("# OSU ")) {
      collective = collective_in(line);
      out.run.info.version = std::string(line.substr(2));
      return;
    }
    if (line.starts_with("# Size")) {
      has_columns = true;
      is_bandwidth = line.find("MB/s") != std::string_view::npos;
      with_extremes = line.find("Min Latency") != std::string_view::npos;
      return;
    }
    const auto words = words_of(line);
    if (words.empty() || line.starts_with('#') || words[0].find_first_not_of("0123456789") != std::string::npos) return;
    if (!has_columns) refuse_line(number, "a row stands before '# Size', which says what its columns are");
    if (words.size() < (with_extremes ? 4u : 2u))
      refuse_line(number, "the row is cut; it should have a size and a number");
    const std::int64_t size = count_of(words[0], number);
    if (size == 0) return;  // no bytes: our sizes begin at one
    core::Point p = collective_point(hints.collective.empty() ? collective : hints.collective,
                                     collective == "ping_pong" ? 2 : 0, size, hints);
    const double value = number_of(words[1], number);
    if (!(value > 0)) refuse_line(number, fmt::format("'{}' is no time or rate", words[1]));
    const double seconds = is_bandwidth ? static_cast<double>(size) / (value * 1e6) : value * 1e-6;
    p.metrics[core::Metric::time_s] = mean_time(seconds);
    p.metrics[core::Metric::algbw_bytes_per_s] = static_cast<double>(size) / seconds;
    const auto* ranks = std::get_if<std::int64_t>(&p.factors[core::Factor::ranks]);
    if (const auto factor = bus_factor(collective, ranks ? *ranks : 0)) {
      p.metrics[core::Metric::busbw_bytes_per_s] = *factor * static_cast<double>(size) / seconds;
    }
    if (with_extremes && number_of(words[2], number) > 0)
      p.metrics[core::Metric::ranks_spread] = number_of(words[3], number) / number_of(words[2], number);
    out.run.points.push_back(std::move(p));
  });
  out.silent = "the spread of times (each is a mean), whether results were right";
  if (hints.ranks == 0 && collective != "ping_pong") out.silent += ", the number of ranks (--ranks says it)";
  return out;
}

}  // namespace gradmeter::importers
