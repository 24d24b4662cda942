#include "importers/lines.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <span>

#include "core/error.hpp"
#include "core/format.hpp"
#include "core/name.hpp"
#include "core/units.hpp"

namespace gradmeter::importers {

using core::UsageError;

std::string Faults::text() const {
  std::vector<std::string> left_out;
  const auto rows = [](std::size_t n) { return fmt::format("{} row{}", n, n == 1 ? "" : "s"); };
  if (without_time > 0) left_out.push_back(rows(without_time) + " whose time or rate is 0 or less");
  if (without_bytes > 0) left_out.push_back(rows(without_bytes) + " of 0 bytes");
  if (cut_line > 0) left_out.push_back(fmt::format("line {}, the last row, which is cut", cut_line));
  std::string out = left_out.empty() ? "" : fmt::format("left out: {}", fmt::join(left_out, ", "));
  if (contradictory > 0) {
    out += fmt::format("{}mistrusted: {} whose columns contradict each other", out.empty() ? "" : "; ",
                       rows(contradictory));
  }
  return out;
}

void Faults::add_cut_row(std::size_t number, const std::string& why) {
  add_whole_row();
  cut_line = number;
  why_cut = why;
}

void Faults::add_whole_row() const {
  if (!why_cut.empty()) refuse_line(cut_line, why_cut);
}

void each_line(std::string_view text, Faults& faults, const std::function<void(std::string_view, std::size_t)>& use) {
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    const std::size_t begin = line.find_first_not_of(" \t");
    const char first = begin == std::string_view::npos ? ' ' : line[begin];
    const bool may_be_row = (first >= '0' && first <= '9') || (first >= 'A' && first <= 'Z') ||
                            (first >= 'a' && first <= 'z') || first == '{';
    if (end == std::string_view::npos && may_be_row) {
      if (faults.cut_line == 0) faults.cut_line = number;
    } else {
      use(line, number);
    }
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
  throw UsageError(fmt::format("line {}: {}", number, why));
}

double number_of(const std::string& word, std::size_t line) {
  double value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc{} || end != word.data() + word.size() || !std::isfinite(value)) {
    refuse_line(line, fmt::format("'{}' is no number", word));
  }
  return value;
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
      Known{"allall", "all_to_all"}, Known{"alltoallv", "all_to_all"}, Known{"alltoallsingle", "all_to_all"},
      Known{"alltoallbase", "all_to_all"}, Known{"allgatherv", "all_gather"}, Known{"allgatherbase", "all_gather"},
      Known{"allgatherintotensor", "all_gather"}, Known{"reducescatterv", "reduce_scatter"},
      Known{"reducescatterbase", "reduce_scatter"}, Known{"reducescattertensor", "reduce_scatter"}};
  for (const auto& k : known)
    if (plain == k.plain) return std::string(k.collective);
  return std::nullopt;
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

void check_order(core::Point& p, double least, double mean, double most, Faults& faults) {
  constexpr double rounding = 1.02;
  if (least <= mean * rounding && mean <= most * rounding) return;
  mistrust(p,
           fmt::format("a mean of {} is not from {} to {}", core::to_text(core::Seconds{mean}),
                       core::to_text(core::Seconds{least}), core::to_text(core::Seconds{most})),
           faults);
}

void take_parts(core::Point& p, std::size_t line) {
  const std::string collective = core::to_text(p.factors[core::Factor::collective]);
  if (collective != "all_gather" && collective != "all_to_all") return;
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
  if (collective == "all_gather" || collective == "reduce_scatter" || collective == "all_to_all") return (p - 1) / p;
  return 1;
}

}  // namespace gradmeter::importers
