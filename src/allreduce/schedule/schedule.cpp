// SPDX-License-Identifier: Apache-2.0
#include "allreduce/schedule/schedule.hpp"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <utility>

namespace gradmeter::allreduce {

using u32 = std::uint32_t;

std::string_view name(CollectiveKind kind) {
  constexpr std::array<std::string_view, 6> names{"all_reduce", "reduce_scatter", "all_gather",
                                                  "broadcast",  "all_to_all",     "send_receive"};
  return names[static_cast<std::size_t>(kind)];
}

bool ranks_have_equal_work(const Schedule& s, std::span<const int> node_of) {
  constexpr std::size_t kinds = 4;
  using Work = std::array<std::uint64_t, 2 * kinds>;  // blocks by the kind of step, within a node and between nodes
  Steps steps;
  for (u32 round = 0; round < s.rounds(); ++round) {
    Work first{};
    for (u32 rank = 0; rank < s.ranks(); ++rank) {
      steps.clear();
      s.steps(round, rank, steps);
      Work own{};
      for (const Step& step : steps) {
        const bool crosses = node_of[step.peer] != node_of[rank];
        own.at(static_cast<std::size_t>(step.kind) + (crosses ? kinds : 0)) += step.blocks.count;
      }
      if (rank == 0) first = own;
      if (own != first) return false;
    }
  }
  return true;
}

SchedulePtr sequence(CollectiveKind collective_kind, std::vector<SchedulePtr> parts) {
  const u32 ranks = parts.front()->ranks(), blocks = parts.front()->blocks();
  u32 rounds = 0;
  bool finishes_everywhere = false;
  for (const auto& part : parts) {
    if (part->blocks() != blocks || part->ranks() != ranks) {
      throw std::logic_error("a sequence needs parts over the same ranks and blocks");
    }
    rounds += part->rounds();
    finishes_everywhere |= part->finishes_everywhere();
  }
  auto steps = [parts = std::move(parts)](u32 round, u32 rank, Steps& out) {
    for (const auto& part : parts) {
      if (round < part->rounds()) return part->steps(round, rank, out);
      round -= part->rounds();
    }
  };
  return std::make_shared<Schedule>(collective_kind, ranks, blocks, rounds, std::move(steps), finishes_everywhere);
}

Groups grid_rows(u32 width) {
  const auto in_group = [width](u32 rank) { return GroupRank{rank / width, rank % width}; };
  return {.in_group = in_group, .in_whole = [width](GroupRank r) { return r.group * width + r.rank; }};
}

Groups grid_columns(u32 width) {
  const auto in_group = [width](u32 rank) { return GroupRank{rank % width, rank / width}; };
  return {.in_group = in_group, .in_whole = [width](GroupRank r) { return r.rank * width + r.group; }};
}

Groups first_grid_column(u32 width) {
  const auto in_group = [width](u32 rank) -> std::optional<GroupRank> {
    if (rank % width != 0) return std::nullopt;
    return GroupRank{0, rank / width};
  };
  return {.in_group = in_group, .in_whole = [width](GroupRank r) { return r.rank * width; }};
}

SchedulePtr embed(const SchedulePtr& inner, const Embedding& e) {
  auto steps = [inner, e](u32 round, u32 rank, Steps& out) {
    const auto inner_rank = e.groups.in_group(rank);
    if (!inner_rank) return;
    const std::size_t before = out.size();
    inner->steps(round, inner_rank->rank, out);
    std::size_t kept = before;
    for (std::size_t i = before; i < out.size(); ++i) {
      Step x = out[i];
      if (x.kind == StepKind::finish && !e.finishes) continue;
      x.peer = e.groups.in_whole({inner_rank->group, x.peer});
      x.blocks = {inner_rank->group * e.stride + x.blocks.first * e.width, x.blocks.count * e.width};
      out[kept++] = x;
    }
    out.erase(out.begin() + static_cast<std::ptrdiff_t>(kept), out.end());
  };
  return std::make_shared<Schedule>(inner->collective_kind(), e.ranks, e.blocks, inner->rounds(), std::move(steps),
                                    e.finishes && inner->finishes_everywhere());
}

}  // namespace gradmeter::allreduce
