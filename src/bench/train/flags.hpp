// SPDX-License-Identifier: Apache-2.0
// Reads the flags of a training. Before them, the facts of its data are read, since models and batches must fit the
// data.
#pragma once
#include <cstddef>
#include <string>

#include "bench/engine/flags.hpp"
#include "bench/scale/plan.hpp"
#include "runtime/communicator.hpp"

namespace gradmeter::bench {

struct TrainingDataFacts : DataFacts {
  /// Number of samples in the files; SIZE_MAX for built-in data, which never run out.
  std::size_t train_samples = SIZE_MAX;
};

/// Reads the facts of the data in a directory. An empty name means the built-in digits, for which no file is read.
/// Cost: the files are read once. Errors: UsageError of one line.
TrainingDataFacts read_data_shape(const std::string& directory);

/// Reads the facts for all ranks: one rank of each node reads the files, since nodes may have different ones.
/// Collective.
/// Errors: UsageError on all ranks; if only some ranks found an error, the text names one of these.
TrainingDataFacts agree_on_data(const runtime::Communicator& world, const std::string& directory);

/// Checks that the files hold at least the samples of one step. Errors: UsageError.
void check_enough(const TrainingDataFacts&, const std::string& directory, std::size_t batch_global);

// The flags of a training, which `train` and `scale` share.

/// The number of values that a flag takes: one (train), or a list, which makes it a factor (scale).
enum class Values { one, list };
/// Adds the flags. With Values::one it also adds --strict; commands that take lists have it by add_stopping_flags.
void add_training_flags(FlagList&, Values);

/// Reads the flags as lists; those of train have one value each. usual_threads: threads of a rank, unless `--threads`
/// is given. Models and batches must fit the data. Errors: UsageError.
ScaleFactors read_training_flags(const Flags&, const TrainingDataFacts&, int usual_threads);

/// For a training without an exchange: sets the factors that matter to exchanges only (those with a
/// TrainingFactor::applies) to their usual values.
void set_usual_exchange(TrainingConfig&);

/// Fills in a row's factors that belong to the training alone. The caller fills in ranks, global batch, mesh and
/// transport.
void fill_training(const TrainingConfig&, const ExchangeFactors&, core::Factors&);

/// Returns --shrink, or 1 in a command without it.
std::uint64_t read_shrink(const Flags&);
/// Reads the names of models and returns their canonical form. shrink: the number by which the widths of layer tables
/// are divided. device: the device that runs the models' operations, "host" or "cuda". Errors: UsageError for a model
/// that does not fit the data, and where `shrink` is above 1 but changes none of the models.
std::vector<std::string> parse_models(const std::string& text, std::uint64_t shrink, const TrainingDataFacts&,
                                      std::string_view device = "host");

/// Refuses a precision that any of the models emulates (software rounds to it, not the processor), for commands that
/// report times, since such times say nothing about the precision. Errors: UsageError.
void refuse_emulated(const Flags&, const std::vector<std::string>& models, const TrainingDataFacts&);

/// Refuses models that only compute and exchange, for commands that read a loss. Errors: UsageError, beginning with
/// `what`.
void require_learning(std::string_view what, const Flags&, const std::vector<std::string>& models,
                      const TrainingDataFacts&);

/// The directory of `--data`; empty: the built-in digits.
std::string data_directory(const Flags&);

/// Checks `--algorithm`, `--codec`, `--transport`, `--overlap`, `--bucket`, where they were given. used: the factors
/// that apply to some training of the run; ranks: the most ranks of any training. Errors: UsageError for a flag without
/// effect. On one rank, where nothing is exchanged, such a flag is no error unless `--strict` is given, since scripts
/// use the same flags for 1, 2 and 4 ranks; instead the returned note names it.
std::string unused_note(std::string_view command, const Flags&, const ExchangeFactors& used, int ranks);

}  // namespace gradmeter::bench
