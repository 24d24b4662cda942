#include "core/error.hpp"

#include "core/format.hpp"

namespace gradmeter::core {

namespace {
std::string_view base_name(std::string_view path) { return path.substr(path.find_last_of('/') + 1); }
}  // namespace

BackendError::BackendError(std::string library, std::string call, std::string reason, std::source_location where)
    : std::runtime_error(
          fmt::format("{}: {} failed: {} ({}:{})", library, call, reason, base_name(where.file_name()), where.line())),
      library_(std::move(library)) {}

}  // namespace gradmeter::core
