// SPDX-License-Identifier: Apache-2.0
// Makes the points of an inference sweep from lists of models, batches and precisions.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/engine/node_map.hpp"
#include "bench/engine/session.hpp"
#include "bench/engine/sweep.hpp"
#include "bench/train/config.hpp"
#include "core/result.hpp"
#include "core/table.hpp"
#include "kernels/host/memory.hpp"
#include "kernels/problems/problem.hpp"
#include "model/data/dataset.hpp"
#include "model/network/inference.hpp"
#include "report/cells.hpp"

namespace gradmeter::bench {

struct InferFactors {
  std::vector<std::string> models;  ///< canonical names
  std::vector<std::size_t> batches;
  std::vector<kernels::Precision> precisions;
  bool on_host = true;  ///< passes run on the host, where software emulates more precisions than on a GPU
};

struct InferPoint {
  std::string model;
  std::size_t batch = 0;  ///< number of samples in one forward pass; 0: only the accuracy is measured
  kernels::Precision precision = kernels::Precision::fp32;
  std::size_t group = 0;  ///< points of one group, that is, of one model and batch, take turns
  bool is_timed() const { return batch > 0; }
};

/// The points by model, batch, precision, in the order given, each once. Emulated precisions (operands are rounded by
/// software) have no times, so they have one point for each model, without a batch.
std::vector<InferPoint> plan_infer(const InferFactors&);
core::Factors to_factors(const InferPoint&, const NodeMap&, int threads, const std::string& device);

// A model that was trained in fp32, with the facts that its quantization needs.

struct TrainedModel {
  std::unique_ptr<model::Network> network;
  kernels::AlignedVector<float> weights;
  std::vector<model::ActivationRange> ranges;  ///< range of each layer's inputs, over the calibration's samples

  model::Buffers buffers() { return {.parameters = weights, .gradients = runtime::empty_buffer}; }
};

/// How a model is trained in fp32 before it is quantized.
struct TrainOnceOptions {
  TrainingConfig config;  ///< configuration of one rank
  std::size_t epochs = 2;
  std::size_t calibration_samples = 512;  ///< number of samples, from the start of the training set
};

/// Receives the progress of training on rank 0, now and then.
using TrainingProgress = std::function<void(std::size_t step, std::size_t steps, double loss)>;

/// Trains a model and calibrates it. Rank 0 trains while the others sleep, so the weights are the same for any number
/// of ranks; each rank calibrates its own copy. Collective over `c`. Errors: WrongResult, on rank 0 only, for a loss
/// that is not finite or a step whose check fails; UsageError; Interrupted.
TrainedModel train_once(Session&, const runtime::Communicator& c, const model::DataSplit&, const TrainOnceOptions&,
                        const TrainingProgress&);

// The inference sweep: models trained once, quantized after training, compared with fp32 and timed.

struct InferOptions {
  InferFactors factors;
  TrainOnceOptions training;  ///< how each model of the factors is trained; the model named here is ignored
  model::DataOptions data;
  core::StoppingRule rule;
  std::optional<TimeBudget> time_budget;  ///< for all points together, with the trainings
};

/// Runs the sweep. Collective over the session's world. A trainable model is trained just before its first point is
/// measured. Before anything is timed, each precision's logits, computed on the session's device, are compared with the
/// host's logits in fp32. A point is refused if the device leaves a layer to the host. The points of one model and
/// batch take turns. Layer tables cannot be trained: for them only the operations of one pass are timed, on random
/// numbers. Returns the number of wrong points.
/// Cost: the trainings; the validation set twice for each model and precision; 1 s a point, or the time budget.
/// Errors: those of train_once; UsageError for data that do not fit; Interrupted.
std::size_t run_infer(Session&, const InferOptions&, const FinishedRows& finished, const RowListener&);

/// The reason why a point cannot be measured on such data; empty: it can be.
std::string infer_refusal(const InferPoint&, const DataFacts&, const runtime::Device& = runtime::host_device());

/// One table for each model, in order of appearance.
std::string infer_tables(std::span<const core::Point>, std::size_t width = core::any_width);
/// The meaning of the columns and marks.
std::string infer_legend(report::Legend);
const report::CsvColumns& infer_csv();

}  // namespace gradmeter::bench
