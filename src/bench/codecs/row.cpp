#include "bench/codecs/row.hpp"

#include <cmath>

#include "bench/engine/sweep.hpp"
#include "compression/crossover.hpp"
#include "core/format.hpp"

namespace gradmeter::bench {
namespace {

using core::Metric;
using core::Point;

/// fp32 bytes in a second; 0: not measured.
double rate(const CodecFindings& f, CodecCall call) {
  const double seconds = f.times[static_cast<std::size_t>(call)].median;
  return seconds > 0 ? static_cast<double>(f.point.size_bytes) / seconds : 0;
}

double relative(double squared_error, double squared_norm) {
  return squared_norm > 0 ? squared_error / squared_norm : squared_error > 0 ? INFINITY : 0;
}

double bits_of(const CodecFindings& f) {
  return 8 * static_cast<double>(f.wire_bytes) / static_cast<double>(f.point.elements());
}

/// Is the exchange scatter-reduce and all-gather? As the row says, or as its name asks.
bool travels_in_chunks(const compression::CodecChoice& c) {
  const auto asked = c.parsed.parameters.find("exchange");
  return c.info->exchange == compression::Exchange::schedule ||
         (asked != c.parsed.parameters.end() && asked->second == "sra");
}

}  // namespace

core::Metric metric_of(CodecCall call) {
  constexpr std::array metrics{Metric::memcpy_s, Metric::add_s,        Metric::encode_s,
                               Metric::decode_s, Metric::decode_add_s, Metric::reduce_encode_s};
  static_assert(metrics.size() == codec_call_count);
  return metrics.at(static_cast<std::size_t>(call));
}

void fill_codec_check(const CodecFindings& f, Point& row) {
  auto& m = row.metrics;
  const CodecError& e = f.error;
  m[Metric::wire_bits] = bits_of(f);
  m[Metric::error] = relative(e.squared_error, e.squared_norm);
  const auto& codec = f.codec;
  const std::size_t declared = codec.wire_bytes(f.point.elements());
  if (codec.variable() ? f.wire_bytes > declared : f.wire_bytes != declared) {
    return refuse(row, core::Status::wrong,
                  fmt::format("took {} bytes of wire where {} were declared", f.wire_bytes, declared));
  }
  if (!e.fault.empty()) return refuse(row, core::Status::wrong, e.fault);
  if (!e.expected) return;
  const double expected = relative(e.expected->mean, e.squared_norm);
  m[e.expected->is_bound ? Metric::error_bound : Metric::error_expected] = expected;
  if (compression::agrees(*e.expected, e.squared_error, e.draws)) return;
  refuse(row, core::Status::wrong,
         fmt::format("error {:.3g} where {}{:.3g} is expected", relative(e.squared_error, e.squared_norm),
                     e.expected->is_bound ? "at most " : "", expected));
}

void fill_codec_times(const CodecFindings& f, const CodecFactors& factors, Point& row) {
  for (std::size_t i = 0; i < codec_call_count; ++i) {
    if (f.times[i].n > 0) row.metrics[metric_of(static_cast<CodecCall>(i))] = f.times[i];
  }
  row.raw_times_s.assign(f.encode_times.begin(), f.encode_times.end());
  fill_noise(f.noise, row);
  if (!travels_in_chunks(*f.point.codec)) return;  // the formula is of another exchange
  const core::CodecRates rates{.encode = rate(f, CodecCall::encode),
                               .decode = rate(f, CodecCall::decode),
                               .add = rate(f, CodecCall::decode_add)};
  row.metrics[Metric::crossover_bytes_per_s] =
      compression::crossover_link(rates, factors.ranks, bits_of(f), wire_bits(factors.baseline)).value;
}

}  // namespace gradmeter::bench
