// Models of `gradmeter list`: those with a name of their own, and the shipped layer tables with their figures.
#pragma once
#include <vector>

#include "cli/list_member.hpp"

namespace gradmeter::cli {

std::vector<Member> models();
/// Figures, then samples and sources, of the members that are layer tables; prints nothing where there is none.
void print_layer_tables(const std::vector<Member>&, std::size_t width);

}  // namespace gradmeter::cli
