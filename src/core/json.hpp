// SPDX-License-Identifier: Apache-2.0
// The only header that includes the JSON library. Where a declaration of its types is enough, include
// <nlohmann/json_fwd.hpp> instead.
#pragma once
#include <nlohmann/json.hpp>

namespace gradmeter::core {
using Json = nlohmann::ordered_json;
}
