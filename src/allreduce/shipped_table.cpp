#include "allreduce/shipped_table.hpp"

#include <array>
#include <optional>

#include "allreduce/registry.hpp"
#include "core/error.hpp"
#include "core/format.hpp"

namespace gradmeter::allreduce {
namespace {

using enum runtime::TransportKind;

constexpr std::string_view measured =
    "in place, fp32, by gradmeter allreduce --write-table on 2 cores of a virtual machine with Open MPI 4.1.4";
constexpr std::string_view supposed =
    "no cluster has been measured: the vendor for small messages, the ring for large ones";

// A new machine deserves a table of its own: gradmeter allreduce --write-table measures one.
constexpr std::array tables{
    ShippedTable{
        .transport = shm,
        .least_ranks = 1,
        .table = "0-1K:shm-direct|recursive-doubling|mpi,1K-16K:recursive-doubling|mpi,16K-:shm-direct|direct|mpi",
        .source = measured},
    ShippedTable{.transport = shm,
                 .least_ranks = 3,
                 .table = "0-128K:shm-direct|recursive-doubling|mpi,128K-:shm-direct|direct|mpi",
                 .source = measured},
    ShippedTable{.transport = mpi,
                 .least_ranks = 1,
                 .table = "0-1K:mpi,1K-64K:recursive-doubling|mpi,64K-4M:mpi,4M-:direct|mpi",
                 .source = measured},
    ShippedTable{.transport = mpi,
                 .least_ranks = 3,
                 .table = "0-4K:mpi,4K-64K:recursive-doubling|mpi,64K-1M:mpi,1M-4M:ring|mpi,4M-:direct|mpi",
                 .source = measured},
    ShippedTable{.transport = mpi, .least_ranks = 9, .table = "0-512K:mpi,512K-:ring|mpi", .source = supposed},
    ShippedTable{.transport = hybrid, .least_ranks = 1, .table = "0-512K:mpi,512K-:ring|mpi", .source = supposed},
};

const ShippedTable& table_for(std::uint32_t ranks, runtime::TransportKind transport) {
  const ShippedTable* best = nullptr;
  for (const auto& t : tables) {
    if (t.transport != transport || t.least_ranks > ranks) continue;
    if (!best || t.least_ranks > best->least_ranks) best = &t;
  }
  if (!best) throw core::UsageError(fmt::format("auto has no table for transport {}", runtime::name(transport)));
  return *best;
}

/// Where MPI cannot be called (ranks as threads), or not in this arithmetic: one of these has every collective.
constexpr std::string_view others = "direct|ring|binomial-tree|pairwise|neighbour";

/// The first of "a|b|c" that the request allows, or of the others.
std::string first_allowed(std::string_view names, const Request& r, std::string_view range) {
  std::string why;
  const std::string all = fmt::format("{}|{}", names, others);
  for (std::string_view rest = all; !rest.empty();) {
    const std::size_t bar = rest.find('|');
    const auto algorithm = find_algorithm(rest.substr(0, bar));
    why = algorithm->refusal(r.shape, r.collective_kind);
    if (why.empty()) return algorithm->name;
    rest.remove_prefix(bar == std::string_view::npos ? rest.size() : bar + 1);
  }
  throw core::UsageError(fmt::format("auto has no algorithm for {} bytes: {}", range, why));
}

}  // namespace

std::span<const ShippedTable> shipped_tables() { return tables; }

std::string shipped_table(const Request& r, runtime::TransportKind transport) {
  std::string out;
  for (const std::string& item : core::split_names(table_for(r.shape.ranks, transport).table)) {
    const std::size_t colon = item.find(':');
    const std::string range = item.substr(0, colon);
    out += fmt::format("{}{}:{}", out.empty() ? "" : ",", range, first_allowed(item.substr(colon + 1), r, range));
  }
  return out;
}

}  // namespace gradmeter::allreduce
