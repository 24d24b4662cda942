#include "runtime/time/drift_model.hpp"

#include <algorithm>
#include <cmath>

namespace gradmeter::runtime {
namespace {

/// What a kernel may correct a clock by: adjtimex(2), MAXFREQ. Crystals differ by a tenth of it.
constexpr double greatest_rate = 500e-6;
/// Rates follow the temperature: what lies far back says little about now.
constexpr std::size_t most = 16;
/// [s], a clock's own steps: no synchronisation weighs infinitely much.
constexpr double least_uncertainty = 1e-8;

double weight(const Synchronisation& s) {
  const double u = std::max(s.uncertainty, least_uncertainty);
  return 1 / (u * u);
}

}  // namespace

void DriftModel::add(const Synchronisation& s) {
  const bool off_the_line = std::fabs(s.offset - offset(s.at)) > uncertainty(s.at) + s.uncertainty;
  if (!latest_.empty() && off_the_line) latest_.erase(latest_.begin(), latest_.end() - 1);
  latest_.push_back(s);
  if (latest_.size() > most) latest_.pop_front();
  fit();
}

void DriftModel::fit() {
  double weights = 0, at = 0, offset = 0, uncertainty = 0;
  // Means of differences: squares of the time since the machine was started would leave no digits.
  const Synchronisation& first = latest_.front();
  for (const auto& s : latest_) {
    const double w = weight(s);
    weights += w;
    at += w * (s.at - first.at);
    offset += w * (s.offset - first.offset);
    uncertainty += w * s.uncertainty;
  }
  at_ = first.at + at / weights;
  offset_ = first.offset + offset / weights;
  uncertainty_ = uncertainty / weights;
  // The rate that is expected before anything is known is one observation more: 0, give or take the greatest.
  double spread = 1 / (greatest_rate * greatest_rate), common = 0, doubt = 1 / greatest_rate;
  for (const auto& s : latest_) {
    const double w = weight(s), away = s.at - at_;
    spread += w * away * away;
    common += w * away * (s.offset - offset_);
    doubt += w * std::fabs(away) * s.uncertainty;
  }
  rate_ = common / spread;
  rate_uncertainty_ = doubt / spread;
}

double DriftModel::uncertainty(double at) const { return uncertainty_ + rate_uncertainty_ * std::fabs(at - at_); }

}  // namespace gradmeter::runtime
