// Divides a time budget among problems whose times differ by a factor of a million.
#pragma once
#include <map>
#include <span>
#include <string>

#include "core/units.hpp"

namespace gradmeter::bench {

/// What a point may take of the remaining time. skip: even its least does not fit beside that of the others.
struct TimeShare {
  bool skip = false;
  double seconds = 0;
};

/// `least`: the least times of the points still to come [s], the next one first. When all of that fits, each gets its
/// least and an equal share of the rest. When it does not, the longest are skipped until the rest fits; one that takes
/// more than an equal part fits only into half of the time. Cost: O(n log n).
TimeShare share_out(core::Seconds rest, std::span<const double> least);

/// How much longer than predicted one kind of work takes here: a moving mean that starts from a guess, since the first
/// of a kind has one-time costs.
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
