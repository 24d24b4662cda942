#include "bench/engine/rebuilding.hpp"

#include "runtime/time/clock.hpp"

namespace gradmeter::bench {
namespace {

constexpr double share = 0.2;  ///< of all time, for building

}  // namespace

void Rebuilding::build(const std::function<void()>& make) {
  const double begin = runtime::host_clock();
  draw_pads();
  make();
  last_s_ = runtime::host_clock() - begin;
  spent_s_ += last_s_;
}

void Rebuilding::start() {
  begin_ = runtime::host_clock();
  spent_s_ = 0;
}

bool Rebuilding::has_time(const runtime::Communicator& c) const {
  return c.broadcast_value(spent_s_ + last_s_ <= share * (runtime::host_clock() - begin_));
}

/// Small ones move what lies in the heap, large ones what has a mapping of its own. They are written, so that they take
/// pages.
void Rebuilding::draw_pads() {
  constexpr std::size_t each = 2, small = std::size_t{32} << 10, large = std::size_t{1} << 20;
  pads_.clear();
  for (std::size_t i = 0; i < 2 * each; ++i) {
    pads_.emplace_back(1 + random_.below(drawn_++, i < each ? small : large), std::byte{1});
  }
}

}  // namespace gradmeter::bench
