// SPDX-License-Identifier: Apache-2.0
// Predicts the bytes and messages of a strategy, to be compared with those that the probe counts.
#pragma once
#include <cstdint>
#include <optional>
#include <span>

#include "allreduce/coded/coded.hpp"
#include "allreduce/registry.hpp"
#include "compression/registry.hpp"
#include "core/machine.hpp"
#include "model/model.hpp"

namespace gradmeter::dataparallel {

/// The bytes and messages that all ranks of an axis of the mesh (mesh.hpp) send together. Bytes are payload; messages
/// from a rank to itself are not counted.
struct Forecast {
  std::uint64_t bytes = 0, messages = 0;
  double seconds = 0;  ///< time for which links carry the bytes (`wire_seconds`), if all ranks send and receive at once
  /// false: the numbers are not exact, because a call runs a vendor's collective or its bytes depend on the data
  bool exact = true;
  bool upper_bound = false;  ///< true: bytes and messages are upper bounds
  /// Lower bounds of the bytes that the forecast's calls send (encoded, if they have a codec), whatever algorithm runs
  /// them. `least`: sent by all ranks together. `least_of_one`: sent or received by the busiest rank; for a collective
  /// this is least ÷ ranks, since the busiest rank sends at least the mean. `least_between_nodes`: sent from node to
  /// node, by all ranks together. A call whose bytes depend on the data counts as 0.
  std::uint64_t least = 0, least_of_one = 0, least_between_nodes = 0;
  bool bounds_from_above() const { return exact || upper_bound; }
  Forecast& operator+=(const Forecast&);
  Forecast times(std::uint64_t n) const;
};

/// The input of a forecast: the calls of some steps on one axis.
struct ForecastInput {
  std::uint32_t ranks = 1;  ///< ranks of the axis, including servers
  std::span<const model::Tensor> tensors = {};
  std::size_t elements = 0;  ///< elements of the flat buffer
  std::uint64_t steps = 1;
  std::uint64_t first_step = 1;                      ///< number of the first of these steps, as in UpdateStep::number
  std::optional<std::uint32_t> ranks_per_node = {};  ///< 0: nodes are filled unequally; empty: there is one node
  allreduce::AlgorithmPtr algorithm = {};            ///< null: ring
  compression::CodecChoicePtr codec = {};            ///< null: no codec
  core::Machine machine = {};
  /// The longest message and the longest call [bytes]. The bytes of a call with a codec depend on them, because they
  /// decide where buffers are cut. By convention, message_bytes 0 means the longest usual message, and max_call_bytes 0
  /// means that one call takes all elements.
  std::size_t message_bytes = 0, max_call_bytes = 0;

  /// How many of these steps have a number that is a multiple of n.
  std::uint64_t multiples_of(std::uint64_t n) const { return (first_step - 1 + steps) / n - (first_step - 1) / n; }
};

allreduce::RankShape shape_of(const ForecastInput&);
/// The time that a link takes for the bytes of one rank [s]: a link between nodes if the axis spans several nodes, else
/// a link within a node.
double wire_seconds(const ForecastInput&, double bytes);
/// The fewest bytes that P `parties` (ranks, or whole nodes) must send together for a collective on `bytes` bytes. They
/// need (P-1)·bytes to add up the data of all parties, so that each element's sum is at one party. They also need
/// (P-1)·bytes to spread data that lie at one or several parties to all parties. An all-reduce does both.
/// Source: Patarasuk & Yuan, JPDC 2009, section 3.
std::uint64_t least_sent(allreduce::CollectiveKind, std::uint64_t parties, std::uint64_t bytes);
/// One collective over all ranks of the axis, without the codec, by the cost that the algorithm states.
Forecast forecast_collective(const ForecastInput&, allreduce::CollectiveKind, std::size_t elements);
/// One all-reduce, with the codec if there is one; an all-reduce with a codec is the sum of its inner calls.
Forecast forecast_all_reduce(const ForecastInput&, std::size_t elements, const allreduce::TensorLayout&);
/// `senders` ranks send `messages` messages each; the messages of one sender have `bytes` bytes together.
Forecast forecast_messages(const ForecastInput&, std::uint32_t senders, std::uint64_t messages, std::uint64_t bytes);

}  // namespace gradmeter::dataparallel
