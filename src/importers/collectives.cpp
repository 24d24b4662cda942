// SPDX-License-Identifier: Apache-2.0
#include "importers/collectives.hpp"

#include <algorithm>
#include <array>
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

/// By name of a unit or prefix: its size.
using Units = std::map<std::string_view, double>;

std::optional<double> size_of_unit(const Units& units, std::string_view name) {
  const auto found = units.find(name);
  return found == units.end() ? std::nullopt : std::optional(found->second);
}

/// The bytes a second in a unit of rate, such as "Mbytes/sec", "MiB/s" or "Gbit/s"; empty for another unit.
std::optional<double> size_of_rate(std::string_view unit) {
  static const Units prefixes{{"", 1},     {"K", 1e3},   {"k", 1e3},     {"M", 1e6},    {"G", 1e9},
                              {"T", 1e12}, {"Ki", 1024}, {"Mi", 0x1p20}, {"Gi", 0x1p30}};
  static constexpr std::array amounts{std::pair{"bytes", 1.0}, std::pair{"bits", 0.125}, std::pair{"bit", 0.125},
                                      std::pair{"B", 1.0}, std::pair{"b", 0.125}};
  const std::string_view suffix = unit.ends_with("/s") ? "/s" : "/sec";
  if (!unit.ends_with(suffix)) return std::nullopt;
  unit.remove_suffix(suffix.size());
  for (const auto& [name, size] : amounts) {
    if (!unit.ends_with(name)) continue;
    const auto prefix = size_of_unit(prefixes, unit.substr(0, unit.size() - std::string_view(name).size()));
    return prefix ? std::optional(*prefix * size) : std::nullopt;
  }
  return std::nullopt;
}

}  // namespace

double unit_seconds(std::string_view unit, std::size_t line) {
  static const Units known{{"ns", 1e-9}, {"nsec", 1e-9}, {"us", 1e-6},   {"usec", 1e-6}, {"µs", 1e-6},
                           {"μs", 1e-6}, {"ms", 1e-3},   {"msec", 1e-3}, {"s", 1},       {"sec", 1}};
  const auto size = size_of_unit(known, unit);
  if (!size) refuse_line(line, fmt::format("the unit of times '{}' is not known; known are ns, us, ms and s", unit));
  return *size;
}

double unit_bytes_per_s(std::string_view unit, std::size_t line) {
  const auto size = size_of_rate(unit);
  if (!size) refuse_line(line, fmt::format("the unit of rates '{}' is not known; known are MB/s, GB/s, ...", unit));
  return *size;
}

std::optional<std::string> collective_of(std::string_view name) {
  std::string plain;
  for (const char c : core::lower(name))
    if (c >= 'a' && c <= 'z') plain += c;
  if (plain.ends_with("perf")) plain.resize(plain.size() - 4);
  // The names below include names of NCCL's Inspector, PARAM and PyTorch; collectives with counts for each rank
  // (alltoallv) are other collectives.
  static const std::map<std::string_view, std::string> known{{"allreduce", "allreduce"},
                                                             {"reducescatter", "reduce_scatter"},
                                                             {"allgather", "all_gather"},
                                                             {"broadcast", "broadcast"},
                                                             {"bcast", "broadcast"},
                                                             {"alltoall", "all_to_all"},
                                                             {"sendrecv", "sendrecv"},
                                                             {"pingpong", "ping_pong"},
                                                             {"reduce", "reduce"},
                                                             {"gather", "gather"},
                                                             {"scatter", "scatter"},
                                                             {"allall", "all_to_all"},
                                                             {"alltoallsingle", "all_to_all"},
                                                             {"alltoallbase", "all_to_all"},
                                                             {"allgatherbase", "all_gather"},
                                                             {"allgatherintotensor", "all_gather"},
                                                             {"reducescatterbase", "reduce_scatter"},
                                                             {"reducescattertensor", "reduce_scatter"},
                                                             {"alltoallv", "all_to_allv"},
                                                             {"allgatherv", "all_gatherv"},
                                                             {"reducescatterv", "reduce_scatterv"}};
  const auto found = known.find(plain);
  return found == known.end() ? std::nullopt : std::optional(found->second);
}

std::string nccl_kind(std::string_view program) {
  const std::string name = core::lower(program.substr(0, program.rfind("_perf")));
  return collective_of(name).value_or(name);
}

