// SPDX-License-Identifier: Apache-2.0
// Places buffers in the host's memory. The time of work on a buffer depends on which pages it has, by about 1 % of a
// step of 100 us, for as long as the buffer lives. If a caller frees a buffer and allocates an equal one, an allocator
// returns the same pages. So each buffer begins at a random page, and a buffer that is built again is somewhere else
// (results/truth.md, "Equal work, again").
#pragma once
#include <cstddef>

namespace gradmeter::runtime {

/// Draws by how many bytes a buffer of this size is to begin later: whole pages, fewer than 16, and no more than the
/// buffer itself has. Each call draws anew.
std::size_t draw_page_offset(std::size_t bytes);

/// Allocates memory for a buffer, aligned to cache lines, without writing to it. Errors: std::bad_alloc.
void* take_memory(std::size_t bytes);
/// Frees memory of take_memory.
void return_memory(void*) noexcept;

}  // namespace gradmeter::runtime
