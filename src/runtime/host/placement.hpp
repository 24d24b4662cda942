// SPDX-License-Identifier: Apache-2.0
// Places the host's buffers. The pages of a buffer change the time of work on it, by about 1 % of a step of 100 us, for
// as long as it lives, and an allocator returns the same pages to a caller that frees and allocates alike. So each
// buffer begins at a random page, and a buffer that is built anew lies elsewhere (results/truth.md, "Equal work,
// again").
#pragma once
#include <cstddef>

namespace gradmeter::runtime {

/// Draws by how many bytes the begin of a buffer of this size is moved back: whole pages, fewer than 16 and no more
/// than it fills itself; drawn anew at each call.
std::size_t draw_page_offset(std::size_t bytes);

/// Memory for a buffer, aligned to cache lines, not written. Errors: std::bad_alloc.
void* take_memory(std::size_t bytes);
/// Gives back what take_memory gave.
void return_memory(void*) noexcept;

}  // namespace gradmeter::runtime
