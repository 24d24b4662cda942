// SPDX-License-Identifier: Apache-2.0
// The time of a collective at any number of ranks, from the same schedules that run, on a machine of link classes.
#pragma once
#include <cstddef>
#include <string_view>

#include "allreduce/registry.hpp"
#include "core/machine.hpp"

namespace gradmeter::predict {

struct CollectiveCall {
  allreduce::AlgorithmPtr algorithm;  ///< one with a schedule, which does not refuse the shape
  allreduce::Shape shape = {};
  std::size_t bytes = 0;  ///< of a rank's buffer
  allreduce::CollectiveKind kind = allreduce::CollectiveKind::all_reduce;
  std::size_t message_bytes = std::size_t{256} << 10;  ///< that the transport is efficient at
  std::size_t element_bytes = sizeof(float);
};

/// Walks the schedules in slices, as `allreduce::hockney_finish_times` does, and returns when the last rank is done
/// [s]. Cost:   O(ranks · rounds · slices). A ring, `neighbour` and `hierarchical-lane` take the steps of three nodes
/// only,
///         since all nodes do the same; not where a trunk joins the nodes. Memory for the slices' rounds.
/// Errors: UsageError for a shape that the algorithm refuses.
double walked_seconds(const CollectiveCall&, const core::Machine&);

/// The same by a closed form: α a round, bytes ÷ β a message, bytes ÷ γ a sum. Slices hide what is not on the busiest
/// port. It is the walk of one slice where the ranks are a power of two on one class of links (double-tree apart). The
/// walk keeps slices in a static order and each message waits for those before it, so that in slices, and where a
/// node's port is shared by an exchange of all with all, it is longer: tests/predict/collective_test.cpp has the
/// bounds. Cost:   O(log ranks), and a make of the schedules. Errors: UsageError for a shape that the algorithm
/// refuses, or an algorithm without a closed form. Source: Thakur, Rabenseifner, Gropp, IJHPCA 2005; Hockney, Parallel
/// Computing 1994.
double formula_seconds(const CollectiveCall&, const core::Machine&);
bool has_closed_form(std::string_view algorithm);

/// A call whose closed form is evaluated on many machines, as a fit does.
class PreparedCollective {
 public:
  /// Errors: as those of `formula_seconds`.
  explicit PreparedCollective(const CollectiveCall&);
  double seconds(const core::Machine&) const;

 private:
  CollectiveCall call_;
  double slices_ = 1, lanes_ = 1;
};

/// The walk where it takes less than a millisecond or so, else the closed form.
double collective_seconds(const CollectiveCall&, const core::Machine&);

}  // namespace gradmeter::predict
