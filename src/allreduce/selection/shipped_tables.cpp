// SPDX-License-Identifier: Apache-2.0
#include "allreduce/selection/shipped_tables.hpp"

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "allreduce/registry.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "core/name.hpp"

namespace gradmeter::allreduce {
namespace {

using enum runtime::TransportKind;

/// A table that `auto` ships with. `table` has the format of a user's table, except that "a|b|c" may stand for an
/// algorithm: the first of them that the ranks allow is taken.
struct ShippedTable {
  runtime::TransportKind transport;
  std::uint32_t least_ranks;
  std::string_view table;
  std::optional<bool> private_buffers = {};  ///< as in ExchangeSpec; empty: the table serves both kinds of buffers
  std::optional<CollectiveKind> collective_kind = {};  ///< empty: the table serves every kind

  bool serves(const Request& r, bool has_private_buffers) const {
    return least_ranks <= r.shape.ranks && private_buffers.value_or(has_private_buffers) == has_private_buffers &&
           collective_kind.value_or(r.collective_kind) == r.collective_kind;
  }
};

// The tables were measured in place, with fp32, by two ranks on 2 cores of a virtual machine with Open MPI 4.1.4.
// results/auto.md says what the choice costs there (scripts/regret.py). Three things are assumed:
// - On a node with more ranks, too, the algorithms that read shared memory are best.
// - Over mpi with 3 ranks or more, and over hybrid, every collective behaves as all-reduces did with more ranks than
//   cores.
// - On clusters the vendor is best for small messages, and the ring for large ones.
// A new machine should get a table of its own.
// The last table that serves a request is taken.
constexpr std::array shipped_tables{
    ShippedTable{shm, 1, "0-:direct|neighbour|mpi", false},
    ShippedTable{shm, 1, "0-128K:shm-direct|recursive-doubling|mpi,128K-:shm-direct|direct|mpi", false,
                 CollectiveKind::all_reduce},
    ShippedTable{shm, 1, "0-:shm-direct|mpi", true},
    ShippedTable{hybrid, 1, "0-512K:mpi,512K-:ring|mpi", false},
    ShippedTable{hybrid, 1, "0-:mpi", true},
    ShippedTable{mpi, 1, "0-8K:mpi,8K-:direct|neighbour|mpi"},
    ShippedTable{mpi, 1, "0-:mpi", true, CollectiveKind::all_gather},
    ShippedTable{mpi, 1, "0-:mpi", {}, CollectiveKind::broadcast},
    ShippedTable{mpi,
                 1,
                 "0-8K:mpi,8K-64K:recursive-doubling|mpi,64K-6M:mpi,6M-12M:ompi-segmented-ring:segment=1M|mpi,"
                 "12M-:hierarchical-lane|direct|mpi",
                 {},
                 CollectiveKind::all_reduce},
    ShippedTable{mpi, 3, "0-4K:mpi,4K-64K:recursive-doubling|mpi,64K-1M:mpi,1M-4M:ring|mpi,4M-:direct|mpi"},
    ShippedTable{mpi, 9, "0-512K:mpi,512K-:ring|mpi"},
};

const ShippedTable& find_shipped_table(const Request& r, runtime::TransportKind transport, bool private_buffers) {
  const ShippedTable* last_match = nullptr;
  for (const ShippedTable& t : shipped_tables) {
    if (t.transport == transport && t.serves(r, private_buffers)) last_match = &t;
  }
  if (!last_match) throw core::UsageError(fmt::format("auto has no table for transport {}", runtime::name(transport)));
  return *last_match;
}

/// The algorithms for requests that MPI cannot serve, because ranks are threads or MPI lacks the arithmetic. Each
/// collective is served by one of them.
constexpr std::string_view fallbacks = "direct|ring|binomial-tree|pairwise|neighbour";

/// The first algorithm of "a|b|c", and then of the fallbacks, that can serve the request. A table for private buffers
/// has no fallbacks, since these need buffers that the transport's peers can read.
std::string first_allowed(const ShippedTable& table, std::string_view names, const Request& r, std::string_view range) {
  std::string why;
  const std::string candidates =
      table.private_buffers.value_or(false) ? std::string(names) : fmt::format("{}|{}", names, fallbacks);
  for (std::string_view rest = candidates; !rest.empty();) {
    const std::size_t bar = rest.find('|');
    const auto algorithm = find_algorithm(rest.substr(0, bar));
    why = algorithm->refusal(r.shape, r.collective_kind);
    if (why.empty()) return algorithm->name;
    rest.remove_prefix(bar == std::string_view::npos ? rest.size() : bar + 1);
  }
  throw core::UsageError(fmt::format("auto has no algorithm for {} bytes: {}", range, why));
}

}  // namespace

std::string shipped_table(const Request& r, runtime::TransportKind transport, bool private_buffers) {
  std::string out;
  const ShippedTable& shipped = find_shipped_table(r, transport, private_buffers);
  for (const std::string& item : core::split_names(shipped.table)) {
    const std::size_t colon = item.find(':');
    const std::string range = item.substr(0, colon);
    out +=
        fmt::format("{}{}:{}", out.empty() ? "" : ",", range, first_allowed(shipped, item.substr(colon + 1), r, range));
  }
  return out;
}

}  // namespace gradmeter::allreduce
