// SPDX-License-Identifier: Apache-2.0
// Trains one configuration: loss, accuracy, time to accuracy.
#pragma once
#include <functional>
#include <optional>

#include "bench/train/step_size.hpp"
#include "bench/train/trace.hpp"
#include "bench/train/training.hpp"
#include "core/result.hpp"
#include "core/table.hpp"
#include "model/data/dataset.hpp"
#include "report/cells.hpp"

namespace gradmeter::bench {

/// A request to write the gradients or weights of rank 0 to a file, as they are before one step. `gradmeter codecs` and
/// other programs read such files.
struct Dump {
  std::string path;
  std::optional<std::size_t> step;  ///< empty: the usual step for such data (see TrainOptions)
  bool replace = false;             ///< true: an existing file is replaced
};

struct TrainOptions {
  TrainingConfig config;
  model::DataOptions data;
  std::size_t epochs = 20;
  StepSizeRule step_rule = StepSizeRule("constant");
  double warmup_epochs = 1;      ///< the epochs over which the step size grows
  std::optional<double> target;  ///< stop at this validation accuracy [0, 1]
  std::optional<std::size_t> max_steps;
  /// Rank 0's gradient of a step, before the exchange. The usual step is number 100, or the last step of a shorter run.
  std::optional<Dump> dump_gradients;
  std::optional<Dump> dump_weights;  ///< rank 0's weights; the usual step is 0, before which they are the initial ones
  /// Number of steps between samples of the gradient's noise; empty: no samples.
  std::optional<std::size_t> noise_every;
  std::optional<TraceRequest> trace;
  std::optional<std::size_t> log_every;  ///< number of steps between rows with a loss; empty: only epochs give rows
};

struct TrainListener {
  /// Called on rank 0 before the first row. rows: the number of rows to come, an upper bound if there is a target.
  std::function<void(std::size_t rows)> planned = {};
  std::function<void(const core::Point&)> row;  ///< called on rank 0
  /// Called on rank 0 after each step. loss: the mean over rank 0's part of the batch.
  std::function<void(std::size_t step, std::size_t steps, double loss)> progress;
};

struct TrainResult {
  double accuracy = 0;  ///< accuracy of the last validation
  bool is_text = false;
  double least_loss = 0;       ///< the least loss that a model can have on this data on average [nats]; 0: unknown
  double validation_loss = 0;  ///< per label of the validation set [nats]
  double seconds = 0;          ///< training time without evaluation [s]
  std::size_t steps = 0;
  bool traced = false;                ///< true: a trace was asked for, and has at least one step
  bool gradients_dumped = false;      ///< true: a file of gradients was asked for and written
  bool weights_dumped = false;        ///< true: a file of weights was asked for and written
  bool reached = false;               ///< true: there is a target, and it was reached
  std::optional<double> noise_scale;  ///< noise scale of the last epoch [samples]
  /// False if software emulates the precision or the device, since times then mean nothing.
  bool has_times = true;
  /// True if all ranks held equal weights, or if the strategy does not promise equal weights.
  bool weights_equal = true;
  TrainingTotals totals = {};
};

/// Errors: UsageError where the noise of gradients is asked for and cannot be measured.
void check_noise_scale(const TrainOptions&, int ranks);

/// Trains as the options say. Collective over the session's world. The listener gets a row for each epoch (with the
/// mean loss of the epoch's samples), and for each logged step (with the mean loss of that step's global batch, before
/// its update).
/// Errors: UsageError if the data and the model do not fit each other, if the noise scale cannot be measured, or if the
/// run has no step that is to be dumped; WrongResult if a loss is NaN or infinite, or if a check finds the exchange at
/// fault; Interrupted.
TrainResult run_train(Session&, const TrainOptions&, const TrainListener&);

std::string train_header();
/// The meaning of the table's columns.
std::string train_legend();
/// One line for an epoch's point; empty for a point without an accuracy.
std::string train_row(const core::Point&);
const report::CsvColumns& train_csv();

}  // namespace gradmeter::bench
