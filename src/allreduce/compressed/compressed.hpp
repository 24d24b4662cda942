// An all-reduce with a codec: tensors that are worth it go encoded, one by one, the others dense and together.
#pragma once
#include <memory>
#include <string>

#include "allreduce/compressed/coded_request.hpp"

namespace gradmeter::allreduce {

/// Why this codec cannot be had with this algorithm there; empty: it can.
std::string codec_refusal(const CodedRequest&, CollectiveKind, Arithmetic);
/// Why none of these tensors can go encoded although some are long enough for it; empty: some can, or none is.
std::string tensor_layout_refusal(const CodedRequest&, std::span<const TensorPart>);
/// What a call on a buffer of these tensors comes down to, in order, for a forecast of its bytes; it must not be
/// refused. No tensors: the buffer is one.
CallParts coded_call_parts(const CodedRequest&, std::size_t count, std::span<const TensorPart>);
/// How often numbers are encoded one after another on their way from a rank's contribution to the sum, at most; 0: this
/// tensor goes dense. It must not be refused.
std::uint32_t encodings_on_the_way(const CodedRequest&, const TensorPart&);
/// What `bind_coded` takes from the network's arena on this rank, at most.
std::size_t coded_arena_bytes(const CodedRequest&, std::uint32_t rank);
/// Collective over the site's ranks. Calls say of their `tensor_layout` which tensors there are, and where the buffer
/// lies among all that is exchanged; error feedback is kept from call to call by that place. Random rounding is drawn
/// by `seed` and a count of the calls. The name is "ring qsgd4". Errors: UsageError with the refusal; BackendError when
/// memory is short.
std::unique_ptr<Collective> bind_coded(const CodedRequest&, const Site&, std::uint64_t seed = 1);

}  // namespace gradmeter::allreduce
