// How a reference clock runs against this process' own: a straight line through what synchronisations found.
#pragma once
#include <cstddef>
#include <deque>

namespace gradmeter::runtime {

/// At `at` of the own clock the reference was ahead by `offset`, surely within `uncertainty` [s].
struct Synchronisation {
  double at = 0, offset = 0, uncertainty = 0;
};

/// Without any synchronisation the own clock is the reference: offset and uncertainty are 0.
/// The line is a least-squares fit of the latest synchronisations, weighted by their uncertainties, with a rate between
/// clocks that is within 500 ppm before anything is known. As far as the rate is constant, the uncertainty is a bound,
/// not a standard deviation: it takes every synchronisation to be as wrong as it may be.
/// Source: Hunold & Carpen-Amarie, "Hierarchical clock synchronization in MPI", CLUSTER 2018 (linear clock models).
class DriftModel {
 public:
  /// In order of time. One that cannot lie on the line, since the rate has changed, ends it: a new line starts at the
  /// synchronisation before.
  void add(const Synchronisation&);

  double offset(double at) const { return offset_ + rate_ * (at - at_); }
  /// Grows with the time since the synchronisations by what the rate may be wrong.
  double uncertainty(double at) const;
  /// The reference clock's time at a time of the own clock, and the other way round.
  double reference(double at) const { return at + offset(at); }
  double local(double reference) const { return at_ + (reference - at_ - offset_) / (1 + rate_); }

 private:
  void fit();

  std::deque<Synchronisation> latest_;
  double at_ = 0, offset_ = 0, uncertainty_ = 0;  ///< in the middle of the synchronisations
  double rate_ = 0, rate_uncertainty_ = 0;        ///< seconds in a second
};

}  // namespace gradmeter::runtime
