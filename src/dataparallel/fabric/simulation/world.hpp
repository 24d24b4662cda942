// SPDX-License-Identifier: Apache-2.0
// Simulates hundreds of workers in one process, in virtual time; the tests run every strategy here. Data really move,
// by the same schedules and in the same order as over ranks. Only time is modelled.
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
  Role to_role = Role::server;  ///< role of the port that it goes to
  std::uint64_t number = 0;     ///< number among this port's messages to that rank, from 0
};

/// How a message is delivered: the number of copies, and the delay of each. The ports correct losses and copies
/// (`ReliablePort`), so that a fault costs only time.
struct DeliveryFault {
  int copies = 1;                          ///< 0: lost; 2: doubled
  std::array<double, 2> delay_s = {0, 0};  ///< delay of each copy; messages may overtake each other
};

/// A rank that fails at some time: its tasks end wherever they are, and messages that have not left by then are lost.
struct RankFailure {
  int rank = 0;  ///< in the world
  double at_s = 0;
};

/// The simulated machine, and the faults on it. Functions must depend on their arguments alone, so that a run depends
/// on its inputs alone. A computation "forward.gemm" takes max(flops / rate of "gemm", bytes / memory_bytes_per_s) ·
/// slowdown · (1 + noise · gaussian). A background task has its own arithmetic units, but shares the rank's link, which
/// sends one message at a time and receives one at a time.
struct SimMachine {
  core::Machine machine{.within_node = {.latency_s = 2e-6, .bandwidth = {{.bytes_per_s = 1e10}}},
                        .reduce_bytes_per_s = 2e10,
                        .flops_per_s = 1e11,
                        .memory_bytes_per_s = 1e10};
  /// The algorithm of collectives; null: a ring. Collectives that it does not serve also run as a ring.
  allreduce::AlgorithmPtr algorithm = {};
  /// True: nothing is computed, and collectives and messages move no data. Times and bytes are right only for a run
  /// whose course does not depend on its numbers. It is meant for thousands of ranks.
  bool time_only = false;
  /// The codec of all-reduces with a tensor layout, of which only the time is simulated: at the machine's rates for the
  /// codec, every rank encodes its numbers and its block of the sum, adds up the encoded numbers of others, and decodes
  /// the sum. Null: no codec.
  compression::CodecChoicePtr codec = {};
  /// The message length at which collectives cut buffers, as transports inside a node do [bytes].
  std::size_t message_bytes = std::size_t{256} << 10;
  /// Cores that all ranks share: rank r and its background tasks compute on core r mod so many, one computation at a
  /// time in the order in which they ask. 0: each has a core of its own.
  std::size_t shared_cores = 0;
  /// The slowdown of a rank's n-th computation (from 0), for stragglers and jitter. Null: 1.
  std::function<double(int rank, std::uint64_t n)> slowdown = {};
  /// The slowdown of background tasks' computations, for slow servers. Null: 1.
  std::function<double(int rank, std::uint64_t n)> background_slowdown = {};
  /// The fault of a message between ports. Collectives, sends and messages to the own rank are reliable. Null: each
  /// message arrives once.
  std::function<DeliveryFault(const MessageRoute&)> delivery_fault = {};
  std::vector<RankFailure> failures = {};
};

class SimState;

class SimWorld {
 public:
  /// queues: the queue on which each worker computes, by worker; empty: work is done at once, on the host. Queues are
  /// real here, so a call that does not wait for work that it needs gets wrong data.
  SimWorld(int workers, SimMachine, std::vector<runtime::Queue*> queues = {});
  ~SimWorld();
  SimWorld(const SimWorld&) = delete;
  SimWorld& operator=(const SimWorld&) = delete;
  /// Runs body(fabric) for every worker, one thread at a time in a deterministic order. Returns each worker's end time
  /// [s].
  /// Equal inputs give equal runs, however busy the real machine is.
  /// Errors: what a body throws; std::logic_error when all wait, with a text that says who waits for what, and who
  /// died.
  std::vector<double> run(const std::function<void(Fabric&)>& body);

 private:
  std::unique_ptr<SimState> state_;
  std::vector<runtime::Queue*> queues_;
};

}  // namespace gradmeter::dataparallel
