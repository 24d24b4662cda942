// What `auto` takes as shipped: tables by transport and rank count.
#pragma once
#include <span>
#include <string>
#include <string_view>

#include "allreduce/request.hpp"
#include "runtime/network.hpp"

namespace gradmeter::allreduce {

/// `table`: as a user writes one, but with "a|b|c" for an algorithm: the first of them that the ranks allow.
struct ShippedTable {
  runtime::TransportKind transport;
  std::uint32_t least_ranks;  ///< of several for one transport, the one with the largest that is not above the ranks
  std::string_view table, source;
};
std::span<const ShippedTable> shipped_tables();

/// The table text that serves this request over this transport. Errors: UsageError when a range has no algorithm for
/// it.
std::string shipped_table(const Request&, runtime::TransportKind);

}  // namespace gradmeter::allreduce
