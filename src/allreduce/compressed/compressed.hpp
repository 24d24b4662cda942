// An all-reduce with a codec: long enough tensors are encoded, each by itself, the others travel dense. What a codec
// sends of a buffer's tensors travels together, unless the executor encodes it on its way.
#pragma once
#include <memory>
#include <string>

#include "allreduce/compressed/coded_request.hpp"

namespace gradmeter::allreduce {

/// Why this codec cannot be combined with this algorithm on these ranks; empty: it can.
std::string codec_refusal(const CodedRequest&, CollectiveKind, Arithmetic);
/// Why none of these tensors can be encoded although some are long enough; empty: some can, or none is long enough.
std::string tensor_layout_refusal(const CodedRequest&, std::span<const TensorPart>);
/// The inner calls for a buffer of these tensors, in order, to forecast their bytes. It must not be refused. No
/// tensors: the buffer is one.
CallParts coded_call_parts(const CodedRequest&, std::size_t count, std::span<const TensorPart>);
/// The most encodings in sequence between a rank's contribution and the sum; 0: this tensor goes dense. It must not be
/// refused.
std::uint32_t encodings_on_the_way(const CodedRequest&, const TensorPart&);
/// What `bind_coded` takes from the network's arena on this rank, at most.
std::size_t coded_arena_bytes(const CodedRequest&, std::uint32_t rank);
/// Collective over the site's ranks. A call's `tensor_layout` names its tensors and the buffer's place in all that is
/// exchanged; error feedback is kept from call to call by that place. Random rounding is drawn by `seed` and a count of
/// the calls. The name is "ring qsgd4". Errors: UsageError with the refusal; BackendError when memory is short.
std::unique_ptr<Collective> bind_coded(const CodedRequest&, const Site&, std::uint64_t seed = 1);

}  // namespace gradmeter::allreduce
