// SPDX-License-Identifier: Apache-2.0
// The bytes and messages that a strategy predicts, to compare with those that the probe counted.
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

/// The bytes and messages that all ranks of an axis send together. Bytes are payload; messages from a rank to itself
/// are not counted.
struct Forecast {
  std::uint64_t bytes = 0, messages = 0;
  double seconds = 0;  ///< time on the wire, when every rank sends and receives at once: `wire_seconds`
  bool known = true;   ///< false: a vendor's call is among them, or sizes depend on the data
  bool most = false;   ///< true: bytes and messages are upper bounds, since their exact numbers are not known
  /// Lower bounds for any algorithm that serves these calls, with their codec [bytes]. `least`: for all ranks together.
  /// `least_of_one`: for the busiest rank (the mean of all ranks, if the algorithm decides which is busiest).
  /// `least_between_nodes`: for all ranks, between nodes, where the ranks' nodes are known. Calls whose bytes depend on
  /// the data count as zero.
  /// depend on the data count as zero.
  std::uint64_t least = 0, least_of_one = 0, least_between_nodes = 0;
  bool bounds() const { return known || most; }
  Forecast& operator+=(const Forecast&);
  Forecast times(std::uint64_t n) const;
};

/// The calls that a forecast is made for.
struct ForecastInput {
  std::uint32_t ranks = 1;  ///< ranks of the axis, servers among them
  std::span<const model::Tensor> tensors = {};
  std::size_t elements = 0;  ///< elements of the flat buffer
  std::uint64_t steps = 1;
  std::uint64_t first_step = 1;                      ///< number of the first of these steps, as UpdateStep counts
  std::optional<std::uint32_t> ranks_per_node = {};  ///< as in allreduce::shape_of; empty: all ranks are on one node
  allreduce::AlgorithmPtr algorithm = {};            ///< null: ring
  compression::CodecChoicePtr codec = {};            ///< null: no codec
  core::Machine machine = {};
  /// The longest message and the longest call [bytes], for calls with a codec, whose bytes depend on where buffers are
  /// cut. 0: the longest usual message, and all elements at once.
  std::size_t message_bytes = 0, max_call_bytes = 0;

  /// How many of these steps have a number that is a multiple of n.
  std::uint64_t multiples_of(std::uint64_t n) const { return (first_step - 1 + steps) / n - (first_step - 1) / n; }
};

allreduce::Shape shape_of(const ForecastInput&);
/// The time that the bytes of one rank take [s]: at the bandwidth between nodes, where the axis is known to be on
/// several nodes.
double wire_seconds(const ForecastInput&, double bytes);
/// The least bytes that `parties` (ranks, or whole nodes) must send together: (P-1)·bytes. So many are needed if each
/// is to learn all of `bytes`, of which each has a part at first. As many are needed to complete sums over all parties,
/// each in one place. An all-reduce does both, so it needs twice as many.
/// Source: Patarasuk & Yuan, JPDC 2009, section 3.
std::uint64_t least_sent(allreduce::CollectiveKind, std::uint64_t parties, std::uint64_t bytes);
/// One collective over all ranks of the input's axis, by its algorithm's stated cost. Codecs do not apply.
Forecast forecast_collective(const ForecastInput&, allreduce::CollectiveKind, std::size_t elements);
/// One all-reduce with the input's codec, if there is one, as the sum of its inner calls.
Forecast forecast_all_reduce(const ForecastInput&, std::size_t elements, const allreduce::TensorLayout&);
/// Forecast of messages: `senders` ranks send `messages` messages each; the messages of one rank have `bytes` bytes in
/// all.
Forecast forecast_messages(const ForecastInput&, std::uint32_t senders, std::uint64_t messages, std::uint64_t bytes);

}  // namespace gradmeter::dataparallel
