// What the compressed collectives are made from.
#pragma once
#include "allreduce/registry.hpp"
#include "compression/registry.hpp"

namespace gradmeter::allreduce {

/// A codec and the all-reduce that it is to go over, there.
struct CodedRequest {
  const compression::CodecChoice& codec;
  const AlgorithmChoice& algorithm;
  Shape shape;
  ExecutorOptions options;  ///< of the whole: the caller's placement and longest buffer

  /// The algorithm by a pointer of its own.
  AlgorithmPtr algorithm_ptr() const { return std::make_shared<AlgorithmChoice>(algorithm); }
  std::size_t max_elements() const { return options.max_bytes / sizeof(float); }
  /// For calls of the parts' own, on memory from the arena.
  ExecutorOptions inner(std::size_t max_bytes) const {
    return {.placement = Placement::in_place, .max_bytes = max_bytes, .message_bytes = options.message_bytes};
  }
};

/// A call that one with a codec comes down to: a collective over plain elements, or, with `codec`, the executor's.
struct CallPart {
  AlgorithmPtr algorithm;
  CollectiveKind collective_kind = CollectiveKind::all_reduce;
  std::size_t count = 0;
  std::size_t element_bytes = sizeof(float);
  compression::CodecPtr codec = {};
  bool most = false;  ///< the count depends on the data and is the most
};
using CallParts = std::vector<CallPart>;

/// How one codec's gradients come together, where it is not the executor by itself. A call is one tensor, with
/// residuals where the codec has feedback. `refusal`: why not there; null: never. `arena_bytes`: what `bind` takes.
/// `parts`: what a call on so long a tensor comes down to.
struct CodedExchange {
  std::string_view codec;
  std::string (*refusal)(const CodedRequest&);
  std::size_t (*arena_bytes)(const CodedRequest&, std::uint32_t rank);
  std::unique_ptr<Collective> (*bind)(const CodedRequest&, const Site&);
  CallParts (*parts)(const CodedRequest&, const TensorPart&);
  /// Why this tensor must go dense; null: none must.
  std::string (*tensor_refusal)(const CodedRequest&, const TensorPart&) = nullptr;
};

/// A page for each thing that is taken from the arena, as alignment may need it.
inline constexpr std::size_t arena_slack = 4096;

}  // namespace gradmeter::allreduce
