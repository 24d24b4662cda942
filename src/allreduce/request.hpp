// SPDX-License-Identifier: Apache-2.0
// The registry's row of an algorithm, and the request that it answers: which collective, over which ranks, with which
// parameters of the algorithm's name.
#pragma once
#include <algorithm>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "allreduce/reduce.hpp"
#include "allreduce/schedule/schedule.hpp"
#include "core/machine.hpp"
#include "core/name.hpp"

namespace gradmeter::allreduce {

class Collective;
class SizeTable;
struct ExchangeSpec;
struct GroupConnection;
struct TunedTables;

/// The operation on the numbers. wide: sums of 16-bit and 8-bit floats are kept in fp32 and rounded once.
struct Arithmetic {
  core::Element element = core::Element::f32;
  Op op = Op::sum;
  bool wide = false;
  core::Element accumulate() const { return wide ? core::Element::f32 : element; }
};

struct Request {
  RankShape shape = {};
  CollectiveKind collective_kind = CollectiveKind::all_reduce;
  core::ParsedName name = {};  ///< with every parameter written out
  std::uint32_t root = 0;      ///< the root of a broadcast
  /// These three give the table by which a selection (a row with Backend::selection) chooses another algorithm for each
  /// size. If `machine` is given, the table is predicted for it. Otherwise `table` is used if it is given, else the
  /// table in `tuned` for the call's use (TableUse), else the shipped table.
  std::shared_ptr<const SizeTable> table = {};
  std::shared_ptr<const core::Machine> machine = {};
  std::shared_ptr<const TunedTables> tuned = {};
  Arithmetic arithmetic = {};
};

/// The code that moves the bytes.
enum class Backend : std::uint8_t {
  schedule,  ///< our executor, over any transport
  vendor,    ///< a library's own transfers: no transport applies, its bytes are not counted
  device,    ///< our own kernels, or messages by NCCL, on memory of GPUs: no transport applies
  shared,    ///< our own code on memory that all ranks map: transport shm only
  selection  ///< one of the others, chosen for each call by the buffer's size
};

/// One row of the registry. `parameters`: the parameters that may follow a name's colon, with their defaults
/// ("rows=0"); empty: none. `cost_text`, `source`: texts for `gradmeter list`: the cost, and the paper or program that
/// the algorithm comes from. `refusal` returns why a request cannot be served, or an empty text. Where the pointer is
/// null, every request can be served. A row with Backend::schedule has make and cost; any other has bind.
struct AlgorithmInfo {
  std::string_view name, parameters = {}, cost_text, source;
  Backend backend = Backend::schedule;
  /// True: if it is bound with a device's queue, the algorithm moves and adds up data in the device's memory itself.
  /// Rows with Backend::schedule always do this, so the flag stays false for them.
  bool on_device = false;
  bool registers_buffers = false;  ///< the row's library takes registered buffers (Collective::register_buffers)
  /// True where each element is added up over all ranks in one reduction, so that a wide sum rounds once.
  bool adds_all_at_once = false;
  std::string (*refusal)(const Request&) = nullptr;
  std::vector<SchedulePtr> (*make)(const Request&) = nullptr;
  StatedCost (*cost)(const Request&) = nullptr;
  std::unique_ptr<Collective> (*bind)(const Request&, const GroupConnection&, const ExchangeSpec&) = nullptr;
  /// The bytes that `bind` takes from the arena; null: none.
  std::size_t (*arena_bytes)(const Request&, std::uint32_t rank, const ExchangeSpec&) = nullptr;
};
/// Empty when the request is for one of `kinds`; else a refusal such as "ring has no broadcast".
std::string refusal_unless(const Request&, std::initializer_list<CollectiveKind> kinds);
/// The same for kinds known at compile time. Rows that serve these kinds on any number of ranks have this function as
/// their AlgorithmInfo::refusal.
template <CollectiveKind... kinds>
std::string refusal_unless(const Request& r) {
  return refusal_unless(r, {kinds...});
}

/// Empty when the number of ranks is a power of two; else the reason, and the algorithm to take instead.
std::string refusal_unless_power_of_two(const Request&, std::string_view instead);
/// Empty when every node holds equally many ranks, with consecutive numbers; else the reason.
std::string refusal_unless_equal_nodes(const Request&);

/// The value of a parameter. Errors: UsageError unless it is a plain number of at least `least`.
std::uint32_t whole_number_from(const Request&, std::string_view parameter, std::uint32_t least);

/// The shape of ranks on nodes. Schedules need equally many consecutive ranks on each node: `ranks_per_node` is 0 where
/// nodes hold different numbers of ranks or a node's ranks are not consecutive.
RankShape shape_of(std::span<const int> node_of);

}  // namespace gradmeter::allreduce
