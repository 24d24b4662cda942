// What is wrong or slow with this machine, measured and looked up.
#pragma once
#include <string>
#include <vector>

#include "bench/session.hpp"

namespace gradmeter::bench {

struct Finding {
  std::string what, why, remedy;
};

/// How fast each of `workers` threads computes while all of them do, against one alone.
struct Crowding {
  int workers;
  double flops_per_s_each, share_of_alone;
};

struct Checkup {
  std::vector<Crowding> crowding;  ///< one worker, one for each core, two for each core
  double copy_bytes_per_s = 0;
  double small_all_reduce_s = 0;  ///< MPI_Allreduce of 8 bytes over the world; 0 for one rank
  double barrier_s = 0;
  std::vector<Finding> findings;  ///< empty: nothing stands out
};

/// Collective. Takes about two seconds.
Checkup check_up(Session&);

}  // namespace gradmeter::bench
