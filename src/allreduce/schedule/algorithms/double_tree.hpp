// Two mirrored binary trees: half of the slices go through each, so that every rank is a leaf in one of them.
#pragma once
#include "allreduce/request.hpp"

namespace gradmeter::allreduce {

enum class Mirror : std::uint8_t { no, yes };
/// In-order binary tree with rank 0 above its root: up to the top, where the sum is finished, and down again. Any p.
/// The mirror (p even) or the shift by one rank (p odd) makes the other tree's inner ranks leaves.
/// Cost:   2·ceil(log2 p) rounds; 2(p-1) messages; an inner rank sends 3 buffers, a leaf 1.
/// Source: Sanders, Speck, Traeff, Parallel Computing 2009.
SchedulePtr binary_tree(std::uint32_t ranks, Mirror);

/// As a member of the registry: all-reduce, two schedules.
/// Cost:   that of a tree; over both trees no rank sends more than 2 buffers (p = 3: 1.5; p = 2: 1).
std::string double_tree_refusal(const Request&);
std::vector<SchedulePtr> make_double_tree(const Request&);
StatedCost double_tree_cost(const Request&);

}  // namespace gradmeter::allreduce
