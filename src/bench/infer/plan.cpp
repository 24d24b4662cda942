#include "bench/infer/plan.hpp"

namespace gradmeter::bench {

namespace {
bool is_emulated(const InferFactors& f, kernels::Precision p) {
  return kernels::info(p).emulated && (f.on_host || kernels::info(p).native_bytes == 0);
}
}  // namespace

std::vector<InferPoint> plan_infer(const InferFactors& f) {
  std::vector<InferPoint> out;
  std::size_t group = 0;
  const auto add = [&](const std::string& model, std::size_t batch) {
    for (const auto p : f.precisions)
      if (is_emulated(f, p) == (batch == 0))
        out.push_back({.model = model, .batch = batch, .precision = p, .group = group});
    ++group;
  };
  for (const std::string& model : f.models) {
    for (const std::size_t batch : f.batches) add(model, batch);
    add(model, 0);
  }
  return out;
}

core::Factors to_factors(const InferPoint& p, const NodeMap& map, int threads, const std::string& device) {
  using core::Factor;
  core::Factors f;
  fill_ranks(map, f);
  f[Factor::threads] = std::int64_t{threads};
  f[Factor::device] = device;
  f[Factor::model] = p.model;
  f[Factor::precision] = std::string(kernels::name(p.precision));
  if (p.is_timed()) f[Factor::batch_per_rank] = static_cast<std::int64_t>(p.batch);
  return f;
}

}  // namespace gradmeter::bench
