// What is wrong or slow with this machine, from measurements and settings.
#pragma once
#include <string>
#include <vector>

#include "bench/engine/canary.hpp"
#include "bench/engine/session.hpp"

namespace gradmeter::bench {

struct Finding {
  std::string what, why, remedy;
};

/// How fast each of `workers` threads computes while all of them do, against one alone.
struct Crowding {
  int workers;
  double flops_per_s_each, share_of_alone;
};

/// Of the canary, over a second.
struct Steadiness {
  double value = 1;  ///< best round, divided by the median one
  std::size_t rounds = 0, disturbed = 0;
};

struct Checkup {
  std::vector<Crowding> crowding;  ///< one worker, one for each core, two for each core
  double copy_bytes_per_s = 0;
  Steadiness steadiness;
  double small_all_reduce_s = 0;  ///< of 8 bytes over the world (MPI_Allreduce, or that of threads); 0 for one rank
  double barrier_s = 0;
  std::vector<Finding> findings;  ///< empty: nothing stands out
};

/// Collective. Takes about three seconds.
Checkup check_up(Session&);

/// What stands out in them: as many workers as cores that slow each other; a machine whose state changes.
std::vector<Finding> crowding_findings(const std::vector<Crowding>&, int cores);
std::vector<Finding> steadiness_findings(const Steadiness&);

}  // namespace gradmeter::bench
