// Copies by non-temporal stores: for results that are longer than the last-level cache.
#pragma once
#include <cstddef>

namespace gradmeter::allreduce {

/// As memcpy, with stores that do not first read the lines they overwrite. Worth it for buffers beyond the last-level
/// cache; slower for smaller ones. Any alignment. The stores are visible to other ranks after `end_streaming`.
/// Cost: 2n bytes of memory traffic, where a plain copy causes 3n.
void copy_streaming(std::byte* to, const std::byte* from, std::size_t bytes);
void end_streaming();

}  // namespace gradmeter::allreduce
