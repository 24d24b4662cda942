#include "allreduce/schedule/algorithms/embed.hpp"

#include <utility>

namespace gradmeter::allreduce {
namespace {

using u32 = std::uint32_t;

class Embedded final : public Schedule {
 public:
  Embedded(SchedulePtr inner, Embedding e) : inner_(std::move(inner)), e_(std::move(e)) {}
  CollectiveKind collective_kind() const override { return inner_->collective_kind(); }
  u32 ranks() const override { return e_.ranks; }
  u32 blocks() const override { return e_.blocks; }
  u32 rounds() const override { return inner_->rounds(); }
  bool finishes_everywhere() const override { return e_.finishes && inner_->finishes_everywhere(); }
  void steps(u32 round, u32 rank, Steps& out) const override {
    const auto seat = e_.groups.seat(rank);
    if (!seat) return;
    const std::size_t before = out.size();
    inner_->steps(round, seat->place, out);
    std::size_t kept = before;
    for (std::size_t i = before; i < out.size(); ++i) {
      Step x = out[i];
      if (x.kind == StepKind::finish && !e_.finishes) continue;
      x.peer = e_.groups.rank({seat->group, x.peer});
      x.blocks = {seat->group * e_.window.stride + x.blocks.first * e_.window.width, x.blocks.count * e_.window.width};
      out[kept++] = x;
    }
    out.erase(out.begin() + static_cast<std::ptrdiff_t>(kept), out.end());
  }

 private:
  SchedulePtr inner_;
  Embedding e_;
};

}  // namespace

Groups grid_rows(u32 width) {
  return {.seat =
              [width](u32 rank) {
                return std::optional(Seat{rank / width, rank % width});
              },
          .rank = [width](Seat s) { return s.group * width + s.place; }};
}

Groups grid_columns(u32 width) {
  return {.seat =
              [width](u32 rank) {
                return std::optional(Seat{rank % width, rank / width});
              },
          .rank = [width](Seat s) { return s.place * width + s.group; }};
}

Groups first_grid_column(u32 width) {
  return {.seat =
              [width](u32 rank) {
                return rank % width == 0 ? std::optional(Seat{0, rank / width}) : std::nullopt;
              },
          .rank = [width](Seat s) { return s.place * width; }};
}

SchedulePtr embed(SchedulePtr inner, Embedding e) { return std::make_shared<Embedded>(std::move(inner), std::move(e)); }

}  // namespace gradmeter::allreduce
