// Which columns of a CSV file define a shape: for lists of problems and for published results.
#pragma once
#include <string>
#include <vector>

#include "kernels/problems/csv.hpp"
#include "kernels/problems/problem.hpp"

namespace gradmeter::kernels {

/// Errors: CsvFault.
using ShapeReader = ProblemShape (*)(const CsvRow&);

/// The first operation whose columns are all among the names. Errors: UsageError when there is none.
ShapeReader shape_reader(const std::vector<std::string>& names, const std::string& file);

}  // namespace gradmeter::kernels
