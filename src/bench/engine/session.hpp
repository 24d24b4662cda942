// SPDX-License-Identifier: Apache-2.0
// The session of one rank: the world, this host, the device, and what watches over the process.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/engine/node_map.hpp"
#include "core/result.hpp"
#include "core/units.hpp"
#include "runtime/communicator.hpp"
#include "runtime/cuda/nvml.hpp"
#include "runtime/device.hpp"
#include "runtime/host/host.hpp"
#include "runtime/process/signals.hpp"
#include "runtime/process/watchdog.hpp"

namespace gradmeter::bench {

/// The watchers of a process, which its ranks share. Both are made before MPI starts.
struct ProcessWatch {
  runtime::SignalWatch& signals;
  runtime::Watchdog& watchdog;
};

/// Keeps the watchers of a process informed of what a rank does, for reports of a hang or of a signal.
class WatchedActivity {
 public:
  /// activity: must outlive this object. timeout: the longest time for which the rank may make no progress.
  WatchedActivity(const ProcessWatch&, runtime::Activity& activity, int rank, core::Seconds timeout);
  ~WatchedActivity();
  WatchedActivity(const WatchedActivity&) = delete;
  WatchedActivity& operator=(const WatchedActivity&) = delete;
  const runtime::SignalWatch& signals() const { return process_.signals; }

 private:
  const ProcessWatch process_;
  runtime::Activity& activity_;
};

/// The session of one rank, until the end of its work. Making it is collective over the world.
class Session {
 public:
  /// `world` is duplicated. `process`: the watchers of this process. timeout: the longest time for which a rank may
  /// make no progress.
  Session(const runtime::Communicator& world, const ProcessWatch& process, core::Seconds timeout, std::string command);
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  const runtime::Communicator& world() const { return world_; }
  runtime::Activity& activity() { return activity_; }
  /// The device that this rank computes on: the host, unless `compute_on` was called before its first computation.
  runtime::Device& device() const { return device_ ? *device_ : runtime::host_device(); }
  bool on_host() const { return &device() == &runtime::host_device(); }
  /// note: text that readers of this rank's results need; empty: none.
  /// gauge: the gauge of `device`; null: there is nothing to read.
  void compute_on(std::shared_ptr<runtime::Device> device, std::string note,
                  std::shared_ptr<const runtime::GpuGauge> gauge) {
    device_ = std::move(device);
    device_note_ = std::move(note);
    gpu_gauge_ = std::move(gauge);
  }
  const runtime::GpuGauge* gpu_gauge() const { return gpu_gauge_.get(); }
  const std::string& device_note() const { return device_note_; }
  const runtime::HostFacts& host() const { return host_; }
  /// The head line of this run in the result file. It is the same on every rank, except for the facts of the rank's
  /// host and for what `read_mpi_copy_mechanism` adds.
  const core::RunInfo& run_info() const { return run_info_; }
  /// Adds `MpiSession::single_copy` to the head line of rank 0. Reading it takes a while, so this is only called where
  /// the head line is written.
  void read_mpi_copy_mechanism();
  /// The seed of random choices that differ between runs, such as the timed calls that are checked; the same on every
  /// rank.
  std::uint64_t run_seed() const;
  bool is_root() const { return world_.rank() == 0; }
  /// The number of processing units that a node gives to the job (cores, or hardware threads where cores have several);
  /// the least of all nodes.
  int cores_per_node() const { return cores_per_node_; }
  /// The node of every rank of the world; a node's number is its lowest rank.
  const NodeMap& map() const { return map_; }
  /// The ranks of the world on which a point with `ranks` ranks is measured, in the order of its communicator; the same
  /// on every rank.
  std::vector<int> ranks_for(int ranks, Placement p = Placement::packed) const { return map_.ranks_for(ranks, p); }
  NodeMap map_for(int ranks, Placement p = Placement::packed) const { return map_.of(ranks_for(ranks, p)); }
  /// The number of ranks on the fullest node of a point with `ranks` ranks, and the number of the point's nodes.
  int ranks_per_node(int ranks, Placement p = Placement::packed) const { return map_for(ranks, p).ranks_per_node(); }
  int nodes(int ranks, Placement p = Placement::packed) const { return map_for(ranks, p).nodes(); }
  /// The host of a rank of the world. Cost: O(log nodes).
  const std::string& host_of(int rank) const;
  /// The free memory of a node [bytes]; the least of all nodes.
  std::size_t free_memory_per_node() const { return free_memory_per_node_; }
  /// The shared memory that is free for the arenas of a node's ranks, beside MPI's own segments [bytes]; the least of
  /// all nodes. Unlimited (SIZE_MAX) where ranks are threads, or where a host does not tell.
  std::size_t free_shm_per_node() const { return free_shm_per_node_; }

  /// Collective over `c`: throws Interrupted on all of its ranks when any of them has seen a signal.
  void stop_if_interrupted(const runtime::Communicator& c) const;
  /// As `stop_if_interrupted`, for use between two points: it also obeys a scheduler's warning (SIGUSR1, SIGUSR2,
  /// SIGXCPU).
  void stop_between_points(const runtime::Communicator& c) const;

 private:
  void describe(std::string command, const runtime::Communicator& node);

  std::shared_ptr<runtime::Device> device_;  ///< null: the host
  std::string device_note_;
  std::shared_ptr<const runtime::GpuGauge> gpu_gauge_;
  runtime::Communicator world_;
  runtime::Activity activity_;
  WatchedActivity watched_;
  runtime::HostFacts host_;
  NodeMap map_;
  std::optional<NodeIndices> node_indices_;
  int cores_per_node_ = 1;
  std::size_t free_memory_per_node_ = 0, free_shm_per_node_ = SIZE_MAX;
  core::RunInfo run_info_;
};

/// The number of processing units that the ranks of a node may use together, at least 1. A launcher may bind each rank
/// to units of its own, or let ranks share units; shared ones count once. The CPU quota of their control group limits
/// all of them together. host: this rank's own facts. Collective over `node`.
std::size_t units_of_job(const runtime::Communicator& node, const runtime::HostFacts& host);

/// The nodes of the session's ranks, or the fake ones (`fake`, by rank). Errors: UsageError when `fake` does not have
/// one node for each rank.
NodeMap find_nodes(const Session&, const std::vector<int>& fake);

// The head line of a run in the result file, as far as one process knows it.

/// The time now in UTC, as text: "2026-11-26T17:05:19Z".
std::string utc_now();

/// The complete head line of a process that measures alone: one rank on one node. It needs no MPI session.
core::RunInfo describe_process(const runtime::HostFacts&, std::string command);

}  // namespace gradmeter::bench
