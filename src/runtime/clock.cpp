#include "runtime/clock.hpp"

#include <chrono>
#include <limits>

namespace gradmeter::runtime {
namespace {

constexpr int trips = 30;
constexpr int tag = 0;

void answer(const Communicator& c, int peer) {
  for (int i = 0; i < trips; ++i) {
    double time = 0;
    check_mpi(MPI_Recv(&time, 1, MPI_DOUBLE, peer, tag, c.get(), MPI_STATUS_IGNORE), "MPI_Recv");
    time = host_clock();
    check_mpi(MPI_Send(&time, 1, MPI_DOUBLE, peer, tag, c.get()), "MPI_Send");
  }
}

ClockOffset ask(const Communicator& c) {
  ClockOffset best{0, std::numeric_limits<double>::infinity()};
  for (int i = 0; i < trips; ++i) {
    const double sent = host_clock();
    double theirs = sent;
    check_mpi(MPI_Send(&theirs, 1, MPI_DOUBLE, 0, tag, c.get()), "MPI_Send");
    check_mpi(MPI_Recv(&theirs, 1, MPI_DOUBLE, 0, tag, c.get(), MPI_STATUS_IGNORE), "MPI_Recv");
    const double back = host_clock();
    if (const double half = (back - sent) / 2; half < best.uncertainty_s) best = {theirs - (sent + back) / 2, half};
  }
  return best;
}

double steady_clock() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// What is injected. Seconds since `begin` pass 1 + `excess` times as fast.
struct Drift {
  double begin = 0, excess = 0;
};
Drift drift;

}  // namespace

double host_clock() {
  const double now = steady_clock();
  return now + (now - drift.begin) * drift.excess;
}

void inject_clock_drift(double ppm) { drift = {.begin = steady_clock(), .excess = ppm * 1e-6}; }

ClockOffset measure_clock_offset(const Communicator& c) {
  const Communicator node = c.split_by_node();
  const bool with_root = node.broadcast_value(c.rank()) == 0;  // the node's lowest rank
  const auto apart = c.all_gather_value(static_cast<char>(!with_root));
  ClockOffset mine;
  for (int r = 1; r < c.size(); ++r) {
    if (!apart[static_cast<std::size_t>(r)]) continue;
    if (c.rank() == 0) answer(c, r);
    if (c.rank() == r) mine = ask(c);
  }
  return mine;
}

}  // namespace gradmeter::runtime
