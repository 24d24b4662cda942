// SPDX-License-Identifier: Apache-2.0
// All-reduces with a codec: what each exchange with a codec needs, which inner calls it makes, and how it is bound.
#pragma once
#include <algorithm>
#include <memory>
#include <span>
#include <string>

#include "allreduce/registry.hpp"
#include "compression/registry.hpp"

namespace gradmeter::allreduce {

/// An inner call of an exchange with a codec. If `codec` is null, it is a plain collective; else the executor encodes
/// the blocks that the collective sends.
struct InnerCall {
  AlgorithmPtr algorithm;
  CollectiveKind collective_kind = CollectiveKind::all_reduce;
  std::size_t count = 0;
  std::size_t element_bytes = sizeof(float);
  compression::CodecChoicePtr codec = {};
  bool upper_bound = false;  ///< true: the real count depends on the data, and `count` is an upper bound
};
using InnerCalls = std::vector<InnerCall>;

/// An exchange of gradients with a codec. A call exchanges a pack: the tensors listed in its `tensor_layout`, with
/// residuals if the codec has error feedback. Each tensor is encoded separately, and all encodings travel together.
/// `refusal` says why this codec cannot be combined with this algorithm and these ranks (null: it always can),
/// `arena_bytes` how many bytes `bind` takes from the arena, and `inner_calls` which inner calls exchange a pack.
struct CodedExchange {
  std::string (*refusal)(const ExchangeSpec&);
  std::size_t (*arena_bytes)(const ExchangeSpec&, std::uint32_t rank);
  std::unique_ptr<Collective> (*bind)(const ExchangeSpec&, const GroupConnection&);
  InnerCalls (*inner_calls)(const ExchangeSpec&, std::span<const TensorPart>);
  /// Says why this tensor must be exchanged without the codec (empty: it can be encoded). Null: every tensor can be
  /// encoded.
  std::string (*tensor_refusal)(const ExchangeSpec&, const TensorPart&) = nullptr;
  bool packs_hold_several = true;  ///< false: each pack is a single tensor
  /// True: a pack may also hold tensors that are exchanged without the codec. Such a tensor is listed in the
  /// `tensor_layout` with rows = 1 and columns = count, by which the collective knows that it is not to be encoded.
  bool packs_take_uncoded = false;
};

/// The most bytes by which alignment lengthens an allocation from the arena: one page.
inline constexpr std::size_t arena_slack = 4096;

/// The most bytes in a batch of tensors that are exchanged without the codec: 1 MiB, or `max_bytes` if that is less.
inline std::size_t dense_bytes(const ExchangeSpec& spec) { return std::min(spec.max_bytes, std::size_t{1} << 20); }

/// The most tensors in any pack. This bounds the memory for the lengths or scales that a call keeps for each tensor.
inline constexpr std::size_t pack_tensor_limit = 256;
/// The most tensors in a pack with this spec: as many as fit into `max_bytes` if each has the codec's `min_elements`
/// elements, and at most `pack_tensor_limit`.
inline std::size_t most_tensors_in_pack(const ExchangeSpec& spec) {
  return std::clamp<std::size_t>(spec.max_floats() / std::max<std::size_t>(spec.codec->min_elements, 1), 1,
                                 pack_tensor_limit);
}

// An all-reduce with a codec encodes the tensors that are long enough, each by itself, and exchanges all other tensors
// as fp32. The encodings of a pack travel together. If the executor encodes (block by block, as it sends them), each
// tensor is exchanged in a call of its own.

/// The reason why this codec cannot be combined with this algorithm on these ranks; empty: it can be.
std::string codec_refusal(const ExchangeSpec&, CollectiveKind, Arithmetic);
/// The reason why none of these tensors can be encoded although some are long enough; empty: some can be, or none is
/// long enough.
std::string tensor_layout_refusal(const ExchangeSpec&, std::span<const TensorPart>);
/// The inner calls that exchange a buffer of these tensors, in order; forecasts of the bytes are made from them.
/// Requires that `codec_refusal` is empty. Without tensors, the buffer counts as one tensor.
InnerCalls inner_calls_of(const ExchangeSpec&, std::size_t count, std::span<const TensorPart>);
/// The most times that a rank's contribution is encoded on its way into the sum; 0: this tensor travels without the
/// codec. Requires that `codec_refusal` is empty.
std::uint32_t encodings_on_the_way(const ExchangeSpec&, const TensorPart&);
/// The most bytes that `bind_coded` takes from the network's arena on this rank.
std::size_t coded_arena_bytes(const ExchangeSpec&, std::uint32_t rank);
/// Binds the all-reduce to the group's ranks. A call's `tensor_layout` names its tensors and the buffer's offset among
/// all elements that are exchanged. By this offset the call finds its residuals, which are kept from call to call.
/// Random rounding draws from `seed` and the number of the call. The collective's name is like "ring qsgd4". Errors:
/// UsageError with the refusal; BackendError when memory is short.
std::unique_ptr<Collective> bind_coded(const ExchangeSpec&, const GroupConnection&, std::uint64_t seed = 1);

}  // namespace gradmeter::allreduce
