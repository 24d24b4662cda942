#include "analysis/codec_links.hpp"

#include <algorithm>
#include <cmath>

#include "analysis/words.hpp"
#include "core/format.hpp"
#include "core/name.hpp"

namespace gradmeter::analysis {
namespace {

using core::Factor;
using core::Metric;
using core::Point;

/// "fp32" and 8 of the problem "parts=4,ranks=8,baseline=fp32".
struct DenseExchange {
  std::string precision, ranks;
  double bits = 32;  ///< of an element
};
DenseExchange dense_exchange(const Point& p) {
  auto said = core::parse_name("exchange:" + core::to_text(p.factors[Factor::problem])).parameters;
  return {said["baseline"], said["ranks"], said["baseline"] == "bf16" ? 16.0 : 32.0};
}

/// How far the times' intervals move the crossover, which is a rate made of all three.
Figure crossover_of(const Point& p) {
  const double middle = p.metrics.number(Metric::crossover_bytes_per_s);
  Figure out{middle, middle, middle};
  for (const Metric m : {Metric::encode_s, Metric::decode_add_s, Metric::decode_s}) {
    const auto* time = p.metrics[m].as<core::Summary>();
    if (!time || !std::isfinite(time->ci95_low)) return {.value = middle};
    out.low = std::min(out.low, middle * time->median / time->ci95_high);
    out.high = std::max(out.high, middle * time->median / time->ci95_low);
  }
  return out;
}

struct CodecGain {
  const Point* point;
  Figure faster;  ///< than the dense exchange
};

CodecGain gain_on(const Point& p, double link) {
  const double dense = dense_exchange(p).bits, wire = p.metrics.number(Metric::wire_bits);
  const auto at = [&](double crossover) {
    return crossover > 0 ? dense / (wire + (dense - wire) * link / crossover) : NAN;
  };
  const Figure crossover = crossover_of(p);
  return {&p, {at(crossover.value), at(crossover.low), at(crossover.high)}};
}

std::string times_text(const Figure& f) {
  if (!std::isfinite(f.low)) return fmt::format("× {:.2f} (no interval)", f.value);
  return fmt::format("× {:.2f} ({:.2f}–{:.2f})", f.value, f.low, f.high);
}

std::string link_text(core::BytesPerSecond link) { return fmt::format("{:.3g} Gbit/s", link.value * 8e-9); }

}  // namespace

std::optional<Finding> codecs_on_link(std::span<const Point> points, core::BytesPerSecond link) {
  const auto size = [](const Point& p) { return p.factors[Factor::size_bytes].get<std::int64_t>(); };
  const auto is_usable = [](const Point& p) {
    return p.experiment == "codecs" && p.status == core::Status::ok &&
           std::isfinite(p.metrics.number(Metric::crossover_bytes_per_s));
  };
  const Point* largest = nullptr;
  for (const Point& p : points)
    if (is_usable(p) && (!largest || size(p) > size(*largest))) largest = &p;
  if (!largest) return std::nullopt;
  Finding f{.kind = FindingKind::crossover, .experiment = "codecs", .over = {Factor::codec}};
  f.factors = largest->factors;
  f.factors[Factor::codec] = {};
  std::vector<CodecGain> gains;
  std::vector<core::Value> names;
  for (std::size_t i = 0; i < points.size(); ++i) {
    core::Factors others = points[i].factors;
    others[Factor::codec] = {};
    if (!is_usable(points[i]) || others.key() != f.factors.key()) continue;
    gains.push_back(gain_on(points[i], link.value));
    names.push_back(points[i].factors[Factor::codec]);
    f.rows.push_back({0, i});
    f.figures["speed_with_" + core::to_text(names.back())] = gains.back().faster;
  }
  // Those that save no bits come last.
  std::stable_sort(gains.begin(), gains.end(), [](const CodecGain& a, const CodecGain& b) {
    return std::isnan(b.faster.value) ? !std::isnan(a.faster.value) : a.faster.value > b.faster.value;
  });
  const auto name_of = [&](const CodecGain& g) {
    return in_words(Factor::codec, g.point->factors[Factor::codec], names);
  };
  const DenseExchange dense = dense_exchange(*largest);
  constexpr std::size_t most_named = 4;
  std::vector<std::string> said, paying;
  for (const CodecGain& g : gains) {
    if (g.faster.low > 1) paying.push_back(name_of(g));
    if (said.size() < most_named)
      said.push_back(std::isnan(g.faster.value) ? fmt::format("{} saves no bits", name_of(g))
                                                : fmt::format("{} with {}", times_text(g.faster), name_of(g)));
  }
  const CodecGain& best = gains.front();
  const bool is_first =
      gains.size() == 1 || std::isnan(gains[1].faster.value) || best.faster.low > gains[1].faster.high;
  const std::string answer =
      paying.empty() ? "none is shown to pay"
      : is_first     ? fmt::format("most is won with {}", name_of(best))
                     : fmt::format("no difference is shown between {} and {}", name_of(best), name_of(gains[1]));
  f.sentence = fmt::format(
      "On a link of {} the speed of an exchange of {} between {} ranks is, against the dense one in {}, {}: {}. "
      "Accuracy "
      "is not measured here.",
      link_text(link), in_words(Factor::size_bytes, largest->factors[Factor::size_bytes]), dense.ranks, dense.precision,
      fmt::join(said, ", "), answer);
  f.severity = best.faster.low > 1 ? 1 - 1 / best.faster.value : 0;
  if (!paying.empty()) {
    f.next = fmt::format("gradmeter scale --codec none,{} --learn 20000 --thread-ranks 2",
                         core::parse_name(core::to_text(best.point->factors[Factor::codec])).base);
  }
  return f;
}

}  // namespace gradmeter::analysis
