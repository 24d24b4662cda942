// Builds what is measured anew, in other memory.
#pragma once
#include <cstddef>
#include <functional>
#include <vector>

#include "core/random.hpp"
#include "runtime/communicator.hpp"

namespace gradmeter::bench {

/// A point that keeps its memory for a whole launch has one draw of what pages and addresses do to its time (about 1 %
/// of a step of 100 us; results/truth.md, "Equal work, again"), and its interval does not know that. With other memory
/// for every block it does. A point that takes long to build gets other memory in fewer blocks, or in none.
class Rebuilding {
 public:
  /// Runs `make`; pads of memory that are held meanwhile, and until the next time, move what it allocates.
  void build(const std::function<void()>& make);
  /// Blocks begin: what building takes from now on counts.
  void start();
  /// Is there time to build it again? Collective, as that is; rank 0 decides, since clocks differ.
  bool has_time(const runtime::Communicator&) const;

 private:
  void draw_pads();

  core::Random random_{core::unpredictable_seed(), 0};
  std::uint64_t drawn_ = 0;
  std::vector<std::vector<std::byte>> pads_;
  double begin_ = 0, last_s_ = 0, spent_s_ = 0;
};

}  // namespace gradmeter::bench
