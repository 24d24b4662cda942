// SPDX-License-Identifier: Apache-2.0
#include "bench/engine/node_map.hpp"

#include <algorithm>
#include <array>
#include <map>

#include "core/format.hpp"

namespace gradmeter::bench {
namespace {

/// The ranks of each node; nodes in the order of their lowest ranks.
std::vector<std::vector<int>> members_of(std::span<const int> node_of) {
  std::map<int, std::size_t> node_indices;
  std::vector<std::vector<int>> members;
  for (std::size_t r = 0, node_index = 0; r < node_of.size(); ++r) {
    if (r == 0 || node_of[r] != node_of[r - 1])
      node_index = node_indices.try_emplace(node_of[r], members.size()).first->second;
    if (node_index == members.size()) members.emplace_back();
    members[node_index].push_back(static_cast<int>(r));
  }
  return members;
}

/// The number of ranks that each node gives to a point of `ranks` ranks.
std::vector<std::size_t> shares(const std::vector<std::vector<int>>& members, std::size_t ranks, Placement p) {
  std::vector<std::size_t> share(members.size(), 0);
  for (std::size_t left = ranks; left > 0;) {
    const std::size_t before = left;
    for (std::size_t n = 0; n < members.size() && left > 0; ++n) {
      const std::size_t more = std::min({left, members[n].size() - share[n], p == Placement::spread ? 1 : left});
      share[n] += more;
      left -= more;
    }
    if (left == before) break;  // all nodes are used up
  }
  return share;
}

/// Ranks in ascending order, in short: "0-3", "0-6:2" (every second one), "0+3-4".
std::string ranks_text(std::span<const int> ranks) {
  std::string out;
  for (std::size_t i = 0; i < ranks.size();) {
    const int step = i + 1 < ranks.size() ? ranks[i + 1] - ranks[i] : 1;
    std::size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] - ranks[last] == step) ++last;
    if (step > 1 && last < i + 2) last = i;  // two ranks make no pattern
    out += fmt::format("{}{}", out.empty() ? "" : "+", ranks[i]);
    if (last > i) out += fmt::format("-{}{}", ranks[last], step > 1 ? fmt::format(":{}", step) : "");
    i = last + 1;
  }
  return out;
}

}  // namespace

std::string_view name(Placement p) { return p == Placement::packed ? "packed" : "spread"; }

std::span<const Placement> placements() {
  static constexpr std::array table{Placement::packed, Placement::spread};
  return table;
}

int NodeMap::nodes() const { return static_cast<int>(members_of(node_of).size()); }

int NodeMap::ranks_per_node() const {
  std::size_t most = 0;
  for (const auto& m : members_of(node_of)) most = std::max(most, m.size());
  return static_cast<int>(most);
}

std::string NodeMap::mapping() const { return fake ? fmt::format("fake:{}", fmt::join(node_of, ",")) : ""; }

std::vector<int> NodeMap::ranks_for(int ranks, Placement p) const {
  const auto members = members_of(node_of);
  const auto share = shares(members, static_cast<std::size_t>(ranks), p);
  std::vector<int> out;
  out.reserve(static_cast<std::size_t>(ranks));
  for (std::size_t n = 0; n < members.size(); ++n) {
    out.insert(out.end(), members[n].begin(), members[n].begin() + static_cast<std::ptrdiff_t>(share[n]));
  }
  return out;
}

NodeMap NodeMap::of(std::span<const int> ranks) const {
  NodeMap out{.node_of = {}, .fake = fake, .ranks_as = ranks_as};
  for (const int r : ranks) out.node_of.push_back(node_of[static_cast<std::size_t>(r)]);
  return out;
}

std::string NodeMap::ranks_by_node() const {
  std::string out;
  for (const auto& ranks : members_of(node_of)) out += fmt::format("{}{}", out.empty() ? "" : ",", ranks_text(ranks));
  return out;
}

void fill_ranks(const NodeMap& map, core::Factors& f) {
  using core::Factor;
  f[Factor::ranks] = std::int64_t{map.ranks()};
  f[Factor::nodes] = std::int64_t{map.nodes()};
  f[Factor::ranks_per_node] = std::int64_t{map.ranks_per_node()};
  if (map.fake) f[Factor::mapping] = map.mapping();
  f[Factor::ranks_as] = std::string(runtime::name(map.ranks_as));
}

NodeIndices::NodeIndices(std::span<const int> node_of) {
  for (std::size_t r = 0; r < node_of.size(); ++r) {
    if (node_of[r] == static_cast<int>(r)) nodes_.push_back(node_of[r]);
  }
}

std::size_t NodeIndices::index_of(int node) const {
  return static_cast<std::size_t>(std::ranges::lower_bound(nodes_, node) - nodes_.begin());
}

}  // namespace gradmeter::bench
