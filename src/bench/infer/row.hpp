// Turns what was found of a model in one precision into a row.
#pragma once
#include <functional>
#include <string>

#include "bench/infer/accuracy.hpp"
#include "bench/infer/latency.hpp"
#include "bench/infer/plan.hpp"

namespace gradmeter::bench {

/// Status wrong where the logits cannot be the network's.
void fill_accuracy(const InferPoint&, const PrecisionAccuracy&, core::Point& row);
/// Status wrong, and no times, where a timed pass was. ranks: that have run it at once. host_of: a rank's.
void fill_latency(const InferPoint&, const LatencyFindings&, int ranks,
                  const std::function<std::string(int rank)>& host_of, core::Point& row);
/// Of the same model and batch.
void fill_speedup(const core::Point& fp32, core::Point& row);

}  // namespace gradmeter::bench
