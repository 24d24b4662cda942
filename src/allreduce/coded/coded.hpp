// SPDX-License-Identifier: Apache-2.0
// All-reduces with a codec that are made of other collectives: what is asked for, and the inner calls that they make.
#pragma once
#include <algorithm>
#include <memory>
#include <span>
#include <string>

#include "allreduce/registry.hpp"
#include "compression/registry.hpp"

namespace gradmeter::allreduce {

/// An inner call of a call with a codec: a collective over plain elements, or, with `codec`, an encoded one of the
/// executor.
struct CallPart {
  AlgorithmPtr algorithm;
  CollectiveKind collective_kind = CollectiveKind::all_reduce;
  std::size_t count = 0;
  std::size_t element_bytes = sizeof(float);
  compression::CodecChoicePtr codec = {};
  bool most = false;  ///< the count depends on the data, and this is the largest that it can be
};
using CallParts = std::vector<CallPart>;

/// How one codec's gradients are exchanged where the executor alone cannot do it. A call exchanges a pack of tensors,
/// which the `tensor_layout` lists, with residuals where the codec has error feedback. Each tensor is encoded by
/// itself, and all encodings travel together. `refusal`: the reason why the combination is refused; null: none ever is.
/// `arena_bytes`: the bytes that `bind` takes from the arena. `parts`: the inner calls for a pack.
struct CodedExchange {
  std::string (*refusal)(const ExchangeSpec&);
  std::size_t (*arena_bytes)(const ExchangeSpec&, std::uint32_t rank);
  std::unique_ptr<Collective> (*bind)(const ExchangeSpec&, const Site&);
  CallParts (*parts)(const ExchangeSpec&, std::span<const TensorPart>);
  /// The reason why this tensor must be exchanged dense; null: no tensor must be.
  std::string (*tensor_refusal)(const ExchangeSpec&, const TensorPart&) = nullptr;
  bool packs = true;         ///< false: a call has one tensor
  bool takes_dense = false;  ///< a pack may also have parts that go dense, each as a matrix of one row
};

/// The bytes that each allocation from the arena may take beyond its size for its alignment: one page.
inline constexpr std::size_t arena_slack = 4096;

/// Dense tensors travel together in batches of at most 1 MiB, or of the longest call where that is shorter [bytes].
inline std::size_t dense_bytes(const ExchangeSpec& r) { return std::min(r.max_bytes, std::size_t{1} << 20); }

/// The most tensors of a call with a codec. It bounds the tensors of a bucket, so that memory for one length or one
/// scale a tensor is bounded too.
inline constexpr std::size_t longest_pack = 256;
inline std::size_t most_packed(const ExchangeSpec& r) {
  return std::clamp<std::size_t>(r.max_elements() / std::max<std::size_t>(r.codec->min_elements, 1), 1, longest_pack);
}

// An all-reduce with a codec encodes each tensor that is long enough by itself; the others travel dense. All encodings
// of a buffer's tensors travel together, unless the executor encodes them on the way.

/// The reason why this codec cannot be combined with this algorithm on these ranks; empty: it can be.
std::string codec_refusal(const ExchangeSpec&, CollectiveKind, Arithmetic);
/// The reason why none of these tensors can be encoded although some are long enough; empty: some can be, or none is
/// long enough.
std::string tensor_layout_refusal(const ExchangeSpec&, std::span<const TensorPart>);
/// The inner calls for a buffer of these tensors, in order, to forecast their bytes. The combination must not be
/// refused (`codec_refusal`). Without tensors, the buffer counts as one tensor.
CallParts coded_call_parts(const ExchangeSpec&, std::size_t count, std::span<const TensorPart>);
/// The most encodings in sequence between a rank's contribution and the sum; 0: this tensor travels dense. The
/// combination must not be refused.
std::uint32_t encodings_on_the_way(const ExchangeSpec&, const TensorPart&);
/// The most bytes that `bind_coded` takes from the network's arena on this rank.
std::size_t coded_arena_bytes(const ExchangeSpec&, std::uint32_t rank);
/// Collective over the site's ranks. A call's `tensor_layout` names its tensors and the buffer's place among all
/// elements that are exchanged, by which error feedback is kept from call to call. Random rounding is drawn by `seed`
/// and a count of the calls. The name is "ring qsgd4". Errors: UsageError with the refusal; BackendError when memory is
/// short.
std::unique_ptr<Collective> bind_coded(const ExchangeSpec&, const Site&, std::uint64_t seed = 1);

}  // namespace gradmeter::allreduce
