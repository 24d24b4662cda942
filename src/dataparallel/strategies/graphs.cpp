#include "dataparallel/strategies/graphs.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <string_view>

#include "compression/codec.hpp"
#include "core/error.hpp"
#include "core/format.hpp"

namespace gradmeter::dataparallel {
namespace {

constexpr std::array<std::string_view, 4> graph_names{"exponential", "hypercube", "random", "ring"};

/// ceil(log2 P): so many powers of two are below P. 1 for a single rank, which has no peer at any distance.
unsigned levels_of(int ranks) {
  return std::max(1u, static_cast<unsigned>(std::bit_width(static_cast<unsigned>(ranks) - 1)));
}

int power_of_step(int ranks, std::uint64_t number) { return 1 << (number - 1) % levels_of(ranks); }

}  // namespace

Graph graph_of(const core::ParsedName& n, std::span<const Graph> known) {
  const std::string& text = n.parameters.at("graph");
  std::vector<std::string_view> names;
  for (const Graph g : known) {
    names.push_back(graph_names.at(static_cast<std::size_t>(g)));
    if (text == names.back()) return g;
  }
  throw core::UsageError(fmt::format("{}: graph is '{}'; it must be one of {}", n.base, text, fmt::join(names, ", ")));
}

int Peers::hop(int ranks, std::uint64_t number) const {
  return graph_ == Graph::ring ? 1 : power_of_step(ranks, number);
}

int Peers::of(int rank, int ranks, std::uint64_t number) const {
  if (regular()) return (rank + hop(ranks, number)) % ranks;
  const compression::Draw draw{.seed = seed_, .step = number, .rank = static_cast<std::uint32_t>(rank)};
  const auto others = static_cast<std::uint64_t>(ranks) - 1;
  return (rank + 1 + static_cast<int>(draw.key() % others)) % ranks;
}

std::vector<int> Peers::to(int rank, int ranks, std::uint64_t number) const {
  if (regular()) return {(rank + ranks - hop(ranks, number)) % ranks};
  std::vector<int> out;
  for (int r = 0; r < ranks; ++r) {
    if (r != rank && of(r, ranks, number) == rank) out.push_back(r);
  }
  return out;
}

std::vector<int> neighbours(Graph graph, int rank, int ranks, std::uint64_t number) {
  if (ranks == 1) return {};
  if (graph == Graph::ring) {
    const int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
    return next == before ? std::vector{next} : std::vector{before, next};
  }
  const int other = rank ^ power_of_step(ranks, number);
  return other < ranks ? std::vector{other} : std::vector<int>{};
}

std::uint64_t neighbour_period(Graph graph, int ranks) { return graph == Graph::ring ? 1 : levels_of(ranks); }

int most_neighbours(Graph graph, int ranks) {
  if (graph != Graph::ring) return ranks > 1 ? 1 : 0;
  return ranks > 2 ? 2 : ranks - 1;
}

int drawn_passive(int rank, int ranks, std::uint64_t number, std::uint64_t seed) {
  const compression::Draw draw{.seed = seed, .step = number, .rank = static_cast<std::uint32_t>(rank)};
  return 1 + 2 * static_cast<int>(draw.key() % static_cast<std::uint64_t>(ranks / 2));
}

}  // namespace gradmeter::dataparallel
