// How wide tables may be.
#pragma once
#include <cstddef>

#include "cli/flags.hpp"

namespace gradmeter::cli {

void add_wide_flag(options::options_description&);

/// Cells in a line of standard output: any number with --wide; else COLUMNS where it is set; else the terminal's; 120
/// where standard output is none, or one that does not know its size (a pipe, mpirun's own).
std::size_t table_width(const Flags&);

}  // namespace gradmeter::cli
