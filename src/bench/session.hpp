// What every experiment over ranks needs: the world, this host, who watches over it.
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "core/result.hpp"
#include "core/units.hpp"
#include "runtime/activity.hpp"
#include "runtime/host.hpp"
#include "runtime/mpi.hpp"
#include "runtime/signals.hpp"
#include "runtime/watchdog.hpp"

namespace gradmeter::bench {

/// Collective. Made after MPI is up; lives until the end of the program.
class Session {
 public:
  /// `signals` was made before MPI started. timeout: how long a rank may be silent.
  Session(runtime::SignalWatch& signals, core::Seconds timeout, std::string command);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  const runtime::Communicator& world() const { return world_; }
  runtime::Activity& activity() { return activity_; }
  const runtime::HostFacts& host() const { return host_; }
  /// What heads this run in the result file. The same on every rank but for the host.
  const core::RunInfo& run_info() const { return run_info_; }
  bool is_root() const { return world_.rank() == 0; }
  /// Cores that this rank's node gives to the job (the least of all nodes).
  int cores_per_node() const { return cores_per_node_; }
  /// Ranks on the fullest node among the first `ranks` of the world, and how many nodes they span.
  int ranks_per_node(int ranks) const;
  int nodes(int ranks) const;
  /// The node of each of the first `ranks` ranks, numbered by lowest rank.
  std::span<const int> nodes_of(int ranks) const { return std::span(node_of_).first(static_cast<std::size_t>(ranks)); }
  std::size_t memory_per_node() const { return memory_per_node_; }

  /// A signal that this rank has seen, or 0. Not collective.
  int pending_signal() const { return signals_.pending(); }
  /// Collective over `c`: throws Interrupted on all of its ranks when any of them has seen a signal.
  void stop_if_interrupted(const runtime::Communicator& c) const;

 private:
  void describe(std::string command);

  runtime::SignalWatch& signals_;
  runtime::Communicator world_;
  runtime::Activity activity_;
  runtime::HostFacts host_;
  std::unique_ptr<runtime::Watchdog> watchdog_;
  std::vector<int> node_of_;  ///< by world rank
  int cores_per_node_ = 1;
  std::size_t memory_per_node_ = 0;
  core::RunInfo run_info_;
};

}  // namespace gradmeter::bench
