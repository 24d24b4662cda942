// The bytes and messages that a strategy predicts, to compare with what the probe counted.
#pragma once
#include <cstdint>
#include <optional>
#include <span>

#include "allreduce/compressed/compressed.hpp"
#include "allreduce/registry.hpp"
#include "compression/registry.hpp"
#include "core/machine.hpp"
#include "model/model.hpp"

namespace gradmeter::dataparallel {

/// Of all ranks of an axis together. Bytes are payload; messages from a rank to itself are not counted.
struct Forecast {
  std::uint64_t bytes = 0, messages = 0;
  double seconds = 0;  ///< on the wire, when every rank sends and receives at once: `wire_seconds`
  bool known = true;   ///< false: a vendor's call is among them, or sizes depend on the data
  bool most = false;   ///< where not known: bytes and messages are upper bounds
  /// Lower bounds for any algorithm for these calls, with their codec [bytes]: of all ranks together; of the busiest
  /// rank (the mean of all ranks, where the algorithm decides which is busiest); and of all ranks across node borders,
  /// where the nodes of ranks are known. Calls whose bytes depend on the data count as zero.
  std::uint64_t least = 0, least_of_one = 0, least_between_nodes = 0;
  bool bounds() const { return known || most; }
  Forecast& operator+=(const Forecast&);
  Forecast times(std::uint64_t n) const;
};

/// What a forecast is for.
struct ForecastInput {
  std::uint32_t ranks = 1;  ///< of the axis, servers among them
  std::span<const model::Tensor> tensors = {};
  std::size_t elements = 0;  ///< of the flat buffer
  std::uint64_t steps = 1;
  std::uint64_t first_step = 1;                      ///< the number of the first of them, as UpdateStep counts
  std::optional<std::uint32_t> ranks_per_node = {};  ///< as allreduce::shape_of has it; empty: all on one
  allreduce::AlgorithmPtr algorithm = {};            ///< null: ring
  compression::CodecChoicePtr codec = {};            ///< null: none
  core::Machine machine = {};
  /// For calls with a codec, whose bytes depend on where buffers are cut. 0: the longest usual message, and all
  /// elements at once.
  std::size_t message_bytes = 0, max_call_bytes = 0;

  /// How many of the steps have a number that n divides.
  std::uint64_t multiples_of(std::uint64_t n) const { return (first_step - 1 + steps) / n - (first_step - 1) / n; }
};

allreduce::Shape shape_of(const ForecastInput&);
/// Of the bytes of one rank, at the bandwidth of the links between nodes where the axis is known to be on several.
double wire_seconds(const ForecastInput&, double bytes);
/// The least that `parties` (ranks, or whole nodes) must send together so that each learns all of `bytes`, of which
/// each has a part, or so that sums over all of them are complete somewhere: (P-1)·bytes. An all-reduce does both, so
/// twice that.
/// Source: Patarasuk & Yuan, JPDC 2009, section 3.
std::uint64_t least_sent(allreduce::CollectiveKind, std::uint64_t parties, std::uint64_t bytes);
/// One collective over all ranks of the input's axis, by its algorithm's stated cost. Codecs do not apply.
Forecast forecast_collective(const ForecastInput&, allreduce::CollectiveKind, std::size_t elements);
/// One all-reduce with the input's codec, if there is one, as the sum of its inner calls.
Forecast forecast_all_reduce(const ForecastInput&, std::size_t elements, const allreduce::TensorLayout&);
/// So many ranks send `messages` messages each, of `bytes` bytes together for each rank.
Forecast forecast_messages(const ForecastInput&, std::uint32_t senders, std::uint64_t messages, std::uint64_t bytes);

}  // namespace gradmeter::dataparallel
