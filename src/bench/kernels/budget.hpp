// How a time budget is shared out among problems that differ by a factor of a million.
#pragma once
#include <map>
#include <span>
#include <string>

#include "core/units.hpp"

namespace gradmeter::bench {

/// What a point may take of the time that is left. skip: even its least does not fit beside those of the others.
struct TimeShare {
  bool skip = false;
  double seconds = 0;
};

/// `least`: what the points that are still to come take at least [s], the next one first. When all of that fits, each
/// gets its least and an equal share of what is over. When it does not, the longest are skipped until the rest fits;
/// one that takes more than an equal part fits only into half of the time. Cost: O(n log n).
TimeShare share_out(core::Seconds rest, std::span<const double> least);

/// How much longer than foreseen something of one kind takes here: a moving mean that starts from a guess, since the
/// first of a kind pays what is paid once.
class Slowness {
 public:
  explicit Slowness(double guess) : guess_(guess) {}
  void learn(const std::string& kind, double ratio);
  double of(const std::string& kind) const;

 private:
  double guess_;
  std::map<std::string, double> ratios_;
};

}  // namespace gradmeter::bench
