#include "report/tables.hpp"

#include <cmath>

#include "core/disturbance.hpp"
#include "core/format.hpp"
#include "core/name.hpp"
#include "core/units.hpp"
#include "report/cells.hpp"

namespace gradmeter::report {
namespace {

using core::Factor;
using core::Metric;
using core::Point;

double bytes_of(const Point& p) { return static_cast<double>(integer(p.factors[Factor::size_bytes])); }

/// "4 parts · pays below: against the dense exchange in fp32 between 8 ranks" of "parts=4,ranks=8,baseline=fp32".
std::string exchange_words(const Point& p) {
  const auto& said = core::parse_name("exchange:" + text(p.factors[Factor::problem])).parameters;
  std::string out = said.contains("parts") ? fmt::format(" · {} parts", said.at("parts")) : "";
  if (!said.contains("baseline") || !said.contains("ranks")) return out;
  return fmt::format("{} · pays below: against the dense exchange in {} between {} ranks", out, said.at("baseline"),
                     said.at("ranks"));
}

std::string speed_heading(const Point& p) {
  const auto& f = p.factors;
  return fmt::format("{} of fp32 · {} · {} thread{}",
                     core::to_text(core::Bytes{static_cast<std::size_t>(integer(f[Factor::size_bytes]))}),
                     text(f[Factor::distribution]), text(f[Factor::threads]), exchange_words(p));
}

std::string gigabytes(const Point& p, double seconds) { return digits(bytes_of(p) / seconds * 1e-9); }

/// "4.1–4.3": the interval of the time's median, as rates.
std::string rate_interval(const Point& p, const core::Value& time) {
  const auto* s = time.as<core::Summary>();
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

Columns<Point> columns_of_codecs() {
  using enum core::Align;
  Columns<Point> c;
  c.add({"codec", "", left}, [](const Point& p) { return text(codec_label(p)); });
  c.add({"wire", "bits", right}, [](const Point& p) { return digits(p.metrics.number(Metric::wire_bits)); });
  c.add({"error", "", right}, [](const Point& p) { return error_text(p.metrics.number(Metric::error)); });
  c.add({"expected", "", right, 2}, expected_text);
  c.add({"memcpy", "GB/s", right, 1}, [](const Point& p) {
    return fmt::format("{}{}", gigabytes(p, p.metrics.number(Metric::memcpy_s)),
                       core::is_disturbed(p.metrics) ? "~" : " ");
  });
  for (const auto& [call, time] : {std::pair{"encode", Metric::encode_s},
                                   {"decode", Metric::decode_s},
                                   {"decode-add", Metric::decode_add_s},
                                   {"reduce", Metric::reduce_encode_s}}) {
    c.add({call, "GB/s", right}, [m = time](const Point& p) { return gigabytes(p, p.metrics.number(m)); });
    c.add({"95 %", "GB/s", right, 4}, [m = time](const Point& p) { return rate_interval(p, p.metrics[m]); });
    c.add({"of copy", "%", right, 3}, [m = time](const Point& p) {
      const double seconds = p.metrics.number(m);
      return std::isfinite(seconds) ? fmt::format("{:.0f}", 100 * p.metrics.number(Metric::memcpy_s) / seconds) : "-";
    });
  }
  c.add({"pays below", "Gbit/s", right}, link_text);
  return c;
}

}  // namespace

std::string codec_tables(std::span<const Point> points, std::size_t width) {
  const auto columns = columns_of_codecs();
  std::string out;
  for (const auto& [name, of] : by_name(points, speed_heading)) {
    auto table = columns.table();
    for (const Point* p : of) table.add_row(columns.cells(*p), why_not(*p));
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
         "pays below the link on which saved bytes are worth the arithmetic, against the dense exchange in --baseline "
         "(fp32\n"
         "           unless given) between --ranks ranks: a codec that pays below 10 Gbit/s is a loss on faster links; "
         "never:\n"
         "           it saves no bits over that exchange\n"
         "~          over 5 % of the machine was with other processes or the hypervisor meanwhile: measure again\n";
}

const CsvColumns& codec_csv() {
  using enum Metric;
  static const CsvColumns columns = [] {
    CsvColumns c;
    c.add({Factor::codec, Factor::algorithm, Factor::ranks, Factor::size_bytes, Factor::dtype, Factor::distribution,
           Factor::threads, Factor::transport, Factor::problem});
    for (const Metric time : {memcpy_s, add_s, encode_s, decode_s, decode_add_s, reduce_encode_s}) {
      const std::string name(core::name(time));
      c.statistics(time, {"median", "ci95_low", "ci95_high"});
      c.samples(time, name.substr(0, name.size() - 1) + "samples");  // "encode_s", "encode_samples"
    }
    c.add({wire_bits, error, error_expected, error_bound, crossover_bytes_per_s, noise_steal, noise_run_delay});
    return c;
  }();
  return columns;
}

}  // namespace gradmeter::report
