// SPDX-License-Identifier: Apache-2.0
// Injects the faults that a user asked for: a rank that computes slowly, and results that are wrong.
#pragma once
#include <atomic>
#include <map>
#include <memory>
#include <optional>

#include "core/injection.hpp"
#include "dataparallel/fabric/fabric.hpp"

namespace gradmeter::dataparallel {

/// Says which calls of one rank are faulty: all calls from a given number on. Any thread may use it.
class FaultyCalls {
 public:
  /// first: the number of the first faulty call; empty: no call is faulty.
  explicit FaultyCalls(std::optional<std::uint64_t> first = {}) : first_(first) {}
  /// Counts one call; callers count only calls with data. Returns its number if it is to be faulty, else empty.
  std::optional<std::uint64_t> count_call() {
    const std::uint64_t number = calls_.fetch_add(1, std::memory_order_relaxed);
    return first_ && number >= *first_ ? std::optional(number) : std::nullopt;
  }

 private:
  std::optional<std::uint64_t> first_;
  std::atomic<std::uint64_t> calls_{0};
};

/// A fabric that forwards all calls and injects faults:
/// - Slow rank: computations, also those of background tasks, last `Slow::factor` times as long, because the thread
///   spins after the work.
/// - Wrong results: a faulty call has one wrong element in its result on this rank; which one depends on the call's
///   number. 1 is added to the element; if that changes nothing, or if the type is not fp32, its lowest bit is flipped.
///   (In an encoded payload the lowest bit of the last byte is flipped.) Three kinds of calls can be faulty:
///   collectives (in a reduce-scatter the element is in the rank's own block), receives, and messages with a payload
///   that a port of this rank posts. These calls are counted together, from 0, in the order of posting.
/// - Omitted contributions: this rank contributes zeros to all-reduces and reduce-scatters, which have a count of their
///   own.
class FaultInjector final : public ForwardingFabric {
 public:
  /// Injects the faults of `injection` that name `rank`, this rank's number in the world.
  FaultInjector(Fabric& inner, const core::Injection& injection, int rank);

  Ticket start(const FabricCall&) override;
  void wait(const Ticket&) override;
  Ports open(Group, const PortOptions&) override;
  std::unique_ptr<BackgroundTask> launch(BackgroundProgram) override;
  void submit(std::string_view label, runtime::Cost, const runtime::Work& work) override;

 private:
  /// Counts a call that was started; if it is to be faulty, notes this for `wait`.
  Ticket watch(Ticket, Buffer result);
  /// Zeroes this rank's contribution if the call is one of those to omit.
  void omit(Buffer contribution);
  struct Fault {
    Buffer result;
    std::uint64_t number;
  };
  double slowdown_;
  std::shared_ptr<FaultyCalls> calls_;  ///< the calls with a wrong result; shared with this rank's ports
  /// The all-reduces and reduce-scatters to which this rank does not contribute. Used by the rank's own thread alone.
  FaultyCalls omitted_;
  std::map<Ticket, Fault> faults_;  ///< the faults of calls under way
};

}  // namespace gradmeter::dataparallel
