// SPDX-License-Identifier: Apache-2.0
// A text file that is compiled into the program by gradmeter_embed (cmake/Embed.cmake).
#pragma once
#include <string_view>

namespace gradmeter::core {

struct EmbeddedFile {
  std::string_view name;  ///< without folder and extension
  std::string_view text;
};

}  // namespace gradmeter::core
