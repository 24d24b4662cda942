// SPDX-License-Identifier: Apache-2.0
#include "dataparallel/server/consistency.hpp"

#include <algorithm>
#include <cmath>

namespace gradmeter::dataparallel {

Admission::Admission(int workers, std::uint64_t staleness)
    : clocks_(static_cast<std::size_t>(workers), 0),
      gone_(static_cast<std::size_t>(workers)),
      staleness_(staleness),
      slowest_(0),
      training_(workers) {}

void Admission::find_slowest() {
  slowest_ = unbounded;
  for (std::size_t w = 0; w < clocks_.size(); ++w) {
    if (!gone_[w]) slowest_ = std::min(slowest_, clocks_[w]);
  }
}

void Admission::note_push(int worker) {
  const bool was_slowest = clock(worker) == slowest_;
  ++clocks_[static_cast<std::size_t>(worker)];
  if (was_slowest) find_slowest();
}

void Admission::note_gone(int worker) {
  if (is_gone(worker)) return;
  gone_[static_cast<std::size_t>(worker)] = true;
  --training_;
  find_slowest();
}

bool Admission::may_read(int worker, std::uint64_t clock, std::uint64_t own_updates) const {
  if (this->clock(worker) < own_updates) return false;
  const std::uint64_t needed = clock > staleness_ ? clock - staleness_ : 0;
  return slowest_ >= needed;
}

void StalenessCount::applied(std::uint64_t base, std::uint64_t version) {
  const std::size_t staleness = version - base;
  if (histogram_.size() <= staleness) histogram_.resize(staleness + 1, 0);
  ++histogram_[staleness];
}

std::uint64_t StalenessCount::outstanding(std::uint64_t version) const {
  std::uint64_t sum = 0;
  for (const std::uint64_t read : read_) sum += version - read;
  return sum;
}

DelayCompensation::DelayCompensation(const CompensationPlan& plan, int workers, std::span<const float> first)
    : plan_(plan),
      first_(first.begin(), first.end()),
      read_(static_cast<std::size_t>(workers)),
      mean_square_(plan.adaptive ? first.size() : 0),
      out_(first.size()) {}

void DelayCompensation::read(ExecutionContext& context, int worker, std::span<const float> weights) {
  std::vector<float>& to = read_[static_cast<std::size_t>(worker)];
  context.submit("server.copy", {0, 8.0 * double(weights.size())}, [&] { to.assign(weights.begin(), weights.end()); });
}

std::span<const float> DelayCompensation::compensated(ExecutionContext& context, int worker,
                                                      std::span<const float> gradient, std::span<const float> weights) {
  const std::vector<float>& last = read_[static_cast<std::size_t>(worker)];
  const std::vector<float>& read = last.empty() ? first_ : last;
  const double n = double(gradient.size());
  context.submit("server.compensate", {5 * n, 16 * n}, [&] {
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
