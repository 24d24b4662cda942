#include "core/disturbance.hpp"

#include <algorithm>
#include <cmath>
#include <variant>

namespace gradmeter::core {
namespace {

constexpr double noticeable = 0.05;

double known(double share) { return std::isfinite(share) ? share : 0; }

}  // namespace

double run_delay(const Metrics& m) {
  const auto* outnumber = m[Metric::oversubscribed].as<bool>();
  return outnumber && *outnumber ? 0 : known(m.number(Metric::noise_run_delay));
}
bool waits_for_cores(const Metrics& m) { return run_delay(m) > noticeable; }

double steal(const Metrics& m) { return known(m.number(Metric::noise_steal)); }
bool loses_cores(const Metrics& m) { return steal(m) > noticeable; }

bool is_mostly_disturbed(const Metrics& m) { return 2 * m.number(Metric::disturbed_blocks) > m.number(Metric::blocks); }
bool is_disturbed(const Metrics& m) { return waits_for_cores(m) || loses_cores(m) || is_mostly_disturbed(m); }

double share_of_disturbance(const Metrics& m) {
  const double slower = is_mostly_disturbed(m) ? known(1 - m.number(Metric::steadiness)) : 0;
  return std::clamp(std::max({steal(m), run_delay(m), slower}), 0.0, 1.0);
}

}  // namespace gradmeter::core
