// SPDX-License-Identifier: Apache-2.0
// Places buffers in the host's memory, each at a random page. The pages on which a buffer lies change the time of all
// work on it (by about 1 % for a step of 100 us). An allocator alone would hide this from a repeated measurement,
// because it gives the pages of a freed buffer to the next buffer of the same size. With random pages, a buffer that is
// built again lies somewhere else (results/truth.md, "Equal work, again").
#pragma once
#include <cstddef>

namespace gradmeter::runtime {

/// Draws the offset from the start of an allocation at which a buffer of `bytes` is to begin [bytes]. It is a whole
/// number of pages, less than 16 and less than the number of whole pages in the buffer (so 0 below two pages). Each
/// call draws anew.
std::size_t draw_page_offset(std::size_t bytes);

/// Allocates memory for a buffer, aligned to cache lines, without writing to it. Errors: std::bad_alloc.
void* allocate_at_random_page(std::size_t bytes);
/// Frees memory of allocate_at_random_page.
void free_at_random_page(void*) noexcept;

}  // namespace gradmeter::runtime
