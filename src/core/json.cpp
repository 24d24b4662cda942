// SPDX-License-Identifier: Apache-2.0
#include "core/json.hpp"

namespace gradmeter::core {

std::string json_text(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

Json parse_json(std::string_view text) { return Json::parse(text); }

std::optional<Json> try_parse_json(std::string_view text) {
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  return json.is_discarded() ? std::nullopt : std::optional(std::move(json));
}

}  // namespace gradmeter::core
