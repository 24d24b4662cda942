// SPDX-License-Identifier: Apache-2.0
// The version of this gradmeter.
#pragma once
#include <string>

namespace gradmeter::bench {

std::string version();      ///< "0.1.0"
std::string commit();       ///< short hash, "-dirty" if the tree was changed; "unknown" without git and `git archive`
std::string commit_date();  ///< date of that commit: "2026-11-26"; empty if the commit is unknown

}  // namespace gradmeter::bench
