#include "allreduce/schedule/hockney.hpp"

#include <algorithm>

#include "allreduce/schedule/linearise.hpp"

namespace gradmeter::allreduce {
namespace {

/// Walks the rounds of slices; what they share is each rank's incoming port and the core that adds.
class Walk {
 public:
  Walk(std::size_t slices, std::size_t element_bytes, const std::vector<double>& begin, const core::Machine& machine)
      : element_bytes_(element_bytes),
        machine_(machine),
        done_(slices, begin),
        port_(begin),
        core_(begin),
        next_(begin) {}

  /// A slice begins when `before` is done, which had its lane.
  void follow(std::size_t number, std::size_t before) { done_[number] = done_[before]; }

  void round(const Schedule& s, std::uint32_t k, std::size_t number, const Slice& slice) {
    std::vector<double>& now = done_[number];
    for (std::uint32_t r = 0; r < s.ranks(); ++r) {
      steps_.clear();
      s.steps(k, r, steps_);
      double t = now[r];
      for (const Step& x : steps_) {
        if (x.kind != StepKind::recv && x.kind != StepKind::recv_reduce) continue;
        const std::uint64_t length = slice.extent(x.blocks).elements * element_bytes_;
        const auto bytes = static_cast<double>(length);
        const core::Link& link = machine_.link(x.peer, r);
        // Messages to one rank share its port: each begins when the one before it is in.
        t = std::max({t, port_[r], now[x.peer] + link.latency_s}) + bytes / link.bytes_per_s(length);
        port_[r] = t;
        if (x.kind == StepKind::recv_reduce) core_[r] = t = std::max(t, core_[r]) + bytes / machine_.reduce_bytes_per_s;
      }
      next_[r] = t;
    }
    std::swap(now, next_);
  }

  std::vector<double> end() const {
    std::vector<double> out = done_.front();
    for (const auto& d : done_) {
      for (std::size_t r = 0; r < out.size(); ++r) out[r] = std::max(out[r], d[r]);
    }
    return out;
  }

 private:
  std::size_t element_bytes_;
  const core::Machine& machine_;
  std::vector<std::vector<double>> done_;  ///< by slice and rank: the end of its last round
  std::vector<double> port_, core_, next_;
  Steps steps_;
};

}  // namespace

std::vector<double> hockney_finish_times(const Schedule& s, std::size_t elements, std::size_t element_bytes,
                                         const std::vector<double>& begin, const core::Machine& machine) {
  Walk walk(1, element_bytes, begin, machine);
  const Slice whole{.cut = Cut::run, .blocks = s.blocks(), .total = elements, .begin = 0, .length = elements};
  for (std::uint32_t k = 0; k < s.rounds(); ++k) walk.round(s, k, 0, whole);
  return walk.end();
}

std::vector<double> hockney_finish_times(std::span<const SchedulePtr> schedules, const Slices& slices,
                                         std::size_t element_bytes, const std::vector<double>& begin,
                                         const core::Machine& machine) {
  Walk walk(slices.count(), element_bytes, begin, machine);
  const std::size_t lanes = lanes_for(schedules);
  for (const Turn& t : linearise(schedules, slices.count(), lanes)) {
    if (t.round == 0 && t.slice >= lanes) walk.follow(t.slice, t.slice - lanes);
    walk.round(*schedules[t.slice % schedules.size()], t.round, t.slice, slices[t.slice]);
  }
  return walk.end();
}

}  // namespace gradmeter::allreduce
