// Charts as pictures without a browser: vl-convert draws the same specifications, in a Python of its own.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "report/page/rows.hpp"

namespace gradmeter::report {

enum class Picture { png, svg };

/// NAME.png or NAME.svg in the folder for every chart that applies; their paths. `GRADMETER_CHARTS_PYTHON` names a
/// Python that has vl_convert; else the one that gradmeter was built with. Errors: UsageError where there is no such
/// Python; BackendError where a picture could not be drawn or written.
std::vector<std::filesystem::path> draw_charts(const RowTable&, const std::filesystem::path& folder, Picture);

}  // namespace gradmeter::report
