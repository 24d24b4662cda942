// Deliberately wrong schedules: the negative controls of the verifiers.
#pragma once
#include <functional>

#include "allreduce/schedule/schedule.hpp"

namespace gradmeter::test {

/// Another schedule with its steps changed by `damage(round, rank, steps)`.
class BrokenSchedule final : public allreduce::Schedule {
 public:
  using Corruption = std::function<void(std::uint32_t round, std::uint32_t rank, allreduce::Steps&)>;
  BrokenSchedule(allreduce::SchedulePtr inner, Corruption corruption)
      : inner_(std::move(inner)), corruption_(std::move(corruption)) {}
  allreduce::CollectiveKind collective_kind() const override { return inner_->collective_kind(); }
  std::uint32_t ranks() const override { return inner_->ranks(); }
  std::uint32_t blocks() const override { return inner_->blocks(); }
  std::uint32_t rounds() const override { return inner_->rounds(); }
  void steps(std::uint32_t round, std::uint32_t rank, allreduce::Steps& out) const override {
    inner_->steps(round, rank, out);
    corruption_(round, rank, out);
  }

 private:
  allreduce::SchedulePtr inner_;
  Corruption corruption_;
};

}  // namespace gradmeter::test
