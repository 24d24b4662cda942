// SPDX-License-Identifier: Apache-2.0
// Finds what is wrong or slow with this machine, from measurements and settings.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bench/engine/machine_state.hpp"
#include "bench/engine/session.hpp"

namespace gradmeter::bench {

/// Something that is wrong or slow: what it is, why it matters, and what to do against it.
struct CheckupFinding {
  std::string what, why, remedy;
};

/// The median speed of `workers` threads that compute at once, and this speed as a share of that of one thread alone.
struct Crowding {
  int workers;
  double flops_per_s_each, share_of_alone;
};

/// How steadily a small fixed workload (the canary, bench/engine/machine_state.hpp) runs when it is repeated for one
/// second.
struct Steadiness {
  double value = 1;                       ///< the best time divided by the median time (CanaryTimes::steadiness)
  std::size_t rounds = 0, disturbed = 0;  ///< number of all rounds, and of disturbed ones
};

/// What `check_up` has measured and found. `crowding` and `copy_bytes_per_s` are measured on rank 0 only, and mean
/// nothing on other ranks.
struct Checkup {
  std::vector<Crowding> crowding;  ///< with one worker, with one for each core, with two for each core
  double copy_bytes_per_s = 0;
  Steadiness steadiness;
  /// The time of an all-reduce of 8 bytes over the world (by MPI_Allreduce, or between threads); 0 if there is one
  /// rank.
  double small_all_reduce_s = 0;
  double barrier_s = 0;                  ///< time of a barrier; 0 if there is one rank
  std::vector<CheckupFinding> findings;  ///< empty: nothing stands out
};

/// Runs the checkup. Collective. It takes about three seconds.
Checkup check_up(Session&);

/// Reports workers that slow each other down although there is a core for each of them; empty if there are none.
std::vector<CheckupFinding> crowding_findings(const std::vector<Crowding>&, int cores);
/// The share of a core's rate that each of `ranks` ranks gets, at most 1. It follows from the measurement with the most
/// workers: all cores are busy there, so more workers would share the same total rate.
double share_of_a_rank(const std::vector<Crowding>&, int ranks);
/// True if more ranks of a node have this rank's binding than the binding has processing units. bindings: those of all
/// ranks of the node.
bool is_bound_too_narrowly(std::span<const std::string> bindings, const std::string& own, std::size_t own_units);
/// Reports that /dev/shm has too little room; empty if it has enough, or if there is none (no free bytes are known).
std::vector<CheckupFinding> shm_findings(std::optional<std::size_t> free_bytes);
/// Reports that the same work takes changing times; empty if the machine is steady.
std::vector<CheckupFinding> steadiness_findings(const Steadiness&);

}  // namespace gradmeter::bench
