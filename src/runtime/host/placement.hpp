// SPDX-License-Identifier: Apache-2.0
// Places buffers in the host's memory. Which pages a buffer has changes the time of work on it, by about 1 % of a step
// of 100 us, for as long as the buffer lives. If a caller frees a buffer and allocates an equal one, an allocator
// returns the same pages. So each buffer begins at a random page, and a buffer that is built again is somewhere else
// (results/truth.md, "Equal work, again").
#pragma once
#include <cstddef>

namespace gradmeter::runtime {

/// Draws the number of bytes by which the begin of a buffer of this size is moved back: whole pages, fewer than 16, and
/// no more than the buffer has. Each call draws anew.
std::size_t draw_page_offset(std::size_t bytes);

/// Allocates memory for a buffer, aligned to cache lines, without writing to it. Errors: std::bad_alloc.
void* take_memory(std::size_t bytes);
/// Frees memory of take_memory.
void return_memory(void*) noexcept;

}  // namespace gradmeter::runtime
