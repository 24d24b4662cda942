// Plays the faults that a user asked for: a rank that computes slowly, and results that are wrong.
#pragma once
#include <atomic>
#include <memory>
#include <optional>
#include <unordered_map>

#include "core/injection.hpp"
#include "dataparallel/forwarding.hpp"

namespace gradmeter::dataparallel {

/// The calls of one rank from a certain one on. Any thread.
class FaultyCalls {
 public:
  /// Null: none is faulty.
  explicit FaultyCalls(std::optional<std::uint64_t> first = {}) : first_(first) {}
  /// Counts a call with data; its number, if it is to go wrong.
  std::optional<std::uint64_t> next() {
    const std::uint64_t number = calls_.fetch_add(1, std::memory_order_relaxed);
    return first_ && number >= *first_ ? std::optional(number) : std::nullopt;
  }

 private:
  std::optional<std::uint64_t> first_;
  std::atomic<std::uint64_t> calls_{0};
};

/// A fabric with faults; it passes on everything else. Computations, of programs beside the worker too, last `slow`
/// times as long: the thread spins on behind the work. Of a faulty call one element of the result is wrong on this
/// rank, at a place that depends on the call's number: 1 is added to it, and where that changes nothing, or the type is
/// not fp32, its lowest bit differs. Faulty are collectives (of a reduce-scatter the rank's own block), what `receive`
/// brings, and mail with a payload that this rank posts, worker or server. Calls are counted from 0 in the order of
/// posting, those without data left out. A sum (all-reduce, reduce-scatter) that is to be dropped is given zeros by
/// this rank; sums are counted by themselves.
class Injecting final : public Forwarding {
 public:
  Injecting(Fabric& inner, double slow, std::shared_ptr<FaultyCalls> calls,
            std::optional<std::uint64_t> first_dropped = {})
      : Forwarding(inner), slow_(slow), calls_(std::move(calls)), dropped_(first_dropped) {}
  /// What `injection` holds for this rank of the world.
  Injecting(Fabric& inner, const core::Injection& injection, int rank);

  Ticket all_reduce(Group, Buffer, allreduce::Op, Ready, const allreduce::TensorLayout&) override;
  Ticket reduce_scatter(Group, Buffer, allreduce::Op, Ready) override;
  Ticket all_gather(Group, Buffer, Ready) override;
  Ticket broadcast(Group, Buffer, int root, Ready) override;
  Ticket receive(Group, int peer, Buffer) override;
  void wait(const Ticket&) override;
  Ports open(Group, const PortOptions&) override;
  std::unique_ptr<BackgroundTask> launch(std::function<void(Fabric&)> program) override;
  void compute(std::string_view label, model::Cost, const std::function<void()>& work) override;

 private:
  Ticket watch(Ticket, Buffer result);
  void drop(Buffer given);
  struct Fault {
    Buffer result;
    std::uint64_t number;
  };
  double slow_;
  std::shared_ptr<FaultyCalls> calls_;
  FaultyCalls dropped_;                                 ///< sums that lack this rank's contribution; its own thread's
  std::unordered_map<const Operation*, Fault> faults_;  ///< of calls under way
};

}  // namespace gradmeter::dataparallel
