#include "bench/codecs/codecs.hpp"

#include <algorithm>

#include "bench/codecs/benchmark.hpp"
#include "core/format.hpp"

namespace gradmeter::bench {
namespace {

constexpr core::Seconds usual_point_budget{3};

class CodecSweep final : public Experiment {
 public:
  CodecSweep(const CodecOptions& o, const RoundPeers& peers)
      : options_(o), peers_(peers), points_(plan_codecs(o.factors)) {}

  std::vector<SweepPoint*> plan(const SweepRows& rows) override {
    for (const CodecPoint& p : points_) {
      auto& row = planned_.emplace_back(rows.point("codecs", p.factors, planned_.size())).row;
      row.metrics[core::Metric::implementation] = p.codec->label;
      const std::string why = p.unsupported.empty() ? device_calls_refusal(*p.codec, device()) : p.unsupported;
      refuse_alone(why, codec_memory(p, options_.factors.parts), options_.memory_bytes, row);
    }
    return pointers_to(planned_);
  }

  void measure(std::size_t group, SweepRows& rows) override {
    const CodecPoint& p = points_[group];
    core::Point& row = planned_[group].row;
    rows.progress(
        fmt::format("{} {} {}", p.codec->label, core::to_text(core::Bytes{p.size_bytes}), p.distribution->name()));
    draw(p);
    CodecBenchmark benchmark(p, options_.factors, gradient_, options_.seed, device(), options_.gauge);
    if (benchmark.check(row)) benchmark.measure(peers_, round_options(rows.share(usual_point_budget)), row);
  }

 private:
  /// Points of one gradient stand together.
  void draw(const CodecPoint& p) {
    if (drawn_ == p.distribution.get() && gradient_.size() == p.elements()) return;
    gradient_.resize(p.elements());
    p.distribution->draw(options_.seed, 0, gradient_);
    drawn_ = p.distribution.get();
  }

  runtime::Device& device() const { return options_.device ? *options_.device : runtime::host_device(); }
  RoundOptions round_options(core::Seconds point) const {
    const double each = point.value / codec_call_count;
    RoundOptions o{.rule = options_.rule, .warmup_min = 3, .discarded = 1, .block = core::Seconds{0.03}};
    // A fifth of the time at most goes into warm-up.
    o.warmup_budget = core::Seconds{std::clamp(0.2 * each, 0.001, 1.0)};
    o.rule.budget = core::Seconds{std::max(0.0, each - o.warmup_budget.value)};
    return o;
  }

  const CodecOptions& options_;
  const RoundPeers& peers_;
  std::vector<CodecPoint> points_;
  std::vector<SweepPoint> planned_;  ///< as many
  std::vector<float> gradient_;
  const compression::TestGradient* drawn_ = nullptr;
};

}  // namespace

std::size_t run_codecs(const CodecOptions& o, const FinishedRows& finished, const runtime::SignalWatch& signals,
                       const RowListener& l) {
  const auto alone = no_peers(signals);
  CodecSweep sweep(o, alone);
  return run_sweep(sweep, alone, finished, l, o.time_budget);
}

}  // namespace gradmeter::bench
