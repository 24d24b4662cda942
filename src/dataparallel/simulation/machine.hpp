// What the virtual machine is like, and what goes wrong on it. Functions must depend on their arguments alone: then a
// run is a pure function of its inputs.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "allreduce/registry.hpp"
#include "allreduce/schedule/hockney.hpp"
#include "dataparallel/message.hpp"

namespace gradmeter::dataparallel {

/// A message between the ports of two ranks, for whoever decides what becomes of it.
struct MessageRoute {
  int from = 0, to = 0;         ///< ranks of everybody
  Role to_role = Role::server;  ///< whose port it goes to
  std::uint64_t number = 0;     ///< of this port's messages to that rank, from 0
};

/// What becomes of a message: so many copies come, each so much later than it would have.
struct DeliveryFault {
  int copies = 1;                          ///< 0: lost; 2: doubled
  std::array<double, 2> delay_s = {0, 0};  ///< messages may overtake each other
};

/// From this time on the rank is gone: its programs end in the midst of what they do, and a message that has not left
/// by then never comes.
struct RankFailure {
  int rank = 0;  ///< of everybody
  double at_s = 0;
};

/// A computation takes max(flops / flops_per_s, bytes / bytes_per_s) · slowdown. A program beside a worker has
/// arithmetic units of its own; the link it shares: a rank sends one message at a time, and takes in one at a time.
struct SimMachine {
  double flops_per_s = 1e11, bytes_per_s = 1e10;
  allreduce::LinkModel link{.latency_s = 2e-6, .bytes_per_s = 1e10, .reduce_bytes_per_s = 2e10};
  allreduce::AlgorithmPtr algorithm = {};  ///< of all collectives that it has; null, or it has not: ring
  /// What collectives are cut into, as transports inside a node do it [bytes].
  std::size_t message_bytes = std::size_t{256} << 10;
  /// Of a rank's n-th computation (from 0): stragglers and jitter. Null: 1.
  std::function<double(int rank, std::uint64_t n)> slowdown = {};
  /// The same for the programs beside the workers: slow servers.
  std::function<double(int rank, std::uint64_t n)> background_slowdown = {};
  /// Of mail alone: collectives, sends and what a rank writes to itself are reliable. Null: every message comes once.
  std::function<DeliveryFault(const MessageRoute&)> delivery_fault = {};
  std::vector<RankFailure> failures = {};
};

}  // namespace gradmeter::dataparallel
