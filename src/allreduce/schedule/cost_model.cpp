// SPDX-License-Identifier: Apache-2.0
#include "allreduce/schedule/cost_model.hpp"

#include <algorithm>

#include "allreduce/schedule/slices.hpp"
#include "core/machine.hpp"

namespace gradmeter::allreduce {
namespace {

/// Walks through the rounds of all slices. Slices share each rank's ports, the links between nodes, and the core that
/// adds.
class Timeline {
 public:
  Timeline(std::size_t slices, std::size_t element_bytes, const std::vector<double>& begin,
           const core::Machine& machine, std::span<const int> world_ranks)
      : element_bytes_(element_bytes),
        machine_(machine),
        world_ranks_(world_ranks),
        ends_(slices, begin),
        port_free_(begin),
        core_free_(begin),
        round_ends_(begin),
        links_(machine, begin_by_world_rank(begin)),
        messages_(begin.size()) {}

  /// Slice `number` begins when slice `before`, the previous one on its lane, is done.
  void follow(std::size_t number, std::size_t before) { ends_[number] = ends_[before]; }

  void round(const Schedule& s, std::uint32_t k, std::size_t number, const Slice& slice) {
    std::vector<double>& now = ends_[number];
    for (std::uint32_t r = 0; r < s.ranks(); ++r) send(s, k, r, slice, now[r]);
    for (std::uint32_t r = 0; r < s.ranks(); ++r) {
      steps_.clear();
      s.steps(k, r, steps_);
      double t = now[r];
      for (const Step& x : steps_) {
        if (x.kind != StepKind::recv && x.kind != StepKind::recv_reduce) continue;
        const auto bytes = static_cast<double>(message_bytes(slice, x));
        const core::LinksInUse::Passage m = receive(x.peer, r);
        // Messages to one rank share its port: each begins when the one before it is in.
        t = std::max({t, port_free_[r], m.begin + m.latency_s}) + m.occupied_s;
        port_free_[r] = t;
        if (x.kind == StepKind::recv_reduce)
          core_free_[r] = t = std::max(t, core_free_[r]) + bytes / machine_.reduce_bytes_per_s;
      }
      round_ends_[r] = t;
    }
    std::swap(now, round_ends_);
  }

  std::vector<double> finish_times() const {
    std::vector<double> out = ends_.front();
    for (const auto& d : ends_) {
      for (std::size_t r = 0; r < out.size(); ++r) out[r] = std::max(out[r], d[r]);
    }
    return out;
  }

 private:
  struct Message {
    std::uint32_t to;
    core::LinksInUse::Passage passage;
    bool is_received = false;
  };

  std::vector<double> begin_by_world_rank(const std::vector<double>& begin) const {
    if (world_ranks_.empty()) return begin;
    std::vector<double> by_world_rank(static_cast<std::size_t>(std::ranges::max(world_ranks_)) + 1, 0.0);
    for (std::size_t r = 0; r < begin.size(); ++r) by_world_rank[static_cast<std::size_t>(world_ranks_[r])] = begin[r];
    return by_world_rank;
  }
  std::uint32_t world_rank(std::uint32_t r) const {
    return world_ranks_.empty() ? r : static_cast<std::uint32_t>(world_ranks_[r]);
  }
  std::uint64_t message_bytes(const Slice& slice, const Step& x) const {
    return slice.extent(x.blocks).elements * element_bytes_;
  }
  /// Sends a rank's messages of a round, in the order of its steps.
  void send(const Schedule& s, std::uint32_t k, std::uint32_t rank, const Slice& slice, double now) {
    steps_.clear();
    s.steps(k, rank, steps_);
    std::vector<Message>& messages = messages_[rank];
    messages.clear();
    for (const Step& x : steps_) {
      if (x.kind == StepKind::send)
        messages.push_back({x.peer, links_.send(world_rank(rank), world_rank(x.peer), message_bytes(slice, x), now)});
    }
    std::ranges::stable_sort(messages, {}, &Message::to);
  }
  /// The first of this round's messages between the two ranks that has not been received yet.
  core::LinksInUse::Passage receive(std::uint32_t from, std::uint32_t to) {
    auto it = std::ranges::lower_bound(messages_[from], to, {}, &Message::to);
    while (it->is_received) ++it;
    it->is_received = true;
    return it->passage;
  }

  std::size_t element_bytes_;
  const core::Machine& machine_;
  std::span<const int> world_ranks_;
  std::vector<std::vector<double>> ends_;  ///< by slice and rank: the end of the slice's latest round
  /// The times at which each rank's receiving port is free, its core is free, and its present round ends [s].
  std::vector<double> port_free_, core_free_, round_ends_;
  core::LinksInUse links_;
  std::vector<std::vector<Message>> messages_;  ///< the messages of the round, by sender, ascending by receiver
  Steps steps_;
};

}  // namespace

std::vector<double> hockney_finish_times(std::span<const SchedulePtr> schedules, const Slices& slices,
                                         std::size_t element_bytes, const std::vector<double>& begin,
                                         const core::Machine& machine, std::span<const int> world_ranks) {
  Timeline timeline(slices.count(), element_bytes, begin, machine, world_ranks);
  const std::size_t lanes = lanes_for(schedules);
  for (const Turn& t : linearise(schedules, slices.count(), lanes)) {
    if (t.round == 0 && t.slice >= lanes) timeline.follow(t.slice, t.slice - lanes);
    timeline.round(*schedules[t.slice % schedules.size()], t.round, t.slice, slices[t.slice]);
  }
  return timeline.finish_times();
}

}  // namespace gradmeter::allreduce
