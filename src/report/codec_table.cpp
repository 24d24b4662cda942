#include "report/codec_table.hpp"

#include <array>
#include <cmath>

#include "core/format.hpp"
#include "core/units.hpp"
#include "report/cells.hpp"

namespace gradmeter::report {
namespace {

using core::Factor;
using core::Metric;
using core::Point;

constexpr std::array timed{Metric::encode_s, Metric::decode_s, Metric::decode_add_s, Metric::reduce_encode_s};

double bytes_of(const Point& p) { return static_cast<double>(integer(p.factors[Factor::size_bytes])); }

std::string heading(const Point& p) {
  const auto& f = p.factors;
  return fmt::format("{} of fp32 · {} · {} thread · {}",
                     core::to_text(core::Bytes{static_cast<std::size_t>(integer(f[Factor::size_bytes]))}),
                     text(f[Factor::distribution]), text(f[Factor::threads]), text(f[Factor::problem]));
}

std::string gigabytes(const Point& p, double seconds) { return digits(bytes_of(p) / seconds * 1e-9); }

/// "4.1–4.3": the interval of the time's median, as rates.
std::string rate_interval(const Point& p, const core::Value& time) {
  const auto* s = std::get_if<core::Summary>(&time);
  if (!s || !std::isfinite(s->ci95_low)) return "-";
  return fmt::format("{}–{}", gigabytes(p, s->ci95_high), gigabytes(p, s->ci95_low));
}

std::string expected_text(const Point& p) {
  const double bound = p.metrics.number(Metric::error_bound);
  return std::isfinite(bound) ? fmt::format("≤{}", error_text(bound))
                              : error_text(p.metrics.number(Metric::error_expected));
}

/// Gbit/s, as links are sold.
std::string link_text(const Point& p) {
  const double link = p.metrics.number(Metric::crossover_bytes_per_s);
  return link == 0 ? "never" : digits(link * 8e-9);
}

std::vector<core::Column> columns() {
  using enum core::Align;
  std::vector<core::Column> out{{"codec", "", left},
                                {"wire", "bits", right},
                                {"error", "", right},
                                {"expected", "", right, 2},
                                {"memcpy", "GB/s", right, 1}};
  for (const char* call : {"encode", "decode", "decode-add", "reduce"}) {
    out.insert(out.end(), {{call, "GB/s", right}, {"95 %", "GB/s", right, 4}, {"of copy", "%", right, 3}});
  }
  out.push_back({"pays below", "Gbit/s", right});
  return out;
}

std::vector<std::string> row(const Point& p) {
  const auto& m = p.metrics;
  const double copy = m.number(Metric::memcpy_s);
  std::vector<std::string> cells{text(codec_label(p)), digits(m.number(Metric::wire_bits)),
                                 error_text(m.number(Metric::error)), expected_text(p),
                                 fmt::format("{}{}", gigabytes(p, copy), noisy(p) ? "~" : " ")};
  for (const Metric time : timed) {
    const double seconds = m.number(time);
    cells.insert(cells.end(), {gigabytes(p, seconds), rate_interval(p, m[time]),
                               std::isfinite(seconds) ? fmt::format("{:.0f}", 100 * copy / seconds) : "-"});
  }
  cells.push_back(link_text(p));
  return cells;
}

constexpr std::array csv_factors{Factor::codec,      Factor::algorithm, Factor::ranks,
                                 Factor::size_bytes, Factor::dtype,     Factor::distribution,
                                 Factor::threads,    Factor::transport, Factor::problem};
constexpr std::array csv_times{Metric::memcpy_s, Metric::add_s,        Metric::encode_s,
                               Metric::decode_s, Metric::decode_add_s, Metric::reduce_encode_s};
constexpr std::array csv_metrics{Metric::wire_bits,
                                 Metric::error,
                                 Metric::error_expected,
                                 Metric::error_bound,
                                 Metric::crossover_bytes_per_s,
                                 Metric::noise_steal,
                                 Metric::noise_run_delay};

std::string stem(Metric m) {
  std::string out(core::name(m));
  return out.substr(0, out.size() - 2);  // "_s"
}

}  // namespace

std::string codec_tables(std::span<const Point> points, std::size_t width) {
  std::string out;
  for (const auto& [name, of] : by_name(points, heading)) {
    core::Table table(columns());
    for (const Point* p : of) table.add_row(row(*p), why_not(*p));
    out += fmt::format("{}\n{}\n", name, table.to_string(width));
  }
  return out;
}

std::string codec_legend() {
  return "wire       bits of an element on the wire, scales and padding included, as encoded\n"
         "error      ‖decoded - x‖² / ‖x‖² of one encoding; expected: by the codec's identity for these numbers, ≤ a "
         "bound\n"
         "GB/s       fp32 bytes encoded, decoded, ... in a second by one thread, median; 95 %: interval of the "
         "median;\n"
         "           of copy: share of memcpy's rate, measured in turn; reduce: parts added up and encoded again;\n"
         "           dgc, powersgd, randomk: the steps of one rank, with what they keep (momentum, residual, basis);\n"
         "           dgc: at the density that its warm-up in train ends at\n"
         "pays below the link on which saved bytes are worth the arithmetic, in an exchange of so many ranks against "
         "the\n"
         "           baseline; a codec that pays below 10 Gbit/s is a loss on faster links\n"
         "~          over 5 % of the machine was with other processes or the hypervisor meanwhile: measure again\n";
}

std::string codec_csv_header() {
  std::vector<std::string> names{"status", "reason"};
  for (const Factor f : csv_factors) names.emplace_back(core::name(f));
  for (const Metric m : csv_times) {
    for (const char* part : {"median", "ci95_low", "ci95_high"}) names.push_back(fmt::format("{}_{}_s", stem(m), part));
    names.push_back(fmt::format("{}_samples", stem(m)));
  }
  for (const Metric m : csv_metrics) names.emplace_back(core::name(m));
  return fmt::format("{}\n", fmt::join(names, ","));
}

std::string codec_csv_row(const Point& p) {
  std::vector<std::string> cells{std::string(core::name(p.status)), csv_cell(p.reason)};
  for (const Factor f : csv_factors) cells.push_back(csv_cell(p.factors[f]));
  for (const Metric m : csv_times) {
    const auto* s = std::get_if<core::Summary>(&p.metrics[m]);
    for (double core::Summary::*part : {&core::Summary::median, &core::Summary::ci95_low, &core::Summary::ci95_high}) {
      cells.push_back(s ? csv_cell(s->*part) : "");
    }
    cells.push_back(s ? fmt::format("{}", s->n) : "");
  }
  for (const Metric m : csv_metrics) cells.push_back(csv_cell(p.metrics[m]));
  return fmt::format("{}\n", fmt::join(cells, ","));
}

}  // namespace gradmeter::report
