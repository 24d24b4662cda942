// From lists of models, batches and precisions to the points of an inference sweep.
#pragma once
#include <string>
#include <vector>

#include "bench/engine/node_map.hpp"
#include "core/result.hpp"
#include "kernels/problems/problem.hpp"

namespace gradmeter::bench {

struct InferFactors {
  std::vector<std::string> models;  ///< canonical names
  std::vector<std::size_t> batches;
  std::vector<kernels::Precision> precisions;
  bool on_host = true;
};

struct InferPoint {
  std::string model;
  std::size_t batch = 0;  ///< samples of a pass; 0: accuracy alone
  kernels::Precision precision = kernels::Precision::fp32;
  std::size_t group = 0;  ///< those of one model and batch take turns
  bool is_timed() const { return batch > 0; }
};

/// By model, batch, precision, in the order given. Precisions that software rounds to have one point a model, without a
/// batch: they have no times. A GPU has all but int4.
std::vector<InferPoint> plan_infer(const InferFactors&);
core::Factors to_factors(const InferPoint&, const NodeMap&, int threads, const std::string& device);

}  // namespace gradmeter::bench
