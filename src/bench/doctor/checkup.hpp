// SPDX-License-Identifier: Apache-2.0
// Finds what is wrong or slow with this machine, from measurements and settings.
#pragma once
#include <string>
#include <vector>

#include "bench/engine/machine_state.hpp"
#include "bench/engine/session.hpp"

namespace gradmeter::bench {

struct CheckupProblem {
  std::string what, why, remedy;
};

/// The speed of each of `workers` threads while all of them compute, divided by the speed of one alone.
struct Crowding {
  int workers;
  double flops_per_s_each, share_of_alone;
};

/// The steadiness of the canary's rounds over a second.
struct Steadiness {
  double value = 1;  ///< best round, divided by the median one
  std::size_t rounds = 0, disturbed = 0;
};

struct Checkup {
  std::vector<Crowding> crowding;  ///< with one worker, with one for each core, with two for each core
  double copy_bytes_per_s = 0;
  Steadiness steadiness;
  /// The time of an all-reduce of 8 bytes over the world (MPI_Allreduce, or that of threads); 0 for one rank.
  double small_all_reduce_s = 0;
  double barrier_s = 0;
  std::vector<CheckupProblem> findings;  ///< empty: nothing stands out
};

/// Runs the checkup. Collective. It takes about three seconds.
Checkup check_up(Session&);

/// The problem that workers slow each other down although there are as many cores.
std::vector<CheckupProblem> crowding_findings(const std::vector<Crowding>&, int cores);
/// The problem that the machine's state changes.
std::vector<CheckupProblem> steadiness_findings(const Steadiness&);

}  // namespace gradmeter::bench
