// What a precision loses against fp32: logits and rightly classified labels of the same validation samples.
#pragma once
#include <cstddef>
#include <span>
#include <string>

#include "bench/infer/trained_model.hpp"

namespace gradmeter::bench {

/// A mean difference of paired samples, with its 95 % interval.
struct PairedMean {
  double value = 0, low = 0, high = 0;
};
/// Of n differences within ±1, their sum and their sum of squares. The interval is Wald's after two more pairs of no
/// mean difference, so that it has a width where no pair differs. Source: Agresti & Min, Statistics in Medicine 2005,
/// of matched proportions.
PairedMean paired_mean(double n, double sum, double sum_of_squares);

struct PrecisionAccuracy {
  double accuracy = 0;     ///< in the precision
  PairedMean lost;         ///< of fp32's accuracy, which is as the network was trained
  double error = 0;        ///< ‖logits − fp32's‖ / ‖fp32's‖; fp32's are the host's
  std::string fault = {};  ///< of an operation of either pass on the host, by kernels::CallCheck
};
/// Why the logits cannot be the network's; empty: they can. fp32 differs by its rounding alone. Elsewhere a network
/// without any relation to the trained one has an error of 1 or more.
std::string accuracy_fault(kernels::Precision, const PrecisionAccuracy&);
/// The same of the logits of one batch, whose reference has been checked.
std::string logits_fault(kernels::Precision, std::span<const float> logits, std::span<const float> reference);

/// Collective over `c`: each rank its part of the validation set, on its session's device, where `weights` are the
/// model's. Errors: UsageError or BackendError when the network has no inference in the precision.
PrecisionAccuracy measure_accuracy(Session&, const runtime::Communicator& c, TrainedModel&,
                                   const runtime::ConstBuffer& weights, kernels::Precision,
                                   const model::Dataset& validation);

}  // namespace gradmeter::bench
