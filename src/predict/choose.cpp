// SPDX-License-Identifier: Apache-2.0
#include "predict/choose.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <string>

#include "predict/step.hpp"

namespace gradmeter::predict {
namespace {

using Vector = std::array<double, term_count>;

double dot(const Vector& a, const Vector& b) {
  double sum = 0;
  for (std::size_t i = 0; i < term_count; ++i) sum += a.at(i) * b.at(i);
  return sum;
}

/// The knowledge about a machine's terms: the covariance of their logarithms.
class Knowledge {
 public:
  explicit Knowledge(const std::array<Prior, term_count>& priors) {
    for (std::size_t i = 0; i < term_count; ++i) covariance_.at(i).at(i) = priors.at(i).width * priors.at(i).width;
  }
  Vector covariance_times(const Vector& slope) const {
    Vector out{};
    for (std::size_t i = 0; i < term_count; ++i) out.at(i) = dot(covariance_.at(i), slope);
    return out;
  }
  /// The variance of the logarithm of a step with this slope.
  double variance(const Vector& slope) const { return dot(slope, covariance_times(slope)); }
  double variance_of_term(std::size_t i) const { return covariance_.at(i).at(i); }
  /// Lowers the covariance by the measurement of a step with this slope (Kalman's update).
  void measure(const Vector& slope) {
    const Vector covariance_slope = covariance_times(slope);
    const double total = dot(slope, covariance_slope) + noise * noise;
    for (std::size_t i = 0; i < term_count; ++i)
      for (std::size_t j = 0; j < term_count; ++j)
        covariance_.at(i).at(j) -= covariance_slope.at(i) * covariance_slope.at(j) / total;
  }
  static constexpr double noise = 0.04;

 private:
  std::array<Vector, term_count> covariance_{};
};

/// The derivatives of a step's logarithm with respect to the terms' logarithms; nothing if TransformerStep cannot
/// predict the step.
std::optional<Vector> slope_of(const TrainingStep& s) {
  const auto machine = machine_of(s).machine;
  if (!machine || !s.unread_reason.empty() || s.sequence == 0 || !TransformerStep::refusal(s).empty())
    return std::nullopt;
  const TransformerStep step(s, *machine);
  const Terms terms = terms_of(*machine, s);
  const double log_seconds = std::log(step.seconds(terms));
  constexpr double step_length = 1e-3;
  Vector slope{};
  for (std::size_t i = 0; i < term_count; ++i) {
    Terms moved = terms;
    moved.values.at(i) *= std::exp(step_length);
    slope.at(i) = (std::log(step.seconds(moved)) - log_seconds) / step_length;
  }
  return slope;
}

/// The mean over all rows of the standard deviation of log(predicted step).
double mean_deviation(const Knowledge& knowledge, const std::map<std::size_t, Vector>& slopes) {
  double sum = 0;
  for (const auto& [row, slope] : slopes) sum += std::sqrt(std::max(0.0, knowledge.variance(slope)));
  return slopes.empty() ? 0 : sum / static_cast<double>(slopes.size());
}

}  // namespace

Choices choose_rows(std::span<const TrainingStep> candidates, std::span<const TrainingStep> known, std::size_t count) {
  std::map<std::size_t, Vector> slopes;  // by index among the candidates
  for (std::size_t i = 0; i < candidates.size(); ++i)
    if (const auto slope = slope_of(candidates[i])) slopes.emplace(i, *slope);
  Choices out;
  if (slopes.empty()) return out;
  const TrainingStep& first = candidates[slopes.begin()->first];
  Knowledge knowledge(priors_of(*machine_of(first).machine, first));
  for (const TrainingStep& s : known)
    if (s.step_s > 0 && s.system == first.system && is_same_device(s.gpu, first.gpu) && is_usual_step(s))
      if (const auto slope = slope_of(s)) knowledge.measure(*slope);
  out.uncertainty = mean_deviation(knowledge, slopes);
  auto remaining = slopes;
  while (out.rows.size() < count && !remaining.empty()) {
    std::size_t best = 0;
    double best_deviation = INFINITY;
    for (const auto& [row, slope] : remaining) {
      Knowledge after = knowledge;
      after.measure(slope);
      if (const double deviation = mean_deviation(after, slopes); deviation < best_deviation)
        best = row, best_deviation = deviation;
    }
    Knowledge after = knowledge;
    after.measure(remaining.at(best));
    std::size_t settled = 0;
    for (std::size_t i = 1; i < term_count; ++i) {
      const auto variance_left = [&](std::size_t term) {
        return after.variance_of_term(term) / knowledge.variance_of_term(term);
      };
      if (variance_left(i) < variance_left(settled)) settled = i;
    }
    out.rows.push_back({best, best_deviation, name(static_cast<Term>(settled))});
    knowledge = after;
    remaining.erase(best);
  }
  return out;
}

std::vector<TrainingStep> most_informative_rows(std::vector<TrainingStep> rows, std::size_t of_each_system) {
  std::map<std::string, std::vector<TrainingStep>> transformers, others;
  for (TrainingStep& s : rows) {
    if (!(s.step_s > 0)) continue;
    const bool has_terms = s.sequence > 0 && TransformerStep::refusal(s).empty();
    if (has_terms && !is_usual_step(s)) continue;
    auto& of_kind = has_terms ? transformers : others;
    of_kind[s.system].push_back(std::move(s));
  }
  std::vector<TrainingStep> out;
  for (const auto& [system, system_rows] : transformers)
    for (const Choice& c : choose_rows(system_rows, {}, of_each_system).rows) out.push_back(system_rows[c.row]);
  for (auto& [system, system_rows] : others) {
    std::ranges::stable_sort(system_rows, {}, &TrainingStep::gpus);
    for (std::size_t i = 0; i < std::min(of_each_system, system_rows.size()); ++i) out.push_back(system_rows[i]);
  }
  return out;
}

}  // namespace gradmeter::predict
