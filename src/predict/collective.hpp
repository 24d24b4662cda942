// SPDX-License-Identifier: Apache-2.0
// Predicts the time of a collective on any number of ranks of a core::Machine, whose links have a latency and a rate
// within nodes and between nodes. The time follows from the schedules that also run for real, or from a closed form.
#pragma once
#include <cstddef>
#include <string_view>

#include "allreduce/registry.hpp"
#include "core/machine.hpp"

namespace gradmeter::predict {

struct CollectiveCall {
  allreduce::AlgorithmPtr algorithm;  ///< must have a schedule, and must not refuse the shape
  allreduce::RankShape shape = {};
  std::size_t bytes = 0;  ///< length of a rank's buffer
  allreduce::CollectiveKind kind = allreduce::CollectiveKind::all_reduce;
  std::size_t message_bytes = std::size_t{256} << 10;  ///< message size at which the transport is efficient
  std::size_t element_bytes = sizeof(float);
};

/// The time of the call [s], by a walk: evaluates every step of the schedules, in slices
/// (allreduce::hockney_finish_times), until the last rank is done.
/// Cost: O(ranks · rounds · slices), and memory for the slices' rounds. For `ring`, `neighbour` and `hierarchical-lane`
/// only the steps of three nodes are evaluated, since all nodes do the same, unless the nodes share one link
/// (core::Machine::trunk).
/// Errors: UsageError for a shape that the algorithm refuses.
double walked_seconds(const CollectiveCall&, const core::Machine&);

/// The time of the call [s], by a closed form: the link's latency for each round, bytes ÷ the link's rate for each
/// message, and bytes ÷ the rate of sums for each sum. Slices overlap, so that many slices take as long as the busiest
/// port, the busiest rank's sums, or the rounds of one lane, whichever is longest. The closed form equals the walk
/// (except for `double-tree`) if there is a single slice, the number of ranks is a power of two, and all links are of
/// one class. Otherwise the walk is longer: in the walk slices keep a static order, each message waits for all messages
/// before it, and where each rank exchanges with all others, messages queue at the ports of nodes.
/// tests/predict/collective_test.cpp has the bounds of the difference.
/// Cost: O(log ranks), and making the schedules. Errors: UsageError for a shape that the algorithm refuses, or an
/// algorithm without a closed form. Source: Thakur, Rabenseifner, Gropp, IJHPCA 2005; Hockney, Parallel Computing 1994.
double formula_seconds(const CollectiveCall&, const core::Machine&);
bool has_closed_form(std::string_view algorithm);

/// A call that is prepared once, so that its closed form can be evaluated on many machines, as a fit does.
class PreparedCollective {
 public:
  /// Errors: those of `formula_seconds`.
  explicit PreparedCollective(const CollectiveCall&);
  double seconds(const core::Machine&) const;

 private:
  CollectiveCall call_;
  double slices_ = 1, lanes_ = 1;  ///< numbers of slices and of lanes
};

/// The time of the call [s]: by the walk if the walk's evaluation takes less than about a millisecond, else by the
/// closed form.
double collective_seconds(const CollectiveCall&, const core::Machine&);

}  // namespace gradmeter::predict
