// All-gather of encoded tensors: every rank decodes all contributions and adds them in rank order. So each is encoded
// once, whatever the ranks. Sends less than a sum of fp32 with fewer ranks than 64 / (wire bits of an element).
#pragma once
#include "allreduce/compressed/coded_request.hpp"

namespace gradmeter::allreduce {

/// All tensors of a call are gathered at once, by the algorithm's own all-gather; by a ring where it is a selection.
/// Lengths that depend on the data are gathered first, and of each tensor all ranks send as many bytes as the longest.
/// Where a sparse codec's ranks together would send more than a sum of fp32 (ranks × density at least 1), each rank
/// decodes its own tensor, and these are summed dense. Cost: (p-1)·wire_bytes sent by each rank; p·n decoded by each.
std::string gathered_refusal(const CodedRequest&);
std::size_t gathered_arena_bytes(const CodedRequest&, std::uint32_t rank);
CallParts gathered_parts(const CodedRequest&, std::span<const TensorPart>);
/// Are the lengths of encodings known beforehand, so that a GPU's need no word with the host? Not of DGC, which keeps
/// momentum on the host, nor where tensors are summed dense.
bool gathers_on_gpu(const CodedRequest&);
std::unique_ptr<Collective> bind_gathered(const CodedRequest&, const Site&);

}  // namespace gradmeter::allreduce
