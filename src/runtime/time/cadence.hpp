// What stands between two iterations: it changes the same operation's time by up to 1.7x, so it is a factor.
#pragma once
#include <span>
#include <string_view>

#include "runtime/communicator.hpp"
#include "runtime/time/clock.hpp"

namespace gradmeter::runtime {

/// barrier: all ranks meet before each iteration (isolated). none: back to back (streaming). window: all ranks begin
/// at one agreed moment of the common clock; late iterations are dropped.
enum class Cadence { barrier, none, window };
std::string_view name(Cadence);
std::span<const Cadence> cadences();

/// Called before every iteration, by all ranks alike.
class Pacer {
 public:
  Pacer(Cadence c, const Communicator& communicator, SharedClock& clock)
      : cadence_(c), communicator_(communicator), clock_(clock) {}
  /// Collective. Before a block of iterations: synchronises the clocks again when it is time to, and agrees on when the
  /// first window opens and how long each lasts.
  void open(double window_s);
  /// False: this rank came too late for its window, so the iteration must not count.
  bool next();

 private:
  Cadence cadence_;
  const Communicator& communicator_;
  SharedClock& clock_;
  double opens_ = 0, window_ = 0;  ///< rank 0's clock; seconds
};

}  // namespace gradmeter::runtime
