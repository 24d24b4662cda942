// What the compressed collectives are made from.
#pragma once
#include <algorithm>
#include <span>

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
  /// Whose kernels encode. Null: buffers are the host's, or those of a device that runs the host's code.
  runtime::Device* gpu() const {
    return options.queue && options.queue->device().is_staged() ? &options.queue->device() : nullptr;
  }
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

/// How one codec's gradients are exchanged, where the executor alone cannot do it. A call is a pack of tensors, which
/// the `tensor_layout` lists, with residuals where the codec has error feedback: each is encoded by itself, and what
/// they send travels together. `refusal`: why the combination is refused; null: never. `arena_bytes`: what `bind`
/// takes. `parts`: the inner calls for a pack.
struct CodedExchange {
  std::string_view codec;
  std::string (*refusal)(const CodedRequest&);
  std::size_t (*arena_bytes)(const CodedRequest&, std::uint32_t rank);
  std::unique_ptr<Collective> (*bind)(const CodedRequest&, const Site&);
  CallParts (*parts)(const CodedRequest&, std::span<const TensorPart>);
  /// Why this tensor must be exchanged dense; null: none must.
  std::string (*tensor_refusal)(const CodedRequest&, const TensorPart&) = nullptr;
  bool packs = true;         ///< false: a call has one tensor
  bool takes_dense = false;  ///< a pack may also have parts that go dense, each as a matrix of one row
};

/// A page for each allocation from the arena, as alignment may need it.
inline constexpr std::size_t arena_slack = 4096;

/// Dense tensors travel together in batches of at most so many bytes, which is this or the longest call.
inline std::size_t dense_bytes(const CodedRequest& r) { return std::min(r.options.max_bytes, std::size_t{1} << 20); }

/// The most tensors of a call with a codec: those of a bucket, but bounded, so that memory for a length or a scale of
/// each is too.
inline constexpr std::size_t longest_pack = 256;
inline std::size_t most_packed(const CodedRequest& r) {
  return std::clamp<std::size_t>(r.max_elements() / std::max<std::size_t>(r.codec.min_elements, 1), 1, longest_pack);
}

}  // namespace gradmeter::allreduce
