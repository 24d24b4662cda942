// SPDX-License-Identifier: Apache-2.0
// The rules that draw findings from rows and put them into sentences. Each adds its findings to the vector.
#pragma once
#include <vector>

#include "analysis/findings.hpp"
#include "analysis/sentences/rows.hpp"

namespace gradmeter::analysis::detail {

// machine.cpp has the rules about machines, launches and ranks.
void find_mixed_machines(const MergedRows&, std::vector<Finding>&);
void find_outlier_launches(const MergedRows&, std::vector<Finding>&);
void find_shared_cores(const MergedRows&, std::vector<Finding>&);
void find_slow_ranks(const MergedRows&, std::vector<Finding>&);
void find_slow_links(const MergedRows&, std::vector<Finding>&);
void find_disturbances(const MergedRows&, std::vector<Finding>&);
void find_gaps(const MergedRows&, std::vector<Finding>&);

// step.cpp has the rules about the efficiency of steps, and about changes of one factor.
void find_efficiency(const MergedRows&, std::vector<Finding>&);
void find_changes(const MergedRows&, std::vector<Finding>&);

// experiment.cpp has the rules about other experiments.
void find_fastest_exchange(const MergedRows&, std::vector<Finding>&);
void find_rooflines(const MergedRows&, std::vector<Finding>&);
void find_crossovers(const MergedRows&, std::vector<Finding>&);
void find_accuracy(const MergedRows&, std::vector<Finding>&);
void find_replays(const MergedRows&, std::vector<Finding>&);

}  // namespace gradmeter::analysis::detail
