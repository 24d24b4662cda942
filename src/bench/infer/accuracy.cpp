#include "bench/infer/accuracy.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <optional>
#include <tuple>

#include "bench/engine/refusal.hpp"
#include "core/random.hpp"
#include "kernels/call_check.hpp"
#include "runtime/agreement.hpp"

namespace gradmeter::bench {
namespace {

/// Sums over a rank's samples.
struct Comparison {
  double labels = 0, samples = 0, right = 0;  ///< right: in the precision
  double lost = 0, lost_squares = 0;          ///< of a sample: share of its labels that only fp32 has right, less the
                                              ///< share that only the precision has
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
    std::array all{labels, samples, right, lost, lost_squares, error_square, reference_square};
    c.sum(all);
    std::tie(labels, samples, right, lost, lost_squares, error_square, reference_square) = std::tuple_cat(all);
  }

 private:
  static bool is_best(std::span<const float> logits, std::int32_t label) {
    return std::ranges::max_element(logits) - logits.begin() == label;
  }
};

/// The validation samples of a rank, piece by piece.
class PieceByPiece {
 public:
  PieceByPiece(TrainedModel& m, const runtime::ConstBuffer& weights, kernels::Precision p, const model::Dataset& set,
               runtime::Device& device)
      : m_(m), weights_(weights), precision_(p), set_(set), queue_(device.make_queue()) {}

  void compare(std::size_t first, std::size_t n, Comparison& sums) {
    const std::size_t labels_each = set_.labels();
    if (n != indices_.size()) {
      inference_.emplace(*m_.network, weights_,
                         model::InferenceOptions{.samples = n, .precision = precision_, .ranges = m_.ranges}, *queue_);
      on_device_ = queue_->device().allocate(core::Element::f32, n * set_.features());
    }
    indices_.resize(n), inputs_.resize(n * set_.features()), labels_.resize(n * labels_each);
    std::iota(indices_.begin(), indices_.end(), first);
    model::gather(set_, indices_, inputs_, labels_);
    queue_->copy("upload", inputs_, on_device_.buffer);
    const runtime::ConstBuffer found = inference_->run(*queue_, on_device_.buffer);
    logits_.resize(found.count());
    queue_->copy("download", found, logits_);
    queue_->synchronise();
    const std::span<const float> logits = logits_;
    const auto trained = m_.network->layer_outputs(host_, m_.buffers(), {inputs_, labels_, labels_each});
    const auto reference = trained.back().values<float>();
    const std::size_t outputs = logits.size() / n;
    for (std::size_t k = 0; k < n; ++k)
      sums.add(logits.subspan(k * outputs, outputs), reference.subspan(k * outputs, outputs),
               std::span(labels_).subspan(k * labels_each, labels_each));
  }

 private:
  TrainedModel& m_;
  const runtime::ConstBuffer weights_;
  kernels::Precision precision_;
  const model::Dataset& set_;
  std::unique_ptr<runtime::Queue> queue_;
  runtime::HostQueue host_;
  runtime::OwnedBuffer on_device_;
  std::optional<model::Inference> inference_;  ///< for a piece of so many samples as the last one
  std::vector<std::uint64_t> indices_;
  std::vector<float> inputs_, logits_;
  std::vector<std::int32_t> labels_;
};

}  // namespace

PairedMean paired_mean(double n, double sum, double sum_of_squares) {
  constexpr double normal_975 = 1.959964;
  const double m = n + 2, mean = sum / m, variance = (sum_of_squares + 1) / m - mean * mean;
  const double half = normal_975 * std::sqrt(variance / m);
  return {.value = sum / n, .low = mean - half, .high = mean + half};
}

namespace {

/// Several times what a product of Gaussian numbers loses (8-bit integers 0.015, bf16 0.0023 of its norm), since layers
/// add up. Of formats that software rounds to, any that leaves something of the logits.
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
  double off = 0, norm = 0;
  for (std::size_t i = 0; i < reference.size(); ++i) {
    const double r = reference[i], e = logits[i] - r;
    off += e * e, norm += r * r;
  }
  const double error = std::sqrt(off / norm);
  if (error < most_error(p)) return {};
  if (std::isnan(error)) return "the logits of a timed pass are not all numbers";
  return fmt::format("the logits of a timed pass differ from those of its samples by {:.3g} of their norm", error);
}

PrecisionAccuracy measure_accuracy(Session& session, const runtime::Communicator& c, TrainedModel& m,
                                   const runtime::ConstBuffer& weights, kernels::Precision precision,
                                   const model::Dataset& set) {
  const auto ranks = static_cast<std::size_t>(c.size()), rank = static_cast<std::size_t>(c.rank());
  Comparison sums;
  PieceByPiece pieces(m, weights, precision, set, session.device());
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

}  // namespace gradmeter::bench
