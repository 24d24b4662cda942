// SPDX-License-Identifier: Apache-2.0
// Copies by non-temporal stores, which bypass the caches.
#pragma once
#include <cstddef>

namespace gradmeter::core {

/// Does what memcpy does, with stores that do not first read the lines they overwrite. This is faster for buffers
/// longer than the last-level cache, and slower for shorter ones. Addresses may have any alignment. Other threads and
/// ranks see the data once this thread has called `end_streaming`. Cost: 2n bytes of memory traffic, where a plain copy
/// causes 3n.
void copy_streaming(std::byte* to, const std::byte* from, std::size_t bytes);
void end_streaming();

}  // namespace gradmeter::core
