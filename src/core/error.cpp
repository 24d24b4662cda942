#include "core/error.hpp"

#include <atomic>
#include <cstdio>
#include <exception>

#include "core/format.hpp"

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
  std::fprintf(
      stderr,
      "gradmeter: %s: %s failed in the end: %s; an earlier operation may have failed with it: do not trust the "
      "last rows, run it again\n",
      library, call, reason);
}

bool has_failed_release() noexcept { return failed_release; }

}  // namespace gradmeter::core
