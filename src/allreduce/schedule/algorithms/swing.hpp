// Swing: recursive halving whose partners lie left and right in turn, near each other on a ring or torus.
#pragma once
#include "allreduce/request.hpp"

namespace gradmeter::allreduce {

/// As a member of the registry: all-reduce for powers of two. In round s rank r exchanges with r ± (1 - (-2)^(s+1)) /
/// 3, plus for even ranks, minus for odd ones: distances 1, 1, 3, 5, 11 … instead of 1, 2, 4, 8, 16.
/// Blocks are numbered such that each message is one run of them: the ranks reached from round s on are the same set
/// for all its members (see swing.cpp), so these sets nest, and the numbering follows the nesting.
/// Cost:   2·log2 p rounds of one message by each rank; 2n(p-1)/p sent by each.
/// Source: De Sensi, Bonato, Saam, Hoefler, NSDI 2024 (arXiv:2401.09356).
std::string swing_refusal(const Request&);
std::vector<SchedulePtr> make_swing(const Request&);
StatedCost swing_cost(const Request&);

}  // namespace gradmeter::allreduce
