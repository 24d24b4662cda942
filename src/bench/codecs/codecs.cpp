#include "bench/codecs/codecs.hpp"

#include <algorithm>

#include "bench/codecs/benchmark.hpp"
#include "core/format.hpp"
#include "runtime/time/clock.hpp"

namespace gradmeter::bench {
namespace {

using core::Point;
using core::Status;

constexpr double usual_point_budget = 3;

class Sweep {
 public:
  Sweep(const CodecOptions& o, const std::map<std::string, Point>& finished, const runtime::SignalWatch& signals,
        const CodecListener& l)
      : options_(o), finished_(finished), peers_(no_peers(signals)), listener_(l), points_(plan_codecs(o.factors)) {}

  std::size_t run() {
    begin_ = runtime::host_clock();
    for (done_ = 0; done_ < points_.size(); ++done_) {
      peers_.stop_if_interrupted();
      const CodecPoint& p = points_[done_];
      const auto kept = finished_.find(p.factors.key());
      if (kept != finished_.end()) {
        if (listener_.kept) listener_.kept(kept->second);
        continue;
      }
      Point row{.experiment = "codecs", .reason = {}, .factors = p.factors, .metrics = {}, .raw_times_s = {}};
      row.metrics[core::Metric::implementation] = p.codec->label;
      measure(p, row);
      wrong_ += row.status == Status::wrong;
      listener_.measured(row);
    }
    return wrong_;
  }

 private:
  void measure(const CodecPoint& p, Point& row) {
    if (!p.unsupported.empty()) return refuse(row, Status::unsupported, p.unsupported);
    const std::size_t needs = codec_memory(p, options_.factors.parts);
    if (options_.memory_bytes > 0 && needs > options_.memory_bytes) {
      return refuse(row, Status::skipped, short_of_memory(needs, options_.memory_bytes));
    }
    if (listener_.progress) {
      listener_.progress(
          fmt::format("{} {} {}", p.codec->label, core::to_text(core::Bytes{p.size_bytes}), p.distribution->name()));
    }
    draw(p);
    CodecBenchmark benchmark(p, options_.factors, gradient_, options_.seed);
    if (benchmark.check(row)) benchmark.measure(peers_, round_options(), row);
  }

  static void refuse(Point& row, Status status, std::string why) {
    row.status = status;
    row.reason = std::move(why);
  }

  /// Points of one gradient stand together.
  void draw(const CodecPoint& p) {
    if (drawn_ == p.distribution.get() && gradient_.size() == p.elements()) return;
    gradient_.resize(p.elements());
    p.distribution->draw(options_.seed, 0, gradient_);
    drawn_ = p.distribution.get();
  }

  RoundOptions round_options() const {
    double budget = usual_point_budget;
    if (options_.time_budget) {
      const double rest = options_.time_budget->value - (runtime::host_clock() - begin_);
      budget = std::max(rest, 0.0) / static_cast<double>(points_.size() - done_);
    }
    const double each = budget / codec_call_count;
    RoundOptions o{.rule = options_.rule, .warmup_min = 3, .discarded = 1, .block = core::Seconds{0.03}};
    // A fifth of the time at most goes into warm-up.
    o.warmup_budget = core::Seconds{std::clamp(0.2 * each, 0.001, 1.0)};
    o.rule.budget = core::Seconds{std::max(0.0, each - o.warmup_budget.value)};
    return o;
  }

  const CodecOptions& options_;
  const std::map<std::string, Point>& finished_;
  RoundPeers peers_;
  const CodecListener& listener_;
  std::vector<CodecPoint> points_;
  std::vector<float> gradient_;
  const compression::TestGradient* drawn_ = nullptr;
  std::size_t done_ = 0, wrong_ = 0;
  double begin_ = 0;
};

}  // namespace

std::size_t run_codecs(const CodecOptions& o, const std::map<std::string, Point>& finished,
                       const runtime::SignalWatch& signals, const CodecListener& l) {
  return Sweep(o, finished, signals, l).run();
}

}  // namespace gradmeter::bench
