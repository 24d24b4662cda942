#include "dataparallel/server/step_rule.hpp"

#include <cmath>

namespace gradmeter::dataparallel {

DelayCompensation::DelayCompensation(const CompensationPlan& plan, int workers, std::span<const float> first)
    : plan_(plan),
      first_(first.begin(), first.end()),
      read_(static_cast<std::size_t>(workers)),
      mean_square_(plan.adaptive ? first.size() : 0),
      out_(first.size()) {}

void DelayCompensation::read(ExecutionContext& f, int worker, std::span<const float> weights) {
  std::vector<float>& to = read_[static_cast<std::size_t>(worker)];
  f.submit("server.copy", {0, 8.0 * double(weights.size())}, [&] { to.assign(weights.begin(), weights.end()); });
}

std::span<const float> DelayCompensation::compensated(ExecutionContext& f, int worker, std::span<const float> gradient,
                                                      std::span<const float> weights) {
  const std::vector<float>& last = read_[static_cast<std::size_t>(worker)];
  const std::vector<float>& read = last.empty() ? first_ : last;
  const double n = double(gradient.size());
  f.submit("server.compensate", {5 * n, 16 * n}, [&] {
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      const float g = gradient[i], square = g * g;
      float lambda = plan_.lambda;
      if (plan_.adaptive) {
        mean_square_[i] = plan_.decay * mean_square_[i] + (1 - plan_.decay) * square;
        lambda /= std::sqrt(mean_square_[i] + 1e-7f);
      }
      out_[i] = g + lambda * square * (weights[i] - read[i]);
    }
  });
  return out_;
}

}  // namespace gradmeter::dataparallel
