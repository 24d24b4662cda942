// What the compressed collectives are made from.
#pragma once
#include "allreduce/registry.hpp"
#include "compression/registry.hpp"

namespace gradmeter::allreduce {

/// A codec and the all-reduce that it is combined with, on given ranks.
struct CodedRequest {
  const compression::CodecChoice& codec;
  const AlgorithmChoice& algorithm;
  Shape shape;
  ExecutorOptions options;  ///< of the whole: the caller's placement and longest buffer

  /// A copy of the algorithm behind a shared pointer.
  AlgorithmPtr algorithm_ptr() const { return std::make_shared<AlgorithmChoice>(algorithm); }
  std::size_t max_elements() const { return options.max_bytes / sizeof(float); }
  /// For the inner calls, on memory from the arena.
  ExecutorOptions inner(std::size_t max_bytes) const {
    return {.placement = Placement::in_place,
            .max_bytes = max_bytes,
            .message_bytes = options.message_bytes,
            .queue = options.queue};
  }
};

/// An inner call of a call with a codec: a collective over plain elements, or, with `codec`, the executor's encoded
/// one.
struct CallPart {
  AlgorithmPtr algorithm;
  CollectiveKind collective_kind = CollectiveKind::all_reduce;
  std::size_t count = 0;
  std::size_t element_bytes = sizeof(float);
  compression::CodecPtr codec = {};
  bool most = false;  ///< the count depends on the data; this is the most
};
using CallParts = std::vector<CallPart>;

/// How one codec's gradients are exchanged, where the executor alone cannot do it. A call is one tensor, with residuals
/// where the codec has error feedback. `refusal`: why the combination is refused; null: never. `arena_bytes`: what
/// `bind` takes. `parts`: the inner calls for a tensor.
struct CodedExchange {
  std::string_view codec;
  std::string (*refusal)(const CodedRequest&);
  std::size_t (*arena_bytes)(const CodedRequest&, std::uint32_t rank);
  std::unique_ptr<Collective> (*bind)(const CodedRequest&, const Site&);
  CallParts (*parts)(const CodedRequest&, const TensorPart&);
  /// Why this tensor must be exchanged dense; null: none must.
  std::string (*tensor_refusal)(const CodedRequest&, const TensorPart&) = nullptr;
};

/// A page for each allocation from the arena, as alignment may need it.
inline constexpr std::size_t arena_slack = 4096;

}  // namespace gradmeter::allreduce
