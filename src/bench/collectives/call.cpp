#include "bench/collectives/call.hpp"

#include <algorithm>

namespace gradmeter::bench {

allreduce::Call call_of(const CollectivePoint& p, CollectiveBuffers b) {
  const bool device = b.device_in.count() > 0;
  const auto typed = [&](const runtime::Buffer& whole) { return runtime::Buffer(p.element, whole.device()); };
  return {.in = device ? typed(b.device_in) : runtime::Buffer(p.element, b.in),
          .out = device ? typed(b.device_out) : runtime::Buffer(p.element, b.out),
          .op = p.call_op(),
          .accumulate = p.accumulate_wide ? std::optional(core::Element::f32) : std::nullopt};
}

void CollectiveCaller::wait(allreduce::Collective& collective) {
  constexpr unsigned polls_a_note = 64;  // a note costs more than a poll
  for (unsigned polls = 1; !collective.advance(); ++polls) {
    if (polls % polls_a_note == 0) {
      const auto w = collective.waiting();
      activity_.waiting({.operation = label_,
                         .peer = w.peer,
                         .round = w.rounds ? static_cast<int>(w.round) - 1 : -1,
                         .rounds = w.rounds ? static_cast<int>(w.rounds) : -1});
    }
    backoff_.wait();
  }
  backoff_.reset();
  activity_.beat();
}

void TimeTable::reserve(std::size_t iterations) {
  begin_.reserve(iterations * parts_);
  end_.reserve(iterations * parts_);
  in_time_.reserve(iterations * parts_);
}

std::vector<std::vector<double>> TimeTable::reduce() const {
  const std::vector<double> times = reduced_times();
  std::vector<double> late(in_time_.size());
  for (std::size_t i = 0; i < late.size(); ++i) late[i] = in_time_[i] ? 0 : 1;
  pace_.c.max(late);
  std::vector<std::vector<double>> out;
  for (std::size_t i = 0; i < times.size(); i += parts_) {
    const auto parts = static_cast<std::ptrdiff_t>(parts_), at = static_cast<std::ptrdiff_t>(i);
    if (std::all_of(late.begin() + at, late.begin() + at + parts, [](double l) { return l == 0; })) {
      out.emplace_back(times.begin() + at, times.begin() + at + parts);
    }
  }
  return out;
}

/// Element by element over the ranks, so that no rank stores the times of all.
std::vector<double> TimeTable::reduced_times() const {
  const std::size_t n = begin_.size();
  std::vector<double> out(n), first(n);
  for (std::size_t i = 0; i < n; ++i) out[i] = end_[i] - begin_[i];
  switch (pace_.reduction) {
    case Reduction::rank0:
      pace_.c.broadcast(std::span<double>(out));
      break;
    case Reduction::average:
      pace_.c.sum(out);
      for (double& t : out) t /= pace_.c.size();
      break;
    case Reduction::min:
      for (double& t : out) t = -t;
      pace_.c.max(out);
      for (double& t : out) t = -t;
      break;
    case Reduction::max:
      pace_.c.max(out);
      break;
    case Reduction::span:
      // Clock readings of different hosts may only be subtracted as far as the clocks agree.
      for (std::size_t i = 0; i < n; ++i) {
        out[i] = pace_.clock.model().reference(end_[i]);
        first[i] = -pace_.clock.model().reference(begin_[i]);
      }
      pace_.c.max(out);
      pace_.c.max(first);
      for (std::size_t i = 0; i < n; ++i) out[i] += first[i];
      break;
  }
  return out;
}

}  // namespace gradmeter::bench
