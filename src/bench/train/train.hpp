// One configuration trained to convergence: loss, accuracy, time to accuracy.
#pragma once
#include <functional>
#include <optional>

#include "bench/train/step_size.hpp"
#include "bench/train/trace.hpp"
#include "bench/train/training.hpp"
#include "core/result.hpp"
#include "model/data.hpp"

namespace gradmeter::bench {

/// What rank 0 holds before one step, as a file for gradmeter codecs and other programs.
struct Dump {
  std::string path;
  std::optional<std::size_t> step;  ///< empty: the usual one
  bool replace = false;             ///< an existing file
};

struct TrainOptions {
  TrainingConfig config;
  model::DataOptions data;
  std::size_t epochs = 20;
  StepSizeRule step_rule = StepSizeRule("constant");
  double warmup_epochs = 1;      ///< the step size grows over these
  std::optional<double> target;  ///< stop at this validation accuracy [0, 1]
  std::optional<std::size_t> max_steps;
  std::optional<Dump> dump_gradients;      ///< before the exchange; usually of step 100, or the last of a shorter run
  std::optional<Dump> dump_weights;        ///< usually those before step 0
  std::optional<std::size_t> noise_every;  ///< steps between samples of the gradient's noise; empty: none
  std::optional<TraceRequest> trace;
  std::optional<std::size_t> log_every;  ///< steps between loss rows; empty: epochs only
};

struct TrainListener {
  std::function<void(std::size_t rows)> planned = {};  ///< rank 0, before the first: at most, where there is a target
  std::function<void(const core::Point&)> row;         ///< rank 0
  std::function<void(std::size_t step, std::size_t steps, double loss)> progress;  ///< rank 0
};

struct TrainResult {
  double accuracy = 0;  ///< of the last validation
  bool is_text = false;
  double least_loss = 0;       ///< that any model can have on this data [nats]; 0: not known
  double validation_loss = 0;  ///< [nats], a label of the validation set
  double seconds = 0;          ///< training time, without evaluation
  std::size_t steps = 0;
  bool traced = false;                ///< any step, if that was asked for
  bool gradients_dumped = false;      ///< if that was asked for
  bool weights_dumped = false;        ///< likewise
  bool reached = false;               ///< the target, if there is one
  std::optional<double> noise_scale;  ///< of the last epoch [samples]
  bool has_times = true;              ///< software that rounds, or an emulated device, has none that say anything
  bool weights_equal = true;          ///< on all ranks; always true for strategies that do not promise it
  TrainingTotals totals = {};
};

/// Errors: UsageError where the noise of gradients is asked for and cannot be measured.
void check_noise_scale(const TrainOptions&, int ranks);

/// Collective over the session's world. A row for each epoch (loss: mean over the epoch's samples), and for each
/// logged step (loss: mean over that step's global batch, before its update).
/// Errors: UsageError for data or a model that do not fit, and for a noise scale where there is none; WrongResult for a
/// loss that is NaN or infinite; Interrupted.
TrainResult run_train(Session&, const TrainOptions&, const TrainListener&);

}  // namespace gradmeter::bench
