// SPDX-License-Identifier: Apache-2.0
// The interface between the parts of `gradmeter predict`: predict.cpp reads tables of steps; predict_model.cpp predicts
// the network of --model on a machine; predict_what_if.cpp predicts the effects of --what-if; predict_own.cpp predicts
// from gradmeter's own result files and from tables of collectives.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "bench/engine/flags.hpp"
#include "bench/engine/output.hpp"
#include "cli/commands.hpp"
#include "core/json.hpp"
#include "core/result.hpp"
#include "predict/score.hpp"

namespace gradmeter::cli {

inline constexpr std::uint64_t most_ranks = 65536;
/// Reads a list ("8,64") or the powers of two in a range ("1..65536"). Errors: UsageError.
std::vector<std::uint64_t> parse_ranks(const std::string&);

/// A point of the experiment `predict`, without factors. It cannot be mistaken for a measurement: readers of
/// measurements ask for other experiments, and its time is in the metric `predicted_time_s`.
core::Point predicted_point(const predict::PredictionOrReason&);
/// Writes a run with these points to --out; does nothing without --out. Errors: UsageError.
void write_predictions(const std::vector<core::Point>&, const OutputFlags&, const Invocation&);

/// A score as --json prints it, with percentages rounded to two decimals.
core::Json score_json(const predict::Score&);

/// Adds the flags that describe a network, its training step and a machine.
void add_network_flags(FlagList&);
/// Predicts the step that the flags describe, prints the prediction, and writes --out. systems: the names of the
/// systems that the calibration was measured on. Errors: UsageError.
void predict_network(const Flags&, const Invocation&, const predict::Calibration&,
                     const std::vector<std::string>& systems);

/// Adds the flags for predictions from result files.
void add_own_flags(FlagList&);
/// True if --calibrate or --score names result files (*.jsonl) or tables of collectives. Errors: UsageError if such
/// files and tables of steps are mixed, or a file cannot be read.
bool concerns_own_files(const Flags&);
/// The scores of --score: one for the collectives of each file, and one for its steps. Errors: UsageError.
std::vector<predict::Score> own_scores(const Flags&);
/// First calibrates without the measurements on the most ranks, and prints the error with which it predicts them. Then
/// calibrates with all measurements, prints what is predicted for --ranks, and writes --out. Returns the exit
/// code. Errors: UsageError.
int predict_from_own(const Flags&, const Invocation&);

}  // namespace gradmeter::cli
