// SPDX-License-Identifier: Apache-2.0
// The table of algorithms, the lookup of a name, and the answers of a row.
#include "allreduce/registry.hpp"

#include <algorithm>
#include <array>

#include "allreduce/gpu/algorithms.hpp"
#include "allreduce/schedule/algorithms.hpp"
#include "allreduce/selection/selection.hpp"
#include "allreduce/selection/size_table.hpp"
#include "allreduce/selection/tuned_tables.hpp"
#include "allreduce/shared_memory/shm_direct.hpp"
#include "allreduce/test_data.hpp"
#include "allreduce/vendor/vendor.hpp"
#include "core/error.hpp"
#include "core/format.hpp"

namespace gradmeter::allreduce {
namespace {

constexpr AlgorithmInfo mpi_row(std::string_view name, std::string_view source,
                                std::string (*refusal)(const Request&)) {
  return {.name = name,
          .cost_text = "the library's own choice",
          .source = source,
          .backend = Backend::vendor,
          .refusal = refusal,
          .bind = bind_mpi};
}
constexpr AlgorithmInfo ompi_row(std::string_view name, std::string_view source, std::string_view cost_text,
                                 std::string_view parameters = {}) {
  return {.name = name,
          .parameters = parameters,
          .cost_text = cost_text,
          .source = source,
          .backend = Backend::vendor,
          .refusal = ompi_refusal,
          .bind = bind_ompi};
}

}  // namespace

std::span<const AlgorithmInfo> algorithms() {
  // In the order of their names.
  static const std::array table{
      auto_row,
      bcube_row,
      binomial_tree_row,
      direct_row,
      double_tree_row,
      gloo_row,
      gpu_direct_row,
      gpu_multimem_row,
      gpu_ring_row,
      hierarchical_lane_row,
      hierarchical_leader_row,
      mpi_row("mpi", "MPI_Allreduce and its like as shipped", mpi_refusal),
      mpi_row("mpi-nonblocking", "MPI_Iallreduce and its like, MPI_Test", mpi_refusal),
      mpi_row("mpi-v", "MPI_Allgatherv, MPI_Reduce_scatter", mpi_vector_refusal),
      nccl_row,
      nccl_messages_row,
      neighbour_row,
      ompi_row("ompi-basic-linear", "Open MPI 4.1, coll/tuned algorithm 1, forced", "2(p-1) messages through rank 0"),
      ompi_row("ompi-nonoverlapping", "Open MPI 4.1, coll/tuned algorithm 2, forced", "reduce, then broadcast"),
      ompi_row("ompi-rabenseifner", "Open MPI 4.1, coll/tuned algorithm 6, forced", "2·log2 p rounds, 2n(p-1)/p sent"),
      ompi_row("ompi-recursive-doubling", "Open MPI 4.1, coll/tuned algorithm 3, forced",
               "log2 p rounds, n·log2 p sent"),
      ompi_row("ompi-ring", "Open MPI 4.1, coll/tuned algorithm 4, forced", "2(p-1) rounds, 2n(p-1)/p sent"),
      ompi_row("ompi-segmented-ring", "Open MPI 4.1, coll/tuned algorithm 5, forced", "2(p-1) rounds, 2n(p-1)/p sent",
               "segment=1M"),
      one_shot_row,
      pairwise_row,
      rabenseifner_row,
      recursive_doubling_row,
      ring_row,
      shm_direct_row,
      swing_row,
      torus2d_row,
  };
  return table;
}

namespace {

AlgorithmPtr choice_by_table(std::string_view text) {
  core::ParsedName row{.base = std::string(auto_row.name), .bare = {}, .parameters = {}};
  return std::make_shared<AlgorithmChoice>(auto_row, std::move(row), std::make_shared<SizeTable>(text));
}

/// The name has a hash of the machine that the file describes. A file may change, but equal names must mean the same.
AlgorithmPtr choice_by_machine(core::ParsedName parsed) {
  const std::string file = parsed.parameters.at("machine");
  auto machine = std::make_shared<core::Machine>(read_machine_file(file));
  const std::string text = core::to_json(*machine);
  const std::string id = fmt::format("{:016x}", hash_of(std::as_bytes(std::span(text))));
  const std::string named_id = parsed.parameters.try_emplace("id", id).first->second;
  if (parsed.parameters.size() > 2)
    throw core::UsageError("auto takes machine=FILE, and id=HASH as its name has it, and nothing beside them");
  if (named_id != id)
    throw core::UsageError(
        fmt::format("{} describes another machine ({}) than was asked for ({}); leave id out to take it as it is", file,
                    id, named_id));
  return std::make_shared<AlgorithmChoice>(auto_row, std::move(parsed), nullptr, std::move(machine));
}

}  // namespace

AlgorithmPtr find_algorithm(std::string_view text) {
  if (is_table(text)) return choice_by_table(text);
  core::ParsedName parsed = core::parse_name(text);
  if (parsed.base == auto_row.name && parsed.parameters.contains("table")) {
    if (parsed.parameters.size() > 1) throw core::UsageError("auto takes one parameter: auto:table=FILE");
    return choice_by_table(read_table_file(parsed.parameters.at("table")));
  }
  if (parsed.base == auto_row.name && parsed.parameters.contains("machine")) {
    return choice_by_machine(std::move(parsed));
  }
  std::vector<std::string> names;
  for (const AlgorithmInfo& a : algorithms()) {
    names.emplace_back(a.name);
    if (a.name != parsed.base) continue;
    auto choice = std::make_shared<AlgorithmChoice>(a, core::with_defaults("algorithm", a.name, a.parameters, parsed));
    (void)choice->refusal({});  // throws if a parameter's value is wrong for any ranks
    return choice;
  }
  core::refuse_unknown("algorithm", parsed.base, names);
}

AlgorithmChoice::AlgorithmChoice(const AlgorithmInfo& info, core::ParsedName parsed,
                                 std::shared_ptr<const SizeTable> table, std::shared_ptr<const core::Machine> machine)
    : name(table ? table->name() : parsed.canonical()),
      info_(info),
      parsed_(std::move(parsed)),
      table_(std::move(table)),
      machine_(std::move(machine)) {}

Request AlgorithmChoice::request(RankShape shape, CollectiveKind collective_kind, std::uint32_t root) const {
  return {.shape = shape,
          .collective_kind = collective_kind,
          .name = parsed_,
          .root = root,
          .table = table_,
          .machine = machine_,
          .tuned = tuned_};
}

AlgorithmPtr AlgorithmChoice::tuned(std::shared_ptr<const TunedTables> tables) const {
  auto choice = std::make_shared<AlgorithmChoice>(info_, parsed_);
  choice->tuned_ = std::move(tables);
  return choice;
}

std::string AlgorithmChoice::tuned_hash(const TableUse& use) const {
  const TunedTable* table = tuned_ ? tuned_->find(use) : nullptr;
  return table ? table->hash() : "";
}

std::string AlgorithmChoice::fault_refusal(const core::MessageFaults& f) const {
  if (!f.any() || has_schedule()) return {};
  return fmt::format(
      "--inject drop, delay and cut are of messages of our schedules, and {} has others or none: take ring", name);
}

std::string AlgorithmChoice::refusal(RankShape shape, CollectiveKind collective_kind, Arithmetic arithmetic) const {
  try {
    check_supported(arithmetic.element, arithmetic.op, arithmetic.accumulate());
  } catch (const core::UsageError& e) {
    return e.what();
  }
  if (arithmetic.accumulate() != arithmetic.element && !info_.adds_all_at_once) {
    return fmt::format("{} rounds sums of {} on the way; direct and shm-direct round once", info_.name,
                       core::info(arithmetic.element).name);
  }
  Request r = request(shape, collective_kind);
  r.arithmetic = arithmetic;
  return info_.refusal ? info_.refusal(r) : "";
}

std::vector<SchedulePtr> AlgorithmChoice::make(RankShape shape, CollectiveKind collective_kind,
                                               std::uint32_t root) const {
  if (!has_schedule()) throw core::UsageError(fmt::format("algorithm {} has no schedule of ours", name));
  if (const auto why = refusal(shape, collective_kind); !why.empty()) throw core::UsageError(why);
  return info_.make(request(shape, collective_kind, root));
}

StatedCost AlgorithmChoice::cost(RankShape shape, CollectiveKind collective_kind) const {
  return info_.cost(request(shape, collective_kind));
}

std::string AlgorithmChoice::transport_refusal(runtime::TransportKind t) const {
  if (t != runtime::TransportKind::cuda_mpi || has_schedule()) return {};
  return fmt::format(
      "{} sends no messages of GPUs' memory, which transport cuda-mpi is for: take ring, or --transport mpi",
      info_.name);
}

std::size_t AlgorithmChoice::arena_bytes(RankShape shape, std::uint32_t rank, const ExchangeSpec& spec,
                                         CollectiveKind collective_kind) const {
  if (!refusal(shape, collective_kind).empty()) return 0;
  if (has_schedule()) return Executor::arena_bytes({name, make(shape, collective_kind)}, rank, spec);
  return info_.arena_bytes ? info_.arena_bytes(request(shape, collective_kind), rank, spec) : 0;
}

std::unique_ptr<Collective> AlgorithmChoice::bind(const GroupConnection& connection, const ExchangeSpec& spec,
                                                  CollectiveKind collective_kind, std::uint32_t root) const {
  const RankShape shape = shape_of(connection.network.nodes_of(connection.communicator));
  if (const auto why = refusal(shape, collective_kind); !why.empty()) throw core::UsageError(why);
  if (!has_schedule()) return info_.bind(request(shape, collective_kind, root), connection, spec);
  ExchangeSpec o = spec;
  o.transport_takes_device = connection.network.takes_device_memory();
  return std::make_unique<Executor>(ScheduledAlgorithm{name, make(shape, collective_kind, root)}, connection.transport,
                                    connection.network.arena(), std::move(o));
}

}  // namespace gradmeter::allreduce
