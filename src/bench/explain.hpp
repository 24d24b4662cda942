// Why a point is as fast as it is: its place between baseline, control and limit.
#pragma once
#include <string>

#include "core/result.hpp"

namespace gradmeter::bench {

/// Where the time beyond the one-rank step went [s]. lost = contention + exposed; exposed = skew + wire.
struct Loss {
  double lost = 0;        ///< step − baseline step of one rank
  double contention = 0;  ///< independent at the same factors − baseline: cores, caches, memory shared by ranks
  double exposed = 0;     ///< step − independent
  double skew = 0;        ///< of the exposed part, waiting for late peers
};

/// One word for the table: "compute" when under a twentieth of the step was lost, else the largest of "cores"
/// (contention with more busy threads than cores), "memory" (contention without), "skew" and "wire".
std::string binding_limit(const Loss&, double step_s, bool oversubscribed);

}  // namespace gradmeter::bench
