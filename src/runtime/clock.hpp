// One clock for all ranks: how far each host's monotonic clock is from rank 0's, and how sure that is.
#pragma once
#include "runtime/mpi.hpp"

namespace gradmeter::runtime {

/// This host's monotonic clock [s].
double host_clock();
/// From now on `host_clock` of this process alone runs fast by so many parts in a million. Once, before anything is
/// measured and before there are other threads.
void inject_clock_drift(double ppm);

/// Adds the time of its scope to a sum [s].
class Timed {
 public:
  explicit Timed(double& sum) : sum_(sum), begin_(host_clock()) {}
  ~Timed() { sum_ += host_clock() - begin_; }
  Timed(const Timed&) = delete;
  Timed& operator=(const Timed&) = delete;

 private:
  double& sum_;
  double begin_;
};

/// rank 0's clock = host_clock() + offset, give or take the uncertainty. Ranks on rank 0's host: 0 and 0.
struct ClockOffset {
  double offset_s = 0, uncertainty_s = 0;
};

/// Collective. Ping-pong with rank 0, the fastest of 30 trips counts; its half is the uncertainty.
/// Source: Hunold & Carpen-Amarie, "On the impact of synchronizing clocks", EuroMPI 2015, section 2.
ClockOffset measure_clock_offset(const Communicator&);

}  // namespace gradmeter::runtime
