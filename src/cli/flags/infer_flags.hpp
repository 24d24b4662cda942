// The options of `gradmeter infer`.
#pragma once
#include "bench/infer/infer.hpp"
#include "cli/data.hpp"
#include "cli/flags/flags.hpp"

namespace gradmeter::cli {

options::options_description describe_infer();

/// Models and batches must fit the data. Errors: UsageError of one line.
bench::InferOptions read_infer_options(const Flags&, const DataShape&, int default_threads);

}  // namespace gradmeter::cli
