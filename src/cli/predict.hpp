// SPDX-License-Identifier: Apache-2.0
// What the parts of `gradmeter predict` share: predict.cpp reads tables of steps, predict_network.cpp predicts a
// network on a machine, and predict_own.cpp predicts from our own result files and from tables of collectives.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "bench/engine/flags.hpp"
#include "bench/engine/output.hpp"
#include "cli/commands.hpp"
#include "core/result.hpp"
#include "predict/score.hpp"

namespace gradmeter::cli {

inline constexpr std::uint64_t most_ranks = 65536;
/// "8,64", "1..65536" (powers of two). Errors: UsageError.
std::vector<std::uint64_t> parse_ranks(const std::string&);

/// A point of experiment `predict`, which no reader of measurements takes, without factors. Its time is
/// `predicted_time_s`, so that it has none that counts as measured.
core::Point predicted_point(const predict::PredictionOrReason&);
/// Writes a run with these points to --out; does nothing without --out. Errors: UsageError.
void write_predictions(const std::vector<core::Point>&, const OutputFlags&, const Invocation&);

void add_network_flags(FlagList&);
/// Predicts what the flags describe by this calibration, prints it, and writes --out. systems: those of the
/// calibration. Errors: UsageError.
void predict_network(const Flags&, const Invocation&, const predict::Calibration&,
                     const std::vector<std::string>& systems);

void add_own_flags(FlagList&);
/// Do --calibrate and --score name result files (*.jsonl) or tables of collectives?
/// Errors: UsageError where such files and tables of steps are mixed, or a file cannot be read.
bool concerns_own_files(const Flags&);
/// The scores of --score: one for the collectives of each file, and one for its steps. Errors: UsageError.
std::vector<predict::Score> own_scores(const Flags&);
/// Holds the largest number of ranks out and prints its error, then prints what is predicted for --ranks, and writes
/// --out. Errors: UsageError.
int predict_from_own(const Flags&, const Invocation&);

}  // namespace gradmeter::cli
