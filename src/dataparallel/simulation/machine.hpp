// The simulated machine, and the faults on it. Functions must depend on their arguments alone, so that a run depends on
// its inputs alone.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "allreduce/registry.hpp"
#include "core/machine.hpp"
#include "dataparallel/message.hpp"

namespace gradmeter::dataparallel {

/// A message between the ports of two ranks, for the function that injects delivery faults.
struct MessageRoute {
  int from = 0, to = 0;         ///< ranks in the world
  Role to_role = Role::server;  ///< whose port it goes to
  std::uint64_t number = 0;     ///< of this port's messages to that rank, from 0
};

/// How a message is delivered: so many copies, each with so much delay. The ports make up for it (`ReliablePort`), so
/// it costs time alone.
struct DeliveryFault {
  int copies = 1;                          ///< 0: lost; 2: doubled
  std::array<double, 2> delay_s = {0, 0};  ///< messages may overtake each other
};

/// From this time on the rank is dead: its tasks end wherever they are, and messages that have not left by then are
/// lost.
struct RankFailure {
  int rank = 0;  ///< in the world
  double at_s = 0;
};

/// A computation "forward.gemm" takes max(flops / rate of "gemm", bytes / memory_bytes_per_s) · slowdown · (1 + noise ·
/// gaussian). A background task has
/// arithmetic units of its own, but shares the link: a rank sends one message at a time, and receives one at a time.
struct SimMachine {
  core::Machine machine{.within_node = {.latency_s = 2e-6, .bandwidth = {{.bytes_per_s = 1e10}}},
                        .reduce_bytes_per_s = 2e10,
                        .flops_per_s = 1e11,
                        .memory_bytes_per_s = 1e10};
  allreduce::AlgorithmPtr algorithm = {};  ///< of collectives that it has; null, or for others: ring
  /// Nothing is computed, and collectives and messages between ranks move no numbers: times and bytes are those of a
  /// run whose course does not depend on its numbers. For thousands of ranks.
  bool time_only = false;
  /// Of all-reduces with a tensor layout, where only time is simulated: every rank encodes its numbers and its share of
  /// the sum, adds what comes encoded, and decodes the sum, at the machine's rates for it. Null: none.
  compression::CodecChoicePtr codec = {};
  /// The length at which collectives cut buffers, as transports inside a node do [bytes].
  std::size_t message_bytes = std::size_t{256} << 10;
  /// Of a rank's n-th computation (from 0): stragglers and jitter. Null: 1.
  std::function<double(int rank, std::uint64_t n)> slowdown = {};
  /// The same for background tasks: slow servers.
  std::function<double(int rank, std::uint64_t n)> background_slowdown = {};
  /// For messages between ports: collectives, sends and messages to the own rank are reliable. Null: each arrives once.
  std::function<DeliveryFault(const MessageRoute&)> delivery_fault = {};
  std::vector<RankFailure> failures = {};
};

}  // namespace gradmeter::dataparallel
