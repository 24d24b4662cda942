// Lists of problems, and published results for them, as `gradmeter list` shows them.
#pragma once
#include <string>
#include <vector>

#include "cli/list_member.hpp"

namespace gradmeter::cli {

/// "training/gemm", and how many problems it has.
std::vector<Member> problem_sets();
/// "v100-mixed", and how many times of what.
std::vector<Member> published_members();
/// The problems of "training/gemm". Errors: UsageError that names the sets.
std::vector<Member> problems_of(const std::string& set);

}  // namespace gradmeter::cli
