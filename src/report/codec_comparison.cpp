#include "report/tables.hpp"

#include <cmath>
#include <vector>

#include "core/format.hpp"
#include "report/cells.hpp"

namespace gradmeter::report {
namespace {

using core::Factor;
using core::Metric;
using core::Point;

/// Wholly faster, wholly slower, or neither, by the medians' intervals.
std::string verdict(const CodecPair& pair) {
  const auto* coded = pair.coded->metrics[Metric::time_s].as<core::Summary>();
  const auto* plain = pair.plain->metrics[Metric::time_s].as<core::Summary>();
  if (!coded || !plain) return "-";
  if (coded->ci95_high < plain->ci95_low) return "wins";
  return coded->ci95_low > plain->ci95_high ? "loses" : "even";
}

std::string percent_of_time(const Point& p, Metric part) {
  const double share = p.metrics.number(part) / p.metrics.number(Metric::time_s);
  return std::isfinite(share) ? fmt::format("{:.0f}", 100 * share) : "-";
}

std::string gigabytes(const Point& p, Metric m) { return digits(p.metrics.number(m) * 1e-9); }

double real(const core::Value& v) {
  const auto* i = v.as<std::int64_t>();
  return i ? static_cast<double>(*i) : std::nan("");
}

/// The call without a codec by the same formula: its bytes at the link's rate and nothing else [s].
double plain_by_the_link(const Point& p) {
  const double ranks = real(p.factors[Factor::ranks]);
  return 2 * (ranks - 1) / ranks * real(p.factors[Factor::size_bytes]) / p.metrics.number(Metric::link_bytes_per_s);
}

std::vector<std::string> row(const CodecPair& pair, const Labels& codecs) {
  const Point& p = *pair.coded;
  const double sent = p.metrics.number(Metric::bytes_sent_per_rank_max);
  const double link = p.metrics.number(Metric::link_bytes_per_s),
               needed = p.metrics.number(Metric::crossover_bytes_per_s);
  const bool known = std::isfinite(link) && std::isfinite(needed);
  return {text(p.factors[Factor::size_bytes]),
          exchange(p, codecs),
          is_true(p.factors[Factor::in_place]) ? "in" : "out",
          digits(p.metrics.number(Metric::time_s) * 1e6),
          std::isfinite(sent) ? fmt::format("{:.0f}", sent) : "-",
          percent_of_time(p, Metric::encode_s),
          percent_of_time(p, Metric::decode_s),
          digits(pair.gain().median),
          verdict(pair),
          digits(plain_by_the_link(p) / p.metrics.number(Metric::predicted_time_s)),
          gigabytes(p, Metric::crossover_bytes_per_s),
          gigabytes(p, Metric::link_bytes_per_s),
          known ? (link < needed ? "pays" : "does not") : "-"};
}

}  // namespace

std::string codec_comparison(std::span<const Point> points, std::size_t width) {
  using enum core::Align;
  std::vector<const Point*> all;
  for (const Point& p : points) all.push_back(&p);
  const auto found = codec_pairs(all);
  if (found.empty()) return {};
  const Labels codecs = short_labels(points, Factor::codec);
  core::Table table({{"size", "B", right},
                     {"exchange", "", left},
                     {"place", "", left},
                     {"time", "us", right},
                     {"sent", "B/rank", right, 3},
                     {"encode", "%", right, 2},
                     {"decode", "%", right, 2},
                     {"measured", "x none", right},
                     {"", "", left},
                     {"formula", "x none", right},
                     {"pays below", "GB/s", right},
                     {"link", "GB/s", right, 1},
                     {"so it", "", left}});
  for (const CodecPair& pair : found) table.add_row(row(pair, codecs));
  return fmt::format("codecs against none\n{}\n", table.to_string(width));
}

std::string codec_comparison_legend() {
  return "x none   time of the same call without a codec / time with it; wins, loses: the intervals do not meet\n"
         "encode   and decode: share of the time in the codec, on the rank that it takes longest\n"
         "formula  the same from speeds alone: bytes at the link's rate, with a codec then all its arithmetic; no "
         "latency,\n"
         "         nothing overlapped\n"
         "pays     below this link speed: 2(P-1)/P * (32-w)/32 * V, with 1/V = (1+1/P)/encode + ((P-1)/P)/add + "
         "1/decode;\n"
         "         link: what each rank sends while all send, and the codec's speed: measured in this run\n"
         "dgc      at the density that its warm-up in train ends at\n";
}

}  // namespace gradmeter::report
