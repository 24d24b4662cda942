// The inference sweep: models trained once, quantized after training, compared with fp32 and timed.
#pragma once
#include <optional>

#include "bench/engine/sweep.hpp"
#include "bench/infer/plan.hpp"
#include "bench/infer/trained_model.hpp"
#include "model/data.hpp"

namespace gradmeter::bench {

struct InferOptions {
  InferFactors factors;
  TrainOnce training;  ///< its model is each of the factors' in turn
  model::DataOptions data;
  core::StoppingRule rule;
  std::optional<core::Seconds> time_budget;  ///< for all points together, trainings too
};

/// Collective over the session's world. A trainable model is trained when its first point is due. Each precision's
/// logits, computed on the session's device, are compared with those that the host has in fp32 before anything is
/// timed. What a device leaves to the host is not timed. The points of one model and batch take turns. Layer tables
/// do not learn: of them only the operations of a pass are timed, on random numbers. Gives the number of wrong points.
/// Cost: the trainings; the validation set twice for each model and precision; 1 s a point, or the time budget. Errors:
/// those of train_once; UsageError for data that do not fit; Interrupted.
std::size_t run_infer(Session&, const InferOptions&, const FinishedRows& finished, const RowListener&);

/// Why it is not to be had; empty: it is. samples: the data's features, classes and labels.
std::string infer_refusal(const InferPoint&, DataFacts, const runtime::Device& = runtime::host_device());

}  // namespace gradmeter::bench
