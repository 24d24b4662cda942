// The tables that `auto` ships with, by transport and rank count.
#pragma once
#include <span>
#include <string>
#include <string_view>

#include "allreduce/request.hpp"
#include "runtime/transport/network.hpp"

namespace gradmeter::allreduce {

/// `table`: in a user's format, except that an algorithm may be "a|b|c": the first of them that the ranks allow.
struct ShippedTable {
  runtime::TransportKind transport;
  std::uint32_t least_ranks;  ///< of several tables for one transport, the largest that is not above the ranks serves
  std::string_view table, source;
};
std::span<const ShippedTable> shipped_tables();

/// The table text that serves this request over this transport. Errors: UsageError when a range has no algorithm for
/// it.
std::string shipped_table(const Request&, runtime::TransportKind);

}  // namespace gradmeter::allreduce
