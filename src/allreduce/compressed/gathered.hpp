// Everybody's encoded tensor goes to everybody, who add all of them up in rank order: one loss for each contribution,
// whatever the ranks. Beats a sum of fp32 on bytes while there are fewer ranks than 64 / (wire bits of an element).
#pragma once
#include "allreduce/compressed/coded_request.hpp"

namespace gradmeter::allreduce {

/// The bytes are gathered by the algorithm's own all-gather; by a ring where it is a selection. Lengths that depend on
/// the data go first, and all send as many bytes as the longest. A sparse codec whose ranks together would send more
/// than a sum of fp32 (ranks × density at least 1) has what it decodes itself summed densely.
/// Cost: (p-1)·wire_bytes sent by each rank; p·n decoded by each.
std::string gathered_refusal(const CodedRequest&);
std::size_t gathered_arena_bytes(const CodedRequest&, std::uint32_t rank);
CallParts gathered_parts(const CodedRequest&, const TensorPart&);
std::unique_ptr<Collective> bind_gathered(const CodedRequest&, const Site&);

}  // namespace gradmeter::allreduce
