// SPDX-License-Identifier: Apache-2.0
// The graphs of strategies without a centre: in each step a rank exchanges with a few other ranks, instead of averaging
// over all.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "core/name.hpp"
#include "dataparallel/strategy.hpp"

namespace gradmeter::dataparallel {

/// The rule that decides which ranks exchange with each other.
enum class Graph : std::uint8_t { exponential, hypercube, random, ring };

/// The value of the parameter `graph`. Errors: UsageError for a graph that the strategy does not have.
Graph graph_of(const core::ParsedName&, std::span<const Graph> known);

/// A directed graph: in step `number` (from 1) each of the P ranks sends to one peer. exponential: to (rank + 2^(t mod
/// ceil(log2 P))) mod P, where t = number - 1; ring: to (rank + 1) mod P; random: to any other rank, drawn for each
/// step and rank.
class PushTargets {
 public:
  PushTargets(Graph graph, std::uint64_t seed) : graph_(graph), seed_(seed) {}
  int target_of(int rank, int ranks, std::uint64_t number) const;
  /// The ranks that send to `rank`. Time: O(P) for the random graph, else O(1).
  std::vector<int> senders_to(int rank, int ranks, std::uint64_t number) const;
  /// True if the graph is such that every rank receives exactly one message in each step.
  bool regular() const { return graph_ != Graph::random; }

 private:
  int distance_to_target(int ranks, std::uint64_t number) const;
  Graph graph_;
  std::uint64_t seed_;
};

/// An undirected graph: all neighbours of a rank in step `number` (from 1). ring: rank - 1 and rank + 1 modulo P (one
/// neighbour if P is 2, none if P is 1). hypercube, with t = number - 1: rank xor 2^(t mod ceil(log2 P)), or none if
/// there is no such rank. If each rank takes the plain mean of itself and its neighbours, the averaging matrix is
/// symmetric and doubly stochastic.
std::vector<int> neighbours(Graph, int rank, int ranks, std::uint64_t number);
/// The number of steps after which the neighbours are the same again.
std::uint64_t neighbour_period(Graph, int ranks);
/// The most neighbours that any rank has in a step.
int most_neighbours(Graph, int ranks);

/// A bipartite graph of at least two ranks: even ranks are active, and each of them averages with one odd rank; odd
/// ranks are passive.
constexpr bool is_active(int rank) { return rank % 2 == 0; }
constexpr int active_ranks(int ranks) { return (ranks + 1) / 2; }
/// The passive rank with which an active one averages in step `number`, drawn at random for each step and rank.
int drawn_passive(int rank, int ranks, std::uint64_t number, std::uint64_t seed);

}  // namespace gradmeter::dataparallel
