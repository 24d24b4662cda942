// SPDX-License-Identifier: Apache-2.0
// gradmeter predict from our own result files, and from tables of collectives.
#pragma once
#include <vector>

#include "bench/engine/command.hpp"
#include "predict/score.hpp"

namespace gradmeter::cli {

void add_own_flags(bench::FlagList&);
/// Do --calibrate and --score name result files (*.jsonl) or tables of collectives?
/// Errors: UsageError where such files and tables of steps are mixed, or a file cannot be read.
bool concerns_own_files(const bench::Flags&);
/// The scores of --score: one for the collectives of each file, and one for its steps.
/// Errors: UsageError, one line.
std::vector<predict::Score> own_scores(const bench::Flags&);
/// Holds the largest number of ranks out, prints its error, and then what is predicted for --ranks. Errors: UsageError.
int predict_from_own(const bench::Flags&);

}  // namespace gradmeter::cli
