// Findings and tables as Markdown, for a pull request.
#pragma once
#include <string>

#include "report/page/rows.hpp"
#include "report/page/sentences.hpp"

namespace gradmeter::report {

/// The findings as a list, what the sides' comparisons say, and for each experiment a table of its varying factors and
/// its main figures; long ones are cut, and say so.
std::string markdown(const RowTable&, const Said&);

}  // namespace gradmeter::report
