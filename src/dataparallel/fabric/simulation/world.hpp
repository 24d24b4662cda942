// SPDX-License-Identifier: Apache-2.0
// Simulates hundreds of workers in one process, in virtual time; the tests run every strategy on it. Data really move,
// by the same schedules and in the same order as over real ranks. Only time is modelled.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "allreduce/registry.hpp"
#include "core/machine.hpp"
#include "dataparallel/fabric/fabric.hpp"

namespace gradmeter::dataparallel {

/// A message between the ports of two ranks, as the function that injects delivery faults sees it.
struct MessageRoute {
  int from = 0, to = 0;         ///< ranks in the world
  Role to_role = Role::server;  ///< role of the receiving port
  std::uint64_t number = 0;     ///< number among the sending port's messages to `to`, from 0
};

/// The number of copies in which a message is delivered, and their delays. Ports repeat lost messages and drop surplus
/// copies (`ReliablePort`), so that a fault costs only time.
struct DeliveryFault {
  int copies = 1;                          ///< 0: lost; 2: doubled
  std::array<double, 2> delay_s = {0, 0};  ///< delay of each copy; messages may overtake each other
};

/// The failure of a rank: at the time `at_s` its tasks end wherever they are, and messages that have not left are lost.
struct RankFailure {
  int rank = 0;  ///< in the world
  double at_s = 0;
};

/// The simulated machine, and its faults. The members that are functions must depend on their arguments alone, so that
/// a run depends on its inputs alone. A computation "forward.gemm" takes max(flops / rate of "gemm", bytes /
/// memory_bytes_per_s) · slowdown · (1 + noise · gaussian). A background task computes beside the worker without
/// slowing it down (unless `shared_cores` are given), but shares the rank's link, which sends one message at a time and
/// receives one at a time.
struct SimMachine {
  core::Machine machine{.within_node = {.latency_s = 2e-6, .bandwidth = {{.bytes_per_s = 1e10}}},
                        .reduce_bytes_per_s = 2e10,
                        .flops_per_s = 1e11,
                        .memory_bytes_per_s = 1e10};
  /// The algorithm of collectives; null: a ring. Kinds of collectives that it lacks also run as a ring, and broadcasts
  /// always as a binomial tree.
  allreduce::AlgorithmPtr algorithm = {};
  /// True: nothing is computed, and collectives and messages move no data. Times and bytes are then right only if the
  /// run's course does not depend on its data. For simulations of thousands of ranks.
  bool time_only = false;
  /// The codec of all-reduces with a tensor layout; it requires `time_only`. It takes time by the machine's rates:
  /// every rank encodes its own numbers, adds up the other ranks' encoded numbers for its block, encodes the block's
  /// sum, and decodes the whole sum. Null: no codec.
  compression::CodecChoicePtr codec = {};
  /// The length of the messages into which collectives cut buffers, by default that of transports inside a node
  /// [bytes].
  std::size_t message_bytes = std::size_t{256} << 10;
  /// The number of cores that all ranks share. Rank r and its background tasks compute on core r mod shared_cores; a
  /// core does one computation at a time, in the order in which they are asked for. By convention 0 means that every
  /// task has a core of its own.
  std::size_t shared_cores = 0;
  /// The factor by which computation n of a rank (from 0) is slowed down, for stragglers and jitter. Null: 1.
  std::function<double(int rank, std::uint64_t n)> slowdown = {};
  /// Like `slowdown`, but for the computations of background tasks, for slow servers. Null: 1.
  std::function<double(int rank, std::uint64_t n)> background_slowdown = {};
  /// The fault of a message between ports of different ranks. All other messages, and collectives, are reliable. Null:
  /// each message arrives once.
  std::function<DeliveryFault(const MessageRoute&)> delivery_fault = {};
  std::vector<RankFailure> failures = {};
};

class SimState;

class SimWorld {
 public:
  /// queues: the queue on which each worker computes, by worker; empty: work is done at once, on the host. The queues
  /// run in real time, so if a call does not wait for the work that it needs, it gets wrong data, as over real ranks.
  SimWorld(int workers, SimMachine, std::vector<runtime::Queue*> queues = {});
  ~SimWorld();
  SimWorld(const SimWorld&) = delete;
  SimWorld& operator=(const SimWorld&) = delete;
  /// Runs body(fabric) for every worker, one thread at a time in a deterministic order. Returns the virtual time at
  /// which each worker ended [s]. Equal inputs give equal runs, however busy the real machine is. Errors: what a body
  /// throws; std::logic_error if all threads wait, with a text that says who waits for what, and which ranks have
  /// failed.
  std::vector<double> run(const std::function<void(Fabric&)>& body);

 private:
  std::unique_ptr<SimState> state_;
  std::vector<runtime::Queue*> queues_;
};

}  // namespace gradmeter::dataparallel
