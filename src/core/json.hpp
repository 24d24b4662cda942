// SPDX-License-Identifier: Apache-2.0
// The only adapter for JSON. Include json_fwd where a declaration is enough.
#pragma once
#include <nlohmann/json.hpp>

namespace gradmeter::core {
using Json = nlohmann::ordered_json;
}
