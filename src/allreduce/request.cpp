// SPDX-License-Identifier: Apache-2.0
#include "allreduce/request.hpp"

#include <bit>
#include <charconv>

#include "core/error.hpp"
#include "core/format.hpp"

namespace gradmeter::allreduce {

std::string refusal_unless(const Request& r, std::initializer_list<CollectiveKind> kinds) {
  if (std::find(kinds.begin(), kinds.end(), r.collective_kind) != kinds.end()) return {};
  return fmt::format("{} has no {}", r.name.base, name(r.collective_kind));
}

std::string refusal_unless_power_of_two(const Request& r, std::string_view instead) {
  if (std::has_single_bit(r.shape.ranks)) return {};
  return fmt::format("{} has {} only for powers of two, and there are {} ranks; take {}", r.name.base,
                     name(r.collective_kind), r.shape.ranks, instead);
}

std::string refusal_unless_equal_nodes(const Request& r) {
  const std::uint32_t p = r.shape.ranks, g = r.shape.ranks_per_node;
  if (g == 0) {
    return fmt::format(
        "{} needs nodes with equally many ranks, numbered node after node, which these are not; start the ranks so, or "
        "take ring",
        r.name.base);
  }
  if (p % g != 0) {
    return fmt::format("{} needs whole nodes, and {} ranks do not fill nodes of {}; take ring", r.name.base, p, g);
  }
  return {};
}

std::uint32_t whole_number_from(const Request& r, std::string_view parameter, std::uint32_t least) {
  const auto found = r.name.parameters.find(std::string(parameter));
  const std::string_view text = found == r.name.parameters.end() ? std::string_view{} : found->second;
  std::uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  // The number must print as the same text, since names that mean the same must be equal.
  if (error != std::errc{} || end != text.data() + text.size() || value < least || fmt::format("{}", value) != text) {
    throw core::UsageError(fmt::format("algorithm {} needs a whole number of at least {} as {}, not '{}'", r.name.base,
                                       least, parameter, text));
  }
  return value;
}

RankShape shape_of(std::span<const int> node_of) {
  const auto ranks = node_of.size();
  const auto first_change = std::find_if(node_of.begin(), node_of.end(), [&](int n) { return n != node_of.front(); });
  const auto node_ranks = static_cast<std::size_t>(first_change - node_of.begin());
  RankShape s{.ranks = static_cast<std::uint32_t>(ranks), .ranks_per_node = static_cast<std::uint32_t>(node_ranks)};
  for (std::size_t r = 0; r < ranks; ++r) {
    const bool opens_node = r % node_ranks == 0;
    const bool same_as_before = r > 0 && node_of[r] == node_of[r - 1];
    const bool seen = opens_node && std::find(node_of.begin(), node_of.begin() + static_cast<std::ptrdiff_t>(r),
                                              node_of[r]) != node_of.begin() + static_cast<std::ptrdiff_t>(r);
    if (opens_node ? seen : !same_as_before) s.ranks_per_node = 0;
  }
  if (ranks % node_ranks != 0) s.ranks_per_node = 0;
  return s;
}

}  // namespace gradmeter::allreduce
