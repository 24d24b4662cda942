// SPDX-License-Identifier: Apache-2.0
#include "bench/codecs/codecs.hpp"

#include <algorithm>
#include <bit>
#include <set>

#include "bench/codecs/measure.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "core/units.hpp"

namespace gradmeter::bench {
namespace {

using core::Factor;

core::Factors factors_of(const CodecFactors& f, const CodecPoint& p) {
  core::Factors out;
  out[Factor::codec] = p.codec->name;
  out[Factor::size_bytes] = static_cast<std::int64_t>(p.size_bytes);
  out[Factor::distribution] = p.distribution->name();
  out[Factor::dtype] = std::string("fp32");
  out[Factor::threads] = std::int64_t{1};
  out[Factor::device] = f.device;
  out[Factor::problem] = fmt::format("parts={},ranks={},baseline={}", f.parts, f.ranks, name(f.baseline));
  return out;
}

void check_size(std::size_t bytes) {
  if (bytes > 0 && bytes % sizeof(float) == 0) return;
  throw core::UsageError(fmt::format("--size {}: must be a positive multiple of 4, the bytes of an fp32", bytes));
}

/// The reason why the codec cannot encode the point's gradient; empty: it can.
std::string refusal(const CodecPoint& p, int ranks) {
  try {
    if (!p.codec->codec) return codec_steps_refusal(*p.codec, p.elements(), static_cast<std::size_t>(ranks));
    p.codec->codec->wire_bytes(p.elements());  // throws where indices are too short for so many elements
    return {};
  } catch (const core::UsageError& e) {
    return e.what();
  }
}

std::size_t size_of(const CodecFactors& f, const compression::GradientSource& source, std::size_t size) {
  const auto* recorded = source.recorded();
  return recorded && f.takes_recorded_size ? recorded->values.size() * sizeof(float) : size;
}

}  // namespace

std::string_view name(WireBaseline b) { return b == WireBaseline::bf16 ? "bf16" : "fp32"; }
double wire_bits(WireBaseline b) { return b == WireBaseline::bf16 ? 16 : 32; }

std::vector<CodecPoint> plan_codecs(const CodecFactors& f) {
  std::vector<CodecPoint> out;
  std::set<std::string> seen;
  for (const std::size_t size : f.sizes) {
    check_size(size);
    for (const auto& distribution : f.distributions) {
      for (const auto& codec : f.codecs) {
        CodecPoint p{codec, distribution, size_of(f, *distribution, size), {}, {}};
        p.factors = factors_of(f, p);
        p.unsupported = refusal(p, f.ranks);
        if (seen.insert(p.factors.key()).second) out.push_back(std::move(p));
      }
    }
  }
  return out;
}

std::vector<std::size_t> usual_codec_sizes(std::size_t last_cache_bytes) {
  constexpr std::size_t cached = std::size_t{256} << 10, beyond = std::size_t{64} << 20, most = std::size_t{512} << 20;
  return {cached, std::clamp(std::bit_ceil(2 * last_cache_bytes), beyond, most)};
}

std::size_t codec_memory(const CodecPoint& p, std::size_t parts) {
  // Beside input and output, a sum of encoded gradients needs a gradient in fp32; a codec with steps keeps up to two
  // gradients as its state and computes a third.
  const std::size_t wire = p.codec->codec ? p.codec->codec->wire_bytes(p.elements()) : p.size_bytes;
  return (p.codec->codec ? 3 : 5) * p.size_bytes + (parts + 1) * wire;
}

namespace {

constexpr core::Seconds usual_codec_budget{3};

class CodecSweep final : public Experiment {
 public:
  CodecSweep(const CodecOptions& o, const RoundPeers& peers)
      : options_(o), peers_(peers), points_(plan_codecs(o.factors)) {}

  std::vector<SweepPoint*> plan(const SweepRows& rows) override {
    for (const CodecPoint& p : points_) {
      auto& row = rows_.emplace_back(rows.point("codecs", p.factors, rows_.size())).row;
      row.metrics[core::Metric::implementation] = p.codec->label;
      const std::string why = p.unsupported.empty() ? device_calls_refusal(*p.codec, device()) : p.unsupported;
      refuse_alone(why, why.empty() ? codec_memory(p, options_.factors.parts) : 0, options_.memory_bytes, row);
    }
    return pointers_to(rows_);
  }

  void measure(std::size_t group, SweepRows& rows) override {
    const CodecPoint& p = points_[group];
    core::Point& row = rows_[group].row;
    rows.progress(
        fmt::format("{} {} {}", p.codec->label, core::to_text(core::Bytes{p.size_bytes}), p.distribution->name()));
    draw(p);
    CodecBenchmark benchmark(p, options_.factors, gradient_, options_.seed, device(), options_.gauge);
    if (benchmark.check(row)) benchmark.measure(peers_, round_options(rows.time_for_point(usual_codec_budget)), row);
  }

 private:
  /// Draws the point's gradient, unless the last point had the same; points with one gradient stand together.
  void draw(const CodecPoint& p) {
    if (drawn_source_ == p.distribution.get() && gradient_.size() == p.elements()) return;
    gradient_.resize(p.elements());
    p.distribution->draw(options_.seed, 0, gradient_);
    drawn_source_ = p.distribution.get();
  }

  runtime::Device& device() const { return options_.device ? *options_.device : runtime::host_device(); }
  RoundOptions round_options(core::Seconds point_budget) const {
    const double seconds_per_call = point_budget.value / codec_call_count;
    RoundOptions o{.rule = options_.rule, .warmup_min = 3, .discarded = 1, .block = core::Seconds{0.03}};
    // A fifth of the time at most goes into warm-up.
    o.warmup_budget = core::Seconds{std::clamp(0.2 * seconds_per_call, 0.001, 1.0)};
    o.rule.budget = core::Seconds{std::max(0.0, seconds_per_call - o.warmup_budget.value)};
    return o;
  }

  const CodecOptions& options_;
  const RoundPeers& peers_;
  std::vector<CodecPoint> points_;
  std::vector<SweepPoint> rows_;  ///< the rows of `points_`, in the same order
  std::vector<float> gradient_;
  const compression::GradientSource* drawn_source_ = nullptr;
};

}  // namespace

std::size_t run_codecs(const CodecOptions& o, const FinishedRows& finished, const runtime::SignalWatch& signals,
                       const RowListener& listener) {
  const auto alone = no_peers(signals);
  CodecSweep sweep(o, alone);
  return run_sweep(sweep, alone, finished, listener, o.time_budget);
}

}  // namespace gradmeter::bench
