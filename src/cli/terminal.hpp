// How wide tables may be.
#pragma once
#include <cstddef>

#include "cli/flags/flags.hpp"

namespace gradmeter::cli {

void add_wide_flag(options::options_description&);

/// The width of a line of standard output [cells]: any number with --wide; else COLUMNS where it is set; else the
/// terminal's; 120 where there is no terminal, or one that does not know its size (a pipe, mpirun's own).
std::size_t table_width(const Flags&);

}  // namespace gradmeter::cli
