#include "runtime/time/clock.hpp"

#include <chrono>
#include <limits>

namespace gradmeter::runtime {
namespace {

constexpr int first_trips = 30, later_trips = 10;
/// [s] between synchronisations: some 0.3 % of the time on a thousand nodes.
constexpr double interval = 0.25;

double steady_clock() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// What is injected. Seconds since `begin` pass 1 + `excess` times as fast.
struct Drift {
  double begin = 0, excess = 0;
};
Drift drift;

/// The reference clock, and how sure the one who answers is of it.
struct Answer {
  double reference = 0, uncertainty = 0;
};

void answer(const Communicator& c, int peer, const DriftModel& model, int trips) {
  for (int i = 0; i < trips; ++i) {
    c.member().receive(peer, {});
    const double now = host_clock();
    c.send_value(peer, Answer{model.reference(now), model.uncertainty(now)});
  }
}

Synchronisation ask(const Communicator& c, int peer, int trips) {
  Synchronisation best{.uncertainty = std::numeric_limits<double>::infinity()};
  for (int i = 0; i < trips; ++i) {
    const double sent = host_clock();
    c.member().send(peer, {});
    const auto a = c.receive_value<Answer>(peer);
    const double back = host_clock(), middle = (sent + back) / 2, doubt = (back - sent) / 2 + a.uncertainty;
    if (doubt < best.uncertainty) best = {.at = middle, .offset = a.reference - middle, .uncertainty = doubt};
  }
  return best;
}

Communicator ranks_of_a_clock(const Communicator& c, std::optional<int> node) {
  const Communicator near = node ? c.split(*node, c.rank()) : c.split_by_node();
  return near.split(drift.excess != 0 ? near.rank() + 1 : 0, near.rank());
}

}  // namespace

double host_clock() {
  const double now = steady_clock();
  return now + (now - drift.begin) * drift.excess;
}

void inject_clock_drift(double ppm) { drift = {.begin = steady_clock(), .excess = ppm * 1e-6}; }

SharedClock::SharedClock(const Communicator& c, std::optional<int> node)
    : peers_(ranks_of_a_clock(c, node)),
      leaders_(c.split(peers_.rank() == 0 ? 0 : -1, c.rank())),
      clocks_(peers_.broadcast_value(leaders_.size())) {
  if (clocks_ > 1) synchronise(first_trips);
}

void SharedClock::resynchronise() {
  if (clocks_ == 1) return;
  bool due = host_clock() - last_ >= interval;  // rank 0 says so: the others' clocks run otherwise
  if (!leaders_.is_null()) due = leaders_.broadcast_value(due);
  if (peers_.broadcast_value(due)) synchronise(later_trips);
}

void SharedClock::synchronise(int trips) {
  Synchronisation mine;
  if (!leaders_.is_null()) {
    const int me = leaders_.rank(), n = leaders_.size();
    // In each round those below `known` serve as many others.
    for (int known = 1; known < n; known *= 2) {
      if (me < known && me + known < n) answer(leaders_, me + known, model_, trips);
      if (me >= known && me < 2 * known) {
        mine = ask(leaders_, me - known, trips);
        model_.add(mine);
      }
    }
  }
  mine = peers_.broadcast_value(mine);
  if (leaders_.is_null() && mine.uncertainty > 0) model_.add(mine);
  last_ = host_clock();
}

double SharedClock::pair_uncertainty() const {
  if (clocks_ == 1) return 0;
  double most = model_.uncertainty(host_clock());
  if (!leaders_.is_null()) most = leaders_.max(most);
  most = peers_.broadcast_value(most);
  return clocks_ == 2 ? most : 2 * most;  // of two clocks one is the reference
}

}  // namespace gradmeter::runtime
