// SPDX-License-Identifier: Apache-2.0
#include "core/error.hpp"

#include <atomic>
#include <cstdio>
#include <exception>

#include "core/format.hpp"
#include "core/print.hpp"

namespace gradmeter::core {

namespace {
std::string_view base_name(std::string_view path) { return path.substr(path.find_last_of('/') + 1); }
std::atomic<bool> failed_release = false;
}  // namespace

BackendError::BackendError(std::string library, std::string call, std::string reason, std::source_location where)
    : std::runtime_error(
          fmt::format("{}: {} failed: {} ({}:{})", library, call, reason, base_name(where.file_name()), where.line())),
      library_(std::move(library)) {}

void note_failed_release(const char* library, const char* call, const char* reason) noexcept {
  if (std::uncaught_exceptions() > 0 || failed_release.exchange(true)) return;
  try {
    print(stderr,
          "gradmeter: {}: {} failed in the end: {}; an earlier operation may have failed with it: do not trust the "
          "last rows, run it again\n",
          library, call, reason);
  } catch (const std::exception&) {
    std::fputs("gradmeter: a call failed in the end\n", stderr);  // there is not enough memory for the full message
  }
}

bool has_failed_release() noexcept { return failed_release; }

}  // namespace gradmeter::core
