#include "importers/lines.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>

#include "core/error.hpp"
#include "core/format.hpp"
#include "core/name.hpp"

namespace gradmeter::importers {

using core::UsageError;

void each_line(std::string_view text, const std::function<void(std::string_view, std::size_t)>& use) {
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    use(line, number);
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
  const auto* value = std::get_if<std::int64_t>(&p.factors[f]);
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
