// The registry of algorithms. A new one is a file of its own and one row in registry.cpp.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "allreduce/mover/executor.hpp"
#include "allreduce/request.hpp"
#include "allreduce/schedule/schedule.hpp"
#include "core/message_faults.hpp"
#include "runtime/communicator.hpp"
#include "runtime/transport/network.hpp"

namespace gradmeter::allreduce {

/// Where a collective is to run: the group's communicator, and how its ranks reach each other.
struct Site {
  const runtime::Communicator& communicator;
  runtime::Network& network;
  runtime::Transport& transport;
};

/// What moves the bytes.
enum class Backend : std::uint8_t {
  schedule,  ///< our executor, over any transport
  vendor,    ///< a library's own transfers: no transport applies, its bytes are not counted
  device,    ///< our own kernels on memory of GPUs: no transport applies
  shared,    ///< our own code on memory that all ranks map: transport shm only
  selection  ///< one of the others, chosen for each call by the buffer's size
};

/// One row. `parameters`: what may follow the colon, with its default ("rows=0"); empty: nothing.
/// `refusal` says why a request cannot be served, empty when it can; null: every request can.
/// A row with Backend::schedule has make and cost; any other has bind.
struct AlgorithmInfo {
  std::string_view name, parameters, cost_text, source;
  Backend backend = Backend::schedule;
  bool on_device = false;          ///< exchanges a device's memory itself
  bool registers_buffers = false;  ///< its library can be told of buffers: Collective::register_buffers
  bool adds_all_at_once = false;   ///< each element in one reduction over all ranks: a wide sum rounds once
  std::string (*refusal)(const Request&) = nullptr;
  std::vector<SchedulePtr> (*make)(const Request&) = nullptr;
  StatedCost (*cost)(const Request&) = nullptr;
  std::unique_ptr<Collective> (*bind)(const Request&, const Site&, const ExecutorOptions&) = nullptr;
  /// What `bind` takes from the arena [bytes]; null: nothing.
  std::size_t (*arena_bytes)(const Request&, std::uint32_t rank, const ExecutorOptions&) = nullptr;
};
std::span<const AlgorithmInfo> algorithms();

/// An algorithm as a user named it, checked, with every parameter written out.
class AlgorithmChoice {
 public:
  AlgorithmChoice(const AlgorithmInfo&, core::ParsedName);
  /// A selection by this chooser, under the chooser's name.
  AlgorithmChoice(const AlgorithmInfo&, std::shared_ptr<const Chooser>);
  /// A selection by the cost model on this machine, for the ranks that it is asked for.
  AlgorithmChoice(const AlgorithmInfo&, core::ParsedName, core::Machine);
  const std::string name;  ///< canonical: equal names mean the same
  const AlgorithmInfo& info() const { return info_; }
  bool is_vendor() const { return info_.backend == Backend::vendor; }
  bool uses_transport() const { return info_.backend != Backend::vendor && info_.backend != Backend::device; }
  /// Why it would not send a device's memory by this transport; empty: it does, or the transport is for the host's.
  std::string transport_refusal(runtime::TransportKind) const;
  /// Given a device's queue, does it move and sum the device's memory? Others are given the host's.
  bool works_on_devices() const { return info_.on_device || has_schedule(); }
  bool has_schedule() const { return info_.backend == Backend::schedule; }

  Request request(Shape, CollectiveKind = CollectiveKind::all_reduce, std::uint32_t root = 0) const;
  /// Why it cannot serve these ranks; empty: it can.
  std::string refusal(Shape, CollectiveKind = CollectiveKind::all_reduce, Arithmetic = {}) const;
  /// Why these faults would not be met: it sends no messages by transports. Empty: there are none, or it does.
  std::string fault_refusal(const core::MessageFaults&) const;
  /// Errors: UsageError with the refusal.
  std::vector<SchedulePtr> make(Shape, CollectiveKind = CollectiveKind::all_reduce, std::uint32_t root = 0) const;
  StatedCost cost(Shape, CollectiveKind = CollectiveKind::all_reduce) const;
  /// What `bind` will take from the network's arena on this rank, at most.
  std::size_t arena_bytes(Shape, std::uint32_t rank, const ExecutorOptions&,
                          CollectiveKind = CollectiveKind::all_reduce) const;
  /// Collective over the site's ranks. Errors: UsageError with the refusal; BackendError when memory is short.
  std::unique_ptr<Collective> bind(const Site&, const ExecutorOptions&, CollectiveKind = CollectiveKind::all_reduce,
                                   std::uint32_t root = 0) const;

 private:
  const AlgorithmInfo& info_;
  core::ParsedName parsed_;
  std::shared_ptr<const Chooser> chooser_;
  std::shared_ptr<const core::Machine> machine_;
};
using AlgorithmPtr = std::shared_ptr<const AlgorithmChoice>;

/// "ring", "torus2d:rows=2", a table "0-64K:recursive-doubling,64K-:ring", "auto:table=FILE" for a table in a file,
/// whose choice is named by the table itself, or "auto:machine=FILE" for what a machine's description predicts. Errors:
/// UsageError that lists the algorithms, or the parameters that the row takes.
AlgorithmPtr find_algorithm(std::string_view name);

}  // namespace gradmeter::allreduce
