// SPDX-License-Identifier: Apache-2.0
// The text files that are compiled into the program (gradmeter_embed in cmake/Embed.cmake).
#pragma once
#include <string_view>

namespace gradmeter::core {

struct EmbeddedFile {
  std::string_view name;  ///< without folder and ending
  std::string_view text;
};

}  // namespace gradmeter::core
