// Rings along the rows and columns of a torus.
#pragma once
#include "allreduce/request.hpp"

namespace gradmeter::allreduce {

/// As a member of the registry: all-reduce on rows × columns = p, rank r in row r / columns. Parameter rows: 0 takes
/// the most nearly square torus, both sides above 1, and refuses p that has none (1 and primes).
/// Cost:   2(rows + columns - 2) rounds; 2n(p-1)/p sent by each rank.
/// Source: Mikami et al., arXiv:1811.05233 (2D-torus all-reduce); Ying et al., arXiv:1811.06992 (TPU pods).
std::string torus2d_refusal(const Request&);
std::vector<SchedulePtr> make_torus2d(const Request&);
StatedCost torus2d_cost(const Request&);

}  // namespace gradmeter::allreduce
