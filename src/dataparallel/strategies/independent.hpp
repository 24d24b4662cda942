// Every rank trains alone: the control that shows what communication costs, and what contention costs without it.
#pragma once
#include "dataparallel/strategy.hpp"

namespace gradmeter::dataparallel {

/// Bytes: none. Source: tf_cnn_benchmarks' `independent`.
std::unique_ptr<Strategy> make_independent(const core::ParsedName&, const StrategyOptions&);

}  // namespace gradmeter::dataparallel
