// SPDX-License-Identifier: Apache-2.0
// The version of this gradmeter.
#pragma once
#include <string>

namespace gradmeter::bench {

std::string version();  ///< "0.1.0"
/// The commit's short hash, with "-dirty" behind it if the tree was changed; "unknown" if the source comes neither from
/// a git clone nor from `git archive`.
std::string commit();
std::string commit_date();  ///< date of that commit: "2026-11-26"; empty if the commit is unknown

}  // namespace gradmeter::bench
