// SPDX-License-Identifier: Apache-2.0
// Deliberately wrong schedules: the negative controls of the verifiers.
#pragma once
#include <functional>

#include "allreduce/schedule/schedule.hpp"

namespace gradmeter::test {

/// Another schedule with its steps changed by `damage(round, rank, steps)`.
class BrokenSchedule final : public allreduce::Schedule {
 public:
  using Corruption = std::function<void(std::uint32_t round, std::uint32_t rank, allreduce::Steps&)>;
  BrokenSchedule(const allreduce::SchedulePtr& inner, const Corruption& corruption)
      : Schedule(inner->collective_kind(), inner->ranks(), inner->blocks(), inner->rounds(),
                 [inner, corruption](std::uint32_t round, std::uint32_t rank, allreduce::Steps& out) {
                   inner->steps(round, rank, out);
                   corruption(round, rank, out);
                 }) {}
};

}  // namespace gradmeter::test
