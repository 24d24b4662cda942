// SPDX-License-Identifier: Apache-2.0
// The version of this gradmeter.
#pragma once
#include <string>

namespace gradmeter::bench {

std::string version();      ///< "0.1.0"
std::string commit();       ///< short hash, "-dirty" behind it where the tree was changed; "unknown" outside a checkout
std::string commit_date();  ///< date of that commit: "2026-11-26"; empty outside a checkout

}  // namespace gradmeter::bench
