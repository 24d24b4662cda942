// Writes what a sweep has measured as a table for --algorithm auto:table=FILE.
#pragma once
#include <span>
#include <string>

#include "bench/collectives/collectives.hpp"
#include "core/result.hpp"

namespace gradmeter::cli {

/// Errors: UsageError when the factors do not make one table (one all-reduce, datatype, operation, transport, kind of
/// buffers and placement), or when the file exists.
void check_measured_table(const std::string& path, const bench::CollectiveFactors&);

/// The fastest algorithm of every size, with the machine and the conditions as comments.
/// Errors: BackendError when the file cannot be written; UsageError when no point was measured.
void write_measured_table(const std::string& path, std::span<const core::Point>, const core::RunInfo&);

}  // namespace gradmeter::cli
