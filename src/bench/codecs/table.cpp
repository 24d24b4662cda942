// SPDX-License-Identifier: Apache-2.0
#include "bench/codecs/codecs.hpp"

#include <cmath>
#include <set>
#include <tuple>
#include <vector>

#include "core/format.hpp"
#include "core/name.hpp"
#include "core/result.hpp"
#include "core/units.hpp"
#include "report/cells.hpp"

namespace gradmeter::bench {

using namespace report;  // cells and columns
namespace {

using core::Factor;
using core::Metric;
using core::Point;

double bytes_of(const Point& p) { return static_cast<double>(integer(p.factors[Factor::size_bytes])); }

/// "4 parts · pays below: against the dense exchange in fp32 between 8 ranks" of "parts=4,ranks=8,baseline=fp32".
std::string exchange_words(const Point& p) {
  const auto& parameters = core::parse_name("exchange:" + text(p.factors[Factor::problem])).parameters;
  std::string out = parameters.contains("parts") ? fmt::format(" · {} parts", parameters.at("parts")) : "";
  if (!parameters.contains("baseline") || !parameters.contains("ranks")) return out;
  return fmt::format("{} · pays below: against the dense exchange in {} between {} ranks", out,
                     parameters.at("baseline"), parameters.at("ranks"));
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

/// The break-even rate in Gbit/s, the unit in which links are sold.
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
  c.add({"expected", "", right, 4}, expected_text);
  c.add({"memcpy", "GB/s", right, 3}, [](const Point& p) {
    return fmt::format("{}{}", gigabytes(p, p.metrics.number(Metric::memcpy_s)),
                       core::is_disturbed(p.metrics) ? "~" : " ");
  });
  for (const auto& [call, time, expendable] : {std::tuple{"encode", Metric::encode_s, 0U},
                                               {"decode", Metric::decode_s, 0U},
                                               {"decode-add", Metric::decode_add_s, 2U},
                                               {"reduce", Metric::reduce_encode_s, 1U}}) {
    c.add({call, "GB/s", right, expendable}, [m = time](const Point& p) { return gigabytes(p, p.metrics.number(m)); });
    c.add({"95 %", "GB/s", right, 6}, [m = time](const Point& p) { return rate_interval(p, p.metrics[m]); });
    c.add({"of copy", "%", right, 5}, [m = time](const Point& p) {
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
  const auto heading =
      distinguishing_headings(points, speed_heading, [](const Point& p) { return text(codec_label(p)); });
  for (const auto& [name, group] : by_name(points, heading)) {
    auto table = columns.table();
    for (const Point* p : group) table.add_row(columns.cells(*p), why_not(*p));
    out += fmt::format("{}\n{}\n", name, table.to_string(width));
  }
  return out;
}

std::string codec_legend(Legend legend) {
  if (legend == Legend::brief) {
    return fmt::format(
        "GB/s: of fp32, by one thread; pays below: on slower links the codec saves time\n"
        "~ disturbed: measure again\n{}",
        whole_legend_line);
  }
  return "wire       bits sent for each element, with scales and padding\n"
         "error      ‖decoded - x‖² / ‖x‖² of one encoding; expected: what theory says for these numbers; ≤: only a "
         "bound;\n"
         "           of file:PATH, error and wire are those of encoding each tensor by itself, as training does\n"
         "GB/s       fp32 bytes encoded, decoded, … in a second by one thread, median; 95 %: interval of the median\n"
         "of copy    share of the rate of memcpy, measured in turn\n"
         "encode     of dgc, powersgd and randomk: all work of one rank, with the state that they keep between calls "
         "(momentum,\n"
         "           residual, basis); dgc: at its final density, without the warm-up of train\n"
         "           of other codecs: without error feedback (ef), which adds a decoding and two passes over fp32\n"
         "reduce     --parts encoded gradients are summed, and the sum is encoded\n"
         "pays below the link speed below which the saved bytes are worth the arithmetic, among --ranks ranks, "
         "against\n"
         "           uncompressed communication in --baseline (default fp32): a codec that pays below 10 Gbit/s is a "
         "loss on\n"
         "           faster links; never: the codec saves no bits\n" +
         report::disturbed_legend(11, false);
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

using namespace report;  // cells and columns
namespace {

using core::Factor;
using core::Metric;
using core::Point;

std::string error_heading(const Point& p) {
  const core::Bytes size{static_cast<std::size_t>(integer(p.factors[Factor::size_bytes]))};
  return fmt::format("error of the {}: ‖sum - exact‖² / ‖exact‖² · {} gradients of {} · ranks are threads",
                     text(p.factors[Factor::op]), text(p.factors[Factor::distribution]), core::to_text(size));
}

std::string row_name(const Point& p) {
  return fmt::format("{}\n{}", text(p.factors[Factor::codec]), text(p.factors[Factor::algorithm]));
}

std::string remark(const std::vector<const Point*>& points) {
  std::set<std::string> why;
  for (const Point* p : points) {
    if (p->status != core::Status::ok) why.insert(why_not(*p));
  }
  return fmt::format("{}", fmt::join(why, "; "));
}

std::string table(const std::vector<const Point*>& points, std::size_t width) {
  std::set<std::int64_t> ranks;
  std::vector<Point> copies;
  for (const Point* p : points) ranks.insert(integer(p->factors[Factor::ranks])), copies.push_back(*p);
  std::vector<core::Column> columns{{"codec", "", core::Align::left}, {"exchange", "", core::Align::left}};
  for (const auto p : ranks) columns.push_back({fmt::format("P={}", p), "", core::Align::right});
  core::Table out(columns);
  for (const auto& [name, row] : by_name(copies, row_name)) {
    std::vector<std::string> cells{text(codec_label(*row.front())), text(row.front()->factors[Factor::algorithm])};
    cells.resize(columns.size(), "-");
    for (const Point* p : row) {
      const auto column = std::distance(ranks.begin(), ranks.find(integer(p->factors[Factor::ranks])));
      cells[2 + static_cast<std::size_t>(column)] = error_text(p->metrics.number(Metric::error));
    }
    out.add_row(std::move(cells), remark(row));
  }
  return out.to_string(width);
}

}  // namespace

std::string exchange_error_tables(std::span<const Point> points, std::size_t width) {
  const auto heading = distinguishing_headings(points, error_heading, [](const Point& p) {
    return fmt::format("{} {}", row_name(p), text(p.factors[Factor::ranks]));
  });
  std::string out;
  for (const auto& [name, group] : separate_runs(points, heading))
    out += fmt::format("{}\n{}\n", name, table(group, width));
  return out;
}

}  // namespace gradmeter::bench
