// SPDX-License-Identifier: Apache-2.0
#include "bench/infer/measure.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <optional>
#include <tuple>

#include "bench/engine/rounds.hpp"
#include "bench/engine/sweep.hpp"
#include "core/random.hpp"
#include "kernels/call_check.hpp"
#include "runtime/clock.hpp"
#include "runtime/communicator.hpp"

namespace gradmeter::bench {
namespace {

/// Sums over a rank's samples.
struct Comparison {
  double labels = 0, samples = 0, right = 0;  ///< right: number of labels that are right in the precision
  /// The loss of a sample is the share of its labels that only fp32 has right, minus the share that only the precision
  /// has right.
  double lost = 0, lost_squares = 0;
  double error_square = 0, reference_square = 0;

  void add(std::span<const float> logits, std::span<const float> reference, std::span<const std::int32_t> labels_of) {
    const std::size_t classes = logits.size() / labels_of.size();
    int difference = 0;
    for (std::size_t i = 0; i < labels_of.size(); ++i) {
      const bool is_right = is_best(logits.subspan(i * classes, classes), labels_of[i]);
      right += is_right;
      difference += static_cast<int>(is_best(reference.subspan(i * classes, classes), labels_of[i])) - is_right;
    }
    const double share = difference / static_cast<double>(labels_of.size());
    labels += static_cast<double>(labels_of.size()), samples += 1;
    lost += share, lost_squares += share * share;
    for (std::size_t i = 0; i < logits.size(); ++i) {
      const double r = reference[i], e = logits[i] - r;
      error_square += e * e, reference_square += r * r;
    }
  }

  void sum_over(const runtime::Communicator& c) {
    std::array sums{labels, samples, right, lost, lost_squares, error_square, reference_square};
    c.sum(sums);
    std::tie(labels, samples, right, lost, lost_squares, error_square, reference_square) = std::tuple_cat(sums);
  }

 private:
  static bool is_best(std::span<const float> logits, std::int32_t label) {
    return std::ranges::max_element(logits) - logits.begin() == label;
  }
};

/// Compares the logits in a precision with those of training's forward pass, for one piece of the validation set at a
/// time.
class PieceComparison {
 public:
  PieceComparison(TrainedModel& m, const runtime::ConstBuffer& weights, kernels::Precision p, const model::Dataset& set,
                  runtime::Device& device)
      : model_(m), weights_(weights), precision_(p), set_(set), queue_(device.make_queue()) {}

  void compare(std::size_t first, std::size_t n, Comparison& sums) {
    const std::size_t labels_each = set_.labels();
    if (n != indices_.size()) {
      inference_.emplace(*model_.network, weights_, n, precision_, model_.ranges, *queue_);
      device_inputs_ = queue_->device().allocate(core::Element::f32, n * set_.features());
    }
    indices_.resize(n), inputs_.resize(n * set_.features()), labels_.resize(n * labels_each);
    std::iota(indices_.begin(), indices_.end(), first);
    model::gather(set_, indices_, inputs_, labels_);
    queue_->copy("upload", inputs_, device_inputs_.buffer);
    const runtime::ConstBuffer found = inference_->run(*queue_, device_inputs_.buffer);
    logits_.resize(found.count());
    queue_->copy("download", found, logits_);
    queue_->synchronise();
    const std::span<const float> logits = logits_;
    const auto trained = model_.network->layer_outputs(host_queue_, model_.buffers(), {inputs_, labels_, labels_each});
    const auto reference = trained.back().values<float>();
    const std::size_t outputs = logits.size() / n;
    for (std::size_t k = 0; k < n; ++k)
      sums.add(logits.subspan(k * outputs, outputs), reference.subspan(k * outputs, outputs),
               std::span(labels_).subspan(k * labels_each, labels_each));
  }