std::string nccl_type(std::string_view name, std::size_t line) {
  // gradmeter measures nothing in these types
  if (name == "uint8" || name == "uint32" || name == "uint64") return std::string(name);
  try {
    return std::string(core::info(core::parse_element(name)).name);
  } catch (const UsageError&) {
    refuse_line(line, fmt::format("'{}' is no element type of nccl-tests", name));
  }
}

std::string nccl_version(std::int64_t code) {
  constexpr std::int64_t first_long = 10000;  // NCCL_VERSION in nccl.h: from 2.9 on, minor versions have two digits
  return code < first_long ? fmt::format("{}.{}.{}", code / 1000, code / 100 % 10, code % 100)
                           : fmt::format("{}.{}.{}", code / 10000, code / 100 % 100, code % 100);
}

std::int64_t checked_ranks(std::int64_t in_log, const UserFacts& user_facts, std::size_t line) {
  if (in_log == 0 || user_facts.ranks == 0 || in_log == user_facts.ranks) return in_log > 0 ? in_log : user_facts.ranks;
  refuse_line(line, fmt::format("it says {} rank{}, but --ranks {}, and rates depend on it; leave --ranks out", in_log,
                                in_log == 1 ? "" : "s", user_facts.ranks));
}

std::string checked_collective(const std::string& in_log, const UserFacts& user_facts, std::size_t line) {
  if (in_log.empty() || user_facts.collective.empty() || in_log == user_facts.collective)
    return in_log.empty() ? user_facts.collective : in_log;
  refuse_line(line,
              fmt::format("it says {}, but --collective {}; leave --collective out", in_log, user_facts.collective));
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
  static const std::map<std::string_view, core::Element> known{
      {"float", f32},        {"float32", f32},   {"double", f64},     {"float64", f64}, {"half", f16},
      {"float16", f16},      {"bfloat16", bf16}, {"int", i32},        {"int32", i32},   {"long", i64},
      {"int64", i64},        {"char", i8},       {"signed char", i8}, {"int8", i8},     {"float8_e4m3fn", e4m3},
      {"float8_e5m2", e5m2}, {"long int", i64}};
  const auto found = known.find(core::lower(name));
  return found == known.end() ? std::nullopt : std::optional(found->second);
}

core::Point collective_point(const std::string& collective, std::int64_t ranks, std::int64_t size,
                             const UserFacts& user_facts) {
  core::Point point;
  point.experiment = "allreduce";
  point.factors[core::Factor::collective] = collective;
  point.factors[core::Factor::size_bytes] = size;
  const std::int64_t known_ranks = ranks > 0 ? ranks : user_facts.ranks;
  if (known_ranks > 0) point.factors[core::Factor::ranks] = known_ranks;
  if (!user_facts.interconnect.empty()) point.factors[core::Factor::interconnect] = user_facts.interconnect;
  return point;
}

core::Summary summary_of_iterations(std::span<const double> seconds) {
  core::Blocks blocks;
  blocks.add(seconds);
  return core::summarise(blocks);
}

core::Summary summary_of_mean(double seconds) {
  core::Summary s;
  for (const auto& [key, value] : core::statistics) s.*value = std::numeric_limits<double>::quiet_NaN();
  s.median = seconds;
  s.n = 1;
  return s;
}

namespace {
std::int64_t integer_factor(const core::Point& point, core::Factor f) {
  const auto* value = point.factors[f].as<std::int64_t>();
  return value ? *value : 0;
}
}  // namespace

void set_time_and_rates(core::Point& point, double seconds) {
  const double rate = static_cast<double>(integer_factor(point, core::Factor::size_bytes)) / seconds;
  point.metrics[core::Metric::time_s] = summary_of_mean(seconds);
  point.metrics[core::Metric::algbw_bytes_per_s] = rate;
  const auto factor =
      bus_factor(core::to_text(point.factors[core::Factor::collective]), integer_factor(point, core::Factor::ranks));
  if (factor) point.metrics[core::Metric::busbw_bytes_per_s] = *factor * rate;
}

namespace {

/// The factor by which rates of a row may differ, since tools count bytes differently: a gather without the root's own
/// part is half as large on two ranks.
constexpr double tolerance = 2.2;

bool agree(double x, double y, double digit) { return x <= tolerance * y + digit && y <= tolerance * x + digit; }

}  // namespace

void mistrust(core::Point& point, const std::string& why, Faults& faults) {
  if (point.status != core::Status::ok) return;
  ++faults.contradictory;
  point.status = core::Status::mistrusted;
  point.reason = fmt::format("its columns contradict each other: {}", why);
}

