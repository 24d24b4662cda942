// The check every kernel makes of the buffers it is given.
#pragma once
#include <cstddef>
#include <stdexcept>
#include <string_view>

#include "core/format.hpp"

namespace gradmeter::kernels {

/// Errors: std::invalid_argument, a mistake of the caller and not of the user: "gemm: c has 5 elements, not 6".
inline void require_elements(std::string_view what, std::size_t have, std::size_t want) {
  if (have != want) throw std::invalid_argument(fmt::format("{} has {} elements, not {}", what, have, want));
}

}  // namespace gradmeter::kernels