 private:
  TrainedModel& model_;
  const runtime::ConstBuffer weights_;
  kernels::Precision precision_;
  const model::Dataset& set_;
  std::unique_ptr<runtime::Queue> queue_;
  runtime::HostQueue host_queue_;
  runtime::OwnedBuffer device_inputs_;
  std::optional<model::Inference> inference_;  ///< for pieces with as many samples as the last one
  std::vector<std::uint64_t> indices_;
  std::vector<float> inputs_, logits_;
  std::vector<std::int32_t> labels_;
};

}  // namespace

PairedMean paired_mean(double n, double sum, double sum_of_squares) {
  constexpr double normal_975 = 1.959964;
  // m: n and half a pair in each of the four outcomes
  const double m = n + 2, mean = sum / m, variance = (sum_of_squares + 1) / m - mean * mean;
  const double half = normal_975 * std::sqrt(variance / m);
  return {.value = sum / n, .low = mean - half, .high = mean + half};
}

namespace {

/// The error that logits may have, relative to their norm: several times that of a product of Gaussian numbers (0.015
/// with 8-bit integers, 0.0023 with bf16), since the errors of layers add up. In other precisions an error of 1, at
/// which nothing is left of the logits.
double most_error(kernels::Precision p) {
  switch (p) {
    case kernels::Precision::fp32:
      return 1e-3;
    case kernels::Precision::bf16:
      return 0.1;
    case kernels::Precision::int8:
      return 0.25;
    default:
      return 1;
  }
}

}  // namespace

std::string accuracy_fault(kernels::Precision p, const PrecisionAccuracy& a) {
  if (!a.fault.empty()) return a.fault;
  if (a.error < most_error(p)) return {};
  return fmt::format("the logits differ from those of training's forward pass by {:.3g} of their norm", a.error);
}

std::string logits_fault(kernels::Precision p, std::span<const float> logits, std::span<const float> reference) {
  double error_square = 0, reference_square = 0;
  for (std::size_t i = 0; i < reference.size(); ++i) {
    const double r = reference[i], e = logits[i] - r;
    error_square += e * e, reference_square += r * r;
  }
  const double error = std::sqrt(error_square / reference_square);
  if (error < most_error(p)) return {};
  if (std::isnan(error)) return "the logits of a timed pass are not all numbers";
  return fmt::format("the logits of a timed pass differ from those of its samples by {:.3g} of their norm", error);
}

PrecisionAccuracy measure_accuracy(Session& session, const runtime::Communicator& c, TrainedModel& m,
                                   const runtime::ConstBuffer& weights, kernels::Precision precision,
                                   const model::Dataset& set) {
  const auto ranks = static_cast<std::size_t>(c.size()), rank = static_cast<std::size_t>(c.rank());
  Comparison sums;
  PieceComparison pieces(m, weights, precision, set, session.device());
  const kernels::CallCheck calls(core::unpredictable_seed());
  const auto why = refused_anywhere(c, refusal_of([&] {
                                      const std::size_t last = set.size() * (rank + 1) / ranks;
                                      for (std::size_t i = set.size() * rank / ranks; i < last; i += validation_piece) {
                                        pieces.compare(i, std::min(validation_piece, last - i), sums);
                                        session.activity().beat();
                                      }
                                    }));
  if (!why.empty()) throw core::UsageError(why);
  sums.sum_over(c);
  return {.accuracy = sums.right / sums.labels,
          .lost = paired_mean(sums.samples, sums.lost, sums.lost_squares),
          .error = std::sqrt(sums.error_square / sums.reference_square),
          .fault = runtime::first_report(c, calls.fault()).text};
}

namespace {

/// A fifth of the time at most goes into warm-up. After `settling`, nothing of other points is left in the caches.
RoundOptions latency_rounds(core::StoppingRule rule) {
  const double warmup = std::clamp(0.2 * rule.budget.value, 0.0, 0.5);
  rule.budget = core::Seconds{rule.budget.value - warmup};
  return {.rule = rule,
          .warmup_min = 3,
          .warmup_budget = core::Seconds{warmup},
          .discarded = 1,
          .settling = core::Seconds{0.005},
          .block = core::Seconds{0.03},
          .most_block_iterations = 250};
}

}  // namespace

LatencyBenchmark::LatencyBenchmark(Session& s, const runtime::Communicator& c, TimedPass pass,
                                   std::function<TimedPass()> build_pass, Rebuilder rebuilder,
                                   const core::StoppingRule& rule)
    : session_(s),
      c_(c),
      pass_(std::move(pass)),
      build_pass_(std::move(build_pass)),
      rebuilder_(rebuilder),
      judged_passes_(core::unpredictable_seed(), 0),
      rounds_(s, c, latency_rounds(rule), [this](std::size_t n, bool keep) { return run_block(n, keep); }) {}

void LatencyBenchmark::build_anew() {
  const auto why = refused_anywhere(c_, refusal_of([this] {
                                      rebuilder_.build([this] {
                                        pass_ = {};
                                        pass_ = build_pass_();
                                      });
                                    }));
  if (!why.empty()) throw core::BackendError("inference", "anew", why);
}

std::string LatencyBenchmark::check() {
  constexpr double most = 0.1;
  const double now = runtime::host_clock();
  if (checks_s_ > most * (now - begin_)) return {};
  std::string fault = pass_.check();
  checks_s_ += runtime::host_clock() - now;
  return fault;
}

void LatencyBenchmark::warm_up() {
  begin_ = runtime::host_clock();
  rounds_.warm_up();
  rebuilder_.start();
}

std::vector<double> LatencyBenchmark::run_block(std::size_t passes, bool keep) {
  const runtime::Computing note(session_.activity(), "forward pass");
  std::vector<double> mine(passes);
  const std::size_t judged = keep ? judged_passes_.below(blocks_++, passes) : passes;
  const auto note_fault = [this](std::string fault) {
    if (fault_.empty()) fault_ = std::move(fault);
  };
  c_.barrier();
  for (std::size_t i = 0; i < passes; ++i) {
    if (i == judged) pass_.renew();
    const double begin = runtime::host_clock();
    pass_.run();
    mine[i] = runtime::host_clock() - begin;
    if (i == judged) note_fault(pass_.judge());
  }
  if (keep) {
    note_fault(check());
    times_.add(mine);
  }
  c_.max(mine);
  return mine;
}

bool LatencyBenchmark::turn() {
  const bool on_host = session_.on_host();
  if (!rounds_.times().empty() && on_host && rebuilder_.has_time(c_)) build_anew();
  noise_.begin();
  const core::Stop stop = rounds_.round();
  noise_.end();
  return stop != core::Stop::none;
}

LatencyFindings LatencyBenchmark::findings() const {
  LatencyFindings f{.fault = runtime::first_report(c_, fault_).text,
                    .stop = rounds_.stop(),
                    .warmup_s = rounds_.warmup_s(),
                    .warmup_samples = rounds_.warmup_iterations(),
                    .noise = noise_.over(c_)};
  f.times = slowest_blocks(c_, times_, f.medians);
  return f;
}

using core::Metric;

void fill_accuracy(const InferPoint& p, const PrecisionAccuracy& a, core::Point& row) {
  auto& m = row.metrics;
  m[Metric::error] = a.error;
  if (auto why = accuracy_fault(p.precision, a); !why.empty()) return refuse(row, core::Status::wrong, std::move(why));
  m[Metric::accuracy] = a.accuracy;
  m[Metric::accuracy_lost] = a.lost.value;
  m[Metric::accuracy_lost_ci95_low] = a.lost.low;
  m[Metric::accuracy_lost_ci95_high] = a.lost.high;
  if (!p.is_timed()) m[Metric::emulated] = true;
}

void fill_latency(const InferPoint& p, const LatencyFindings& f, int ranks,
                  const std::function<std::string(int rank)>& host_of, core::Point& row) {
  if (!f.fault.empty()) return refuse(row, core::Status::wrong, f.fault);
  auto& m = row.metrics;
  row.raw_times_s.assign(f.times.samples().begin(), f.times.samples().end());
  core::Summary time = core::summarise(f.times);
  time.stop = f.stop;
  m[Metric::time_s] = time;
  m[Metric::samples_per_s] = static_cast<double>(p.batch) * ranks / time.median;
  m[Metric::warmup_s] = f.warmup_s;
  m[Metric::warmup_samples] = static_cast<std::int64_t>(f.warmup_samples);
  fill_noise(f.noise, row);
  fill_medians(f.medians, host_of, m);
}

void fill_speedup(const core::Point& fp32, core::Point& row) {
  row.metrics[Metric::speedup] = fp32.metrics.number(Metric::time_s) / row.metrics.number(Metric::time_s);
}

}  // namespace gradmeter::bench
