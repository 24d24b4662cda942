// SPDX-License-Identifier: Apache-2.0
#include "runtime/clock.hpp"

#include <sched.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <limits>

namespace gradmeter::runtime {
namespace {

constexpr int first_trips = 30, later_trips = 10;
/// Least time between synchronisations [s], chosen so that they take some 0.3 % of the time on a thousand nodes.
constexpr double least_interval = 0.25;

double steady_clock() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// The injected drift: seconds since `begin` pass 1 + `excess` times as fast.
struct Drift {
  double begin = 0, excess = 0;
};
Drift drift;

/// The reference time as the answering rank knows it, and that rank's uncertainty.
struct Answer {
  double reference = 0, uncertainty = 0;
};

const double process_began = steady_clock();

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
    const double back = host_clock(), middle = (sent + back) / 2, error_bound = (back - sent) / 2 + a.uncertainty;
    if (error_bound < best.uncertainty)
      best = {.at = middle, .offset = a.reference - middle, .uncertainty = error_bound};
  }
  return best;
}

Communicator ranks_of_a_clock(const Communicator& c, std::optional<int> node) {
  const Communicator near = node ? c.split(*node, c.rank()) : c.split_by_node();
  return near.split(drift.excess != 0 ? near.rank() + 1 : 0, near.rank());
}

}  // namespace

double process_begin() { return process_began; }

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
  bool due = host_clock() - last_ >= least_interval;  // rank 0 decides for all, since clocks differ
  if (!leaders_.is_null()) due = leaders_.broadcast_value(due);
  if (peers_.broadcast_value(due)) synchronise(later_trips);
}

void SharedClock::synchronise(int trips) {
  Synchronisation mine;
  if (!leaders_.is_null()) {
    const int me = leaders_.rank(), n = leaders_.size();
    // In each round the first `synchronised` ranks are synchronised, and each answers one of the next `synchronised`
    // ranks.
    for (int synchronised = 1; synchronised < n; synchronised *= 2) {
      if (me < synchronised && me + synchronised < n) answer(leaders_, me + synchronised, model_, trips);
      if (me >= synchronised && me < 2 * synchronised) {
        mine = ask(leaders_, me - synchronised, trips);
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
  return clocks_ == 2 ? most : 2 * most;  // with two clocks, one is the reference
}

std::string_view name(Cadence c) {
  constexpr std::array<std::string_view, 3> names{"barrier", "none", "window"};
  return names[static_cast<std::size_t>(c)];
}

std::span<const Cadence> cadences() {
  static constexpr std::array table{Cadence::barrier, Cadence::none, Cadence::window};
  return table;
}

void Pacer::open(double window_s) {
  clock_.resynchronise();
  if (cadence_ != Cadence::window) return;
  // The first window opens a millisecond later, when this message has reached all ranks.
  opens_ = communicator_.broadcast_value(clock_.model().reference(host_clock()) + 1e-3);
  window_ = communicator_.broadcast_value(window_s);
}

bool Pacer::next() {
  if (cadence_ == Cadence::none) return true;
  if (cadence_ == Cadence::barrier) return communicator_.barrier(), true;
  const double opens = clock_.model().local(opens_);
  const bool in_time = host_clock() <= opens;
  while (host_clock() < opens) sched_yield();
  opens_ += window_;
  return in_time;
}

namespace {

/// The largest correction that a kernel may make to a clock: adjtimex(2), MAXFREQ. Crystals differ by a tenth of it.
constexpr double greatest_rate = 500e-6;
/// The number of latest synchronisations to which the line is fitted. Rates follow the temperature, so older ones say
/// little about the present rate.
constexpr std::size_t kept_synchronisations = 16;
/// The resolution of a clock [s]. Without this lower bound the weight of a synchronisation could be infinite.
constexpr double least_uncertainty = 1e-8;

double weight(const Synchronisation& s) {
  const double u = std::max(s.uncertainty, least_uncertainty);
  return 1 / (u * u);
}

}  // namespace

void DriftModel::add(const Synchronisation& s) {
  const bool off_the_line = std::fabs(s.offset - offset(s.at)) > uncertainty(s.at) + s.uncertainty;
  if (!latest_.empty() && off_the_line) latest_.erase(latest_.begin(), latest_.end() - 1);
  latest_.push_back(s);
  if (latest_.size() > kept_synchronisations) latest_.pop_front();
  fit();
}

void DriftModel::fit() {
  double weights = 0, at = 0, offset = 0, uncertainty = 0;
  // Computes with differences from the first synchronisation: the squares of times since the machine was started are so
  // large that no digits would be left for the differences.
  const Synchronisation& first = latest_.front();
  for (const auto& s : latest_) {
    const double w = weight(s);
    weights += w;
    at += w * (s.at - first.at);
    offset += w * (s.offset - first.offset);
    uncertainty += w * s.uncertainty;
  }
  at_ = first.at + at / weights;
  offset_ = first.offset + offset / weights;
  uncertainty_ = uncertainty / weights;
  // The rate that is assumed before any synchronisation counts as one more observation: 0 ± `greatest_rate`.
  double weighted_squares = 1 / (greatest_rate * greatest_rate), weighted_products = 0, rate_error = 1 / greatest_rate;
  for (const auto& s : latest_) {
    const double w = weight(s), distance = s.at - at_;
    weighted_squares += w * distance * distance;
    weighted_products += w * distance * (s.offset - offset_);
    rate_error += w * std::fabs(distance) * s.uncertainty;
  }
  rate_ = weighted_products / weighted_squares;
  rate_uncertainty_ = rate_error / weighted_squares;
}

double DriftModel::uncertainty(double at) const { return uncertainty_ + rate_uncertainty_ * std::fabs(at - at_); }

}  // namespace gradmeter::runtime
