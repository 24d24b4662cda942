// SPDX-License-Identifier: Apache-2.0
// The registry of algorithms. To add an algorithm, define its row (AlgorithmInfo) beside its code, and name that row in
// registry.cpp.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "allreduce/executor/executor.hpp"
#include "allreduce/request.hpp"
#include "allreduce/schedule/schedule.hpp"
#include "core/injection.hpp"
#include "runtime/communicator.hpp"
#include "runtime/transport/network.hpp"

namespace gradmeter::allreduce {

/// A rank's connection to the group in which a collective is to run: the group's communicator, the network by which its
/// ranks reach each other, and the transport of the collective's messages.
struct GroupConnection {
  const runtime::Communicator& communicator;
  runtime::Network& network;
  runtime::Transport& transport;
};

std::span<const AlgorithmInfo> algorithms();

struct TableUse;
class AlgorithmChoice;
using AlgorithmPtr = std::shared_ptr<const AlgorithmChoice>;

/// An algorithm as a user named it, checked, with every parameter written out.
class AlgorithmChoice {
 public:
  /// With `table`, the choice is a selection by that table, and its name is the table's text. With `machine`, the
  /// choice is a selection by a table that the cost model predicts for this machine and the ranks of each request.
  AlgorithmChoice(const AlgorithmInfo&, core::ParsedName, std::shared_ptr<const SizeTable> table = {},
                  std::shared_ptr<const core::Machine> machine = {});
  const std::string name;  ///< canonical: equal names mean the same algorithm and parameters
  const AlgorithmInfo& info() const { return info_; }
  bool is_vendor() const { return info_.backend == Backend::vendor; }
  bool uses_transport() const { return info_.backend != Backend::vendor && info_.backend != Backend::device; }
  /// The reason why this transport does not suit the algorithm; empty: it suits. A transport for messages from a
  /// device's memory does not suit an algorithm that sends no such messages.
  std::string transport_refusal(runtime::TransportKind) const;
  /// True if the algorithm, bound with a device's queue, itself moves and sums the device's memory; other algorithms
  /// are given host memory.
  bool works_on_devices() const { return info_.on_device || has_schedule(); }
  bool has_schedule() const { return info_.backend == Backend::schedule; }
  /// True for `auto` that was named without a table or machine file. It chooses by the shipped tables, or by tuned
  /// ones.
  bool is_plain_auto() const { return info_.backend == Backend::selection && !table_ && !machine_; }
  /// Returns a plain `auto` of the same name that also has these tuned tables. A call is served by the tuned table that
  /// was made for such calls (TableUse), or by a shipped table if there is none.
  AlgorithmPtr tuned(std::shared_ptr<const TunedTables>) const;
  /// The hash of the tuned table that serves such calls; empty: there is none.
  std::string tuned_hash(const TableUse&) const;

  Request request(RankShape, CollectiveKind = CollectiveKind::all_reduce, std::uint32_t root = 0) const;
  /// The reason why the algorithm cannot serve these ranks; empty: it can.
  std::string refusal(RankShape, CollectiveKind = CollectiveKind::all_reduce, Arithmetic = {}) const;
  /// The reason why these faults cannot be injected: the algorithm has no schedule of its own, so it may send messages
  /// that do not pass our transports. Empty: they can be, or there are none.
  std::string fault_refusal(const core::MessageFaults&) const;
  /// The algorithm's schedules for these ranks. Errors: UsageError with the refusal, or where the algorithm has none of
  /// our schedules.
  std::vector<SchedulePtr> make(RankShape, CollectiveKind = CollectiveKind::all_reduce, std::uint32_t root = 0) const;
  /// The rounds, messages and bytes that the algorithm's row states; no time. Requires `has_schedule`.
  StatedCost cost(RankShape, CollectiveKind = CollectiveKind::all_reduce) const;
  /// The most bytes that `bind` will take from the network's arena on this rank.
  std::size_t arena_bytes(RankShape, std::uint32_t rank, const ExchangeSpec&,
                          CollectiveKind = CollectiveKind::all_reduce) const;
  /// Binds the collective to the connected group's ranks. Errors: UsageError with the refusal; BackendError when memory
  /// is short.
  std::unique_ptr<Collective> bind(const GroupConnection&, const ExchangeSpec&,
                                   CollectiveKind = CollectiveKind::all_reduce, std::uint32_t root = 0) const;

 private:
  const AlgorithmInfo& info_;
  core::ParsedName parsed_;
  std::shared_ptr<const SizeTable> table_;
  std::shared_ptr<const core::Machine> machine_;
  std::shared_ptr<const TunedTables> tuned_;
};

/// Finds the algorithm of a name: "ring", "torus2d:rows=2", a table "0-64K:recursive-doubling,64K-:ring",
/// "auto:table=FILE" for a table in a file (the name is then the table itself), or "auto:machine=FILE" for the choice
/// that the cost model makes for a machine's description. Errors: UsageError that lists the algorithms, or the
/// parameters that the row takes.
AlgorithmPtr find_algorithm(std::string_view name);

}  // namespace gradmeter::allreduce
