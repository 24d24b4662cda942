// The most memory that this process has had resident.
#pragma once
#include <cstddef>

namespace gradmeter::runtime {

/// From here on `peak_memory_bytes` is of what comes. Where the kernel refuses that, it stays of the whole process.
void forget_peak_memory();
/// The largest resident memory of this process since it began, or since that. Pages that it shares with others, such
/// as ranks on one host do with shared memory, count in equal parts, as they are shared now. 0: the kernel does not
/// say. Cost: some 10 us for each GiB.
std::size_t peak_memory_bytes();

}  // namespace gradmeter::runtime
