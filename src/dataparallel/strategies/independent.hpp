// Every rank trains alone: the control, which shows the cost of communication, and contention without communication.
#pragma once
#include "dataparallel/strategy.hpp"

namespace gradmeter::dataparallel {

/// Bytes: none. Source: tf_cnn_benchmarks' `independent`.
std::unique_ptr<Strategy> make_independent(const core::ParsedName&, const StrategyOptions&);

}  // namespace gradmeter::dataparallel
