// What bound a step, with the probability of being right, from blocks that are resampled.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "bench/scale/causes.hpp"

namespace gradmeter::bench {

/// The share of each point's times that the machine's state may account for: 0 where it was steady.
struct Disturbance {
  double base = 0, control = 0, point = 0;
};

struct Verdict {
  /// compute: nothing was lost beyond `noise_s`. Else the largest part of lost time: memory or cores (contention),
  /// straggle, interference, wait, wire, other. undecided: none of these in two thirds of the resamples, or the
  /// machine's state may explain all of a loss that the blocks show.
  std::string bound_by = {};
  double probability = 0;  ///< of `bound_by`; of undecided, of the likeliest answer
  double noise_s = 0;      ///< losses up to this are "nothing"
  struct Candidate {
    std::string bound_by;
    double probability;
  };
  std::vector<Candidate> candidates = {};  ///< all answers of at least 1 %, the likeliest first
};

/// "wire 55 %, straggle 40 %".
std::string to_text(const std::vector<Verdict::Candidate>&);

/// Draws the blocks anew, with replacement, a thousand times. In each resample each measured time may also hold up to
/// the machine's share, drawn evenly. The answer of a resample is its largest part, or compute where less was lost than
/// a twentieth of the step, or than the noise of the blocks if that is more (at most 15 % of the step). Where the
/// median rank computes faster than the baseline beyond that noise, time is lost against it: the baseline ran on a slow
/// rank. The same blocks give the same verdict. Nothing: the figures have no interval, so nothing may be concluded.
/// Cost: O(1000 × blocks).
std::optional<Verdict> judge(const ComparedBlocks&, Causes, double step_s, bool oversubscribed, const Disturbance&);

}  // namespace gradmeter::bench
