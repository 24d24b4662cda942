#include "bench/explain.hpp"

#include <algorithm>

namespace gradmeter::bench {

std::string binding_limit(const Loss& loss, double step_s, bool oversubscribed) {
  if (loss.lost < 0.05 * step_s) return "compute";
  const double skew = std::clamp(loss.skew, 0.0, std::max(loss.exposed, 0.0));
  const double wire = std::max(loss.exposed, 0.0) - skew;
  const double largest = std::max({loss.contention, skew, wire});
  if (largest == loss.contention) return oversubscribed ? "cores" : "memory";
  return largest == skew ? "skew" : "wire";
}

}  // namespace gradmeter::bench