void check_rates(core::Point& point, double algbw, double busbw, double digit, Faults& faults) {
  const double time = point.metrics.number(core::Metric::time_s);
  const std::int64_t size = integer_factor(point, core::Factor::size_bytes);
  const double rate = static_cast<double>(size) / time;
  const auto factor =
      bus_factor(core::to_text(point.factors[core::Factor::collective]), integer_factor(point, core::Factor::ranks));
  const bool bus_agrees = factor ? agree(busbw, *factor * rate, digit) : busbw <= 2 * tolerance * rate + digit;
  const bool agrees = agree(algbw, rate, digit);
  if (agrees && bus_agrees) return;
  mistrust(point,
           fmt::format("{} in {} are {}, but {} says {}", core::to_text(core::Bytes{static_cast<std::size_t>(size)}),
                       core::to_text(core::Seconds{time}), core::to_text(core::BytesPerSecond{rate}),
                       agrees ? "busbw" : "algbw", core::to_text(core::BytesPerSecond{agrees ? busbw : algbw})),
           faults);
}

bool is_near(double ratio, std::optional<double> factor) {
  constexpr double rounding = 0.02;
  return factor && std::abs(ratio - *factor) <= rounding * *factor;
}

void check_bus_factor(core::Point& point, double algbw, double busbw, double digit, Faults& faults) {
  constexpr double three_digits = 100;
  const std::string collective = core::to_text(point.factors[core::Factor::collective]);
  const std::int64_t ranks = integer_factor(point, core::Factor::ranks);
  const auto factor = bus_factor(collective, ranks);
  const bool tells_ranks = collective == "allreduce" || collective == "all_gather" || collective == "reduce_scatter";
  if (!tells_ranks || !factor || algbw < three_digits * digit || is_near(busbw / algbw, factor)) return;
  mistrust(point,
           fmt::format("busbw is {:.3g} times algbw, but {:.3g} times for {} ranks", busbw / algbw, *factor, ranks),
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

std::string collective_refusal(const std::string& collective, const std::string& op, std::int64_t root) {
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

void check_order(core::Point& point, double least, double mean, double most, Faults& faults) {
  constexpr double rounding = 1.02;
  if (least <= mean * rounding && mean <= most * rounding) return;
  mistrust(point,
           fmt::format("a mean of {} is not from {} to {}", core::to_text(core::Seconds{mean}),
                       core::to_text(core::Seconds{least}), core::to_text(core::Seconds{most})),
           faults);
}

void add_problem(core::Point& point, const std::string& what) {
  const std::string before = core::to_text(point.factors[core::Factor::problem]);
  point.factors[core::Factor::problem] = before == "null" ? what : fmt::format("{},{}", before, what);
}

bool gives_size_of_one_part(std::string_view collective) {
  return collective == "all_gather" || collective == "all_to_all" || collective == "gather" || collective == "scatter";
}

void set_whole_size(core::Point& point, std::size_t line, bool always) {
  const std::string collective = core::to_text(point.factors[core::Factor::collective]);
  if (!always && !gives_size_of_one_part(collective)) return;
  const std::int64_t ranks = integer_factor(point, core::Factor::ranks),
                     part = integer_factor(point, core::Factor::size_bytes);
  if (ranks == 0)
    refuse_line(line, fmt::format("the size of an {} is one rank's part; --ranks says of how many", collective));
  if (part > std::numeric_limits<std::int64_t>::max() / ranks) refuse_line(line, fmt::format("'{}' is no size", part));
  point.factors[core::Factor::size_bytes] = part * ranks;
}

void set_wrong(core::Point& point, double elements) {
  constexpr double most = 0x1p53;
  point.metrics[core::Metric::wrong] = static_cast<std::int64_t>(std::clamp(elements, 0.0, most));
  if (!(elements > 0)) return;
  point.status = core::Status::wrong;
  point.reason = fmt::format("{:.0f} elements out of bounds", elements);
}

std::optional<double> bus_factor(const std::string& collective, std::int64_t ranks) {
  if (ranks < 1) return std::nullopt;
  const auto p = static_cast<double>(ranks);
  if (collective == "allreduce") return 2 * (p - 1) / p;
  if (gives_size_of_one_part(collective) || collective == "reduce_scatter") return (p - 1) / p;
  static const std::set<std::string> with_factor_one{"broadcast", "reduce", "sendrecv", "ping_pong", "send", "recv"};
  return with_factor_one.contains(collective) ? std::optional(1.0) : std::nullopt;
}

}  // namespace gradmeter::importers
