#include "allreduce/schedule/schedule.hpp"

#include <algorithm>
#include <array>
#include <stdexcept>

namespace gradmeter::allreduce {
namespace {

class Sequence final : public Schedule {
 public:
  Sequence(CollectiveKind collective_kind, std::vector<SchedulePtr> parts)
      : collective_kind_(collective_kind), parts_(std::move(parts)) {
    for (const auto& part : parts_) {
      if (part->blocks() != blocks() || part->ranks() != ranks()) {
        throw std::logic_error("a sequence needs parts over the same ranks and blocks");
      }
      rounds_ += part->rounds();
    }
  }
  CollectiveKind collective_kind() const override { return collective_kind_; }
  std::uint32_t ranks() const override { return parts_.front()->ranks(); }
  std::uint32_t blocks() const override { return parts_.front()->blocks(); }
  std::uint32_t rounds() const override { return rounds_; }
  bool finishes_everywhere() const override {
    return std::ranges::any_of(parts_, [](const auto& part) { return part->finishes_everywhere(); });
  }
  void steps(std::uint32_t round, std::uint32_t rank, Steps& out) const override {
    for (const auto& part : parts_) {
      if (round < part->rounds()) return part->steps(round, rank, out);
      round -= part->rounds();
    }
  }

 private:
  CollectiveKind collective_kind_;
  std::vector<SchedulePtr> parts_;
  std::uint32_t rounds_ = 0;
};

}  // namespace

std::string_view name(CollectiveKind g) {
  constexpr std::array<std::string_view, 6> names{"all_reduce", "reduce_scatter", "all_gather",
                                                  "broadcast",  "all_to_all",     "send_receive"};
  return names[static_cast<std::size_t>(g)];
}

SchedulePtr sequence(CollectiveKind collective_kind, std::vector<SchedulePtr> parts) {
  return std::make_shared<Sequence>(collective_kind, std::move(parts));
}

}  // namespace gradmeter::allreduce
