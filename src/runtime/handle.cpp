// SPDX-License-Identifier: Apache-2.0
#include "runtime/handle.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "core/error.hpp"
#include "core/print.hpp"

namespace gradmeter::runtime {

void DescriptorTraits::free(type descriptor) noexcept { ::close(descriptor); }

Descriptor checked_descriptor(int result, const char* call, std::source_location where) {
  if (result < 0) throw core::BackendError("libc", call, std::strerror(errno), where);
  return Descriptor(result);
}

bool write_all(int descriptor, std::string_view text) noexcept {
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

void write_stderr_line(std::string_view line) { write_all(STDERR_FILENO, core::printable(line) + '\n'); }

}  // namespace gradmeter::runtime
