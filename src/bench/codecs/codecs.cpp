#include "bench/codecs/codecs.hpp"

#include <algorithm>

#include "bench/codecs/benchmark.hpp"
#include "core/format.hpp"

namespace gradmeter::bench {
namespace {

using core::Point;
using core::Status;

constexpr core::Seconds usual_point_budget{3};

class Sweep {
 public:
  Sweep(const CodecOptions& o, const FinishedRows& finished, const runtime::SignalWatch& signals, const RowListener& l)
      : options_(o), rows_(finished, l, true), peers_(no_peers(signals)), points_(plan_codecs(o.factors)) {}

  std::size_t run() {
    const auto is_new = [this](const CodecPoint& p) { return !rows_.finished(p.factors); };
    rows_.start(static_cast<std::size_t>(std::ranges::count_if(points_, is_new)), options_.time_budget);
    for (const CodecPoint& p : points_) {
      peers_.stop_if_interrupted();
      if (const auto* row = rows_.finished(p.factors)) {
        rows_.show(*row);
        continue;
      }
      Point row{.experiment = "codecs", .reason = {}, .factors = p.factors, .metrics = {}, .raw_times_s = {}};
      row.metrics[core::Metric::implementation] = p.codec->label;
      measure(p, row);
      rows_.emit(row);
    }
    return rows_.wrong();
  }

 private:
  void measure(const CodecPoint& p, Point& row) {
    if (!p.unsupported.empty()) return refuse(row, Status::unsupported, p.unsupported);
    const std::size_t needs = codec_memory(p, options_.factors.parts);
    if (options_.memory_bytes > 0 && needs > options_.memory_bytes) {
      return refuse(row, Status::skipped, short_of_memory(needs, options_.memory_bytes, "where"));
    }
    rows_.progress(
        fmt::format("{} {} {}", p.codec->label, core::to_text(core::Bytes{p.size_bytes}), p.distribution->name()));
    draw(p);
    CodecBenchmark benchmark(p, options_.factors, gradient_, options_.seed);
    if (benchmark.check(row)) benchmark.measure(peers_, round_options(), row);
  }

  /// Points of one gradient stand together.
  void draw(const CodecPoint& p) {
    if (drawn_ == p.distribution.get() && gradient_.size() == p.elements()) return;
    gradient_.resize(p.elements());
    p.distribution->draw(options_.seed, 0, gradient_);
    drawn_ = p.distribution.get();
  }

  RoundOptions round_options() const {
    const double each = rows_.share(usual_point_budget).value / codec_call_count;
    RoundOptions o{.rule = options_.rule, .warmup_min = 3, .discarded = 1, .block = core::Seconds{0.03}};
    // A fifth of the time at most goes into warm-up.
    o.warmup_budget = core::Seconds{std::clamp(0.2 * each, 0.001, 1.0)};
    o.rule.budget = core::Seconds{std::max(0.0, each - o.warmup_budget.value)};
    return o;
  }

  const CodecOptions& options_;
  SweepRows rows_;
  RoundPeers peers_;
  std::vector<CodecPoint> points_;
  std::vector<float> gradient_;
  const compression::TestGradient* drawn_ = nullptr;
};

}  // namespace

std::size_t run_codecs(const CodecOptions& o, const FinishedRows& finished, const runtime::SignalWatch& signals,
                       const RowListener& l) {
  return Sweep(o, finished, signals, l).run();
}

}  // namespace gradmeter::bench
