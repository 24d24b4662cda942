// SPDX-License-Identifier: Apache-2.0
// The only header that includes the JSON library. Where a declaration of its types is enough, include
// <nlohmann/json_fwd.hpp> instead.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace gradmeter::core {
using Json = nlohmann::ordered_json;

// Use these functions to read and write text: a source that uses the library's own parser or writer takes 1.2 to 1.6 s
// longer to compile.

/// JSON text on one line; with `indent` >= 0, on lines indented by that many spaces for each level. Bytes that are not
/// UTF-8, which names of hosts and files may have, become U+FFFD.
std::string json_text(const Json& json, int indent = -1);
/// Errors: Json::parse_error.
Json parse_json(std::string_view text);
/// Empty: the text is not JSON.
std::optional<Json> try_parse_json(std::string_view text);
}  // namespace gradmeter::core
