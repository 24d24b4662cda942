// SPDX-License-Identifier: Apache-2.0
// The part of `gradmeter predict` that predicts one network on a machine: a row for each number of ranks, and what
// other links, precisions or codecs would change.
#pragma once
#include <string>
#include <vector>

#include "bench/engine/flags.hpp"
#include "cli/commands.hpp"
#include "predict/score.hpp"

namespace gradmeter::cli {

void add_network_flags(FlagList&);
/// Predicts what the flags describe by this calibration, prints it, and writes --out. systems: those of the
/// calibration. Errors: UsageError.
void predict_network(const Flags&, const Invocation&, const predict::Calibration&,
                     const std::vector<std::string>& systems);

}  // namespace gradmeter::cli
