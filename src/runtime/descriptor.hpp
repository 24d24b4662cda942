// File descriptors that close themselves, and lines on them that arrive whole.
#pragma once
#include <source_location>
#include <string_view>

#include "runtime/handle.hpp"

namespace gradmeter::runtime {

struct DescriptorTraits {
  using type = int;
  static type null() noexcept { return -1; }
  static void free(type descriptor) noexcept;
};
using Descriptor = Handle<DescriptorTraits>;

/// Owns what a system call gave. Errors: BackendError with errno's text when it gave a negative number.
Descriptor checked_descriptor(int result, const char* call,
                              std::source_location where = std::source_location::current());

/// Writes all of `text`, over interruptions and short writes. False where the descriptor takes no more (closed pipe).
bool write_all(int descriptor, std::string_view text) noexcept;

/// One line on standard error in one write, so that lines of several ranks do not mix. A line end is added.
void write_stderr_line(std::string_view line);

}  // namespace gradmeter::runtime
