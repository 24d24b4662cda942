#include "dataparallel/forecast.hpp"

#include <algorithm>

#include "allreduce/slices.hpp"

namespace gradmeter::dataparallel {

namespace {

/// As fabrics choose: other collectives than all-reduce go by the ring where the algorithm has no schedule for them.
allreduce::AlgorithmPtr algorithm_for(const Scene& s, allreduce::Shape shape, allreduce::Goal goal) {
  const bool fits = s.algorithm && (goal == allreduce::Goal::all_reduce ||
                                    (s.algorithm->has_schedule() && s.algorithm->refusal(shape, goal).empty()));
  return fits ? s.algorithm : allreduce::find_algorithm("ring");
}

}  // namespace

Forecast& Forecast::operator+=(const Forecast& o) {
  bytes += o.bytes;
  messages += o.messages;
  seconds += o.seconds;
  const bool bound = bounds() && o.bounds();
  known = known && o.known;
  most = bound && !known;
  return *this;
}

Forecast Forecast::times(std::uint64_t n) const {
  return {.bytes = bytes * n,
          .messages = messages * n,
          .seconds = seconds * static_cast<double>(n),
          .known = known,
          .most = most};
}

allreduce::Shape shape_of(const Scene& s) { return {s.ranks, s.ranks_per_node.value_or(s.ranks)}; }

Forecast forecast_collective(const Scene& s, allreduce::Goal goal, std::size_t elements) {
  if (s.ranks < 2) return {};
  const allreduce::Shape shape = shape_of(s);
  const auto algorithm = algorithm_for(s, shape, goal);
  if (!algorithm->has_schedule()) return {.known = false};
  const auto schedule = algorithm->make(shape, goal).front();
  const auto layout = allreduce::Slice{
      .cut = allreduce::cut_for(goal), .blocks = schedule->blocks(), .total = elements, .begin = 0, .length = elements};
  Forecast out{.messages = algorithm->cost(shape, goal).messages};
  std::uint64_t most = 0;
  for (std::uint32_t r = 0; r < s.ranks; ++r) {
    const std::uint64_t sent = sizeof(float) * allreduce::elements_sent(*schedule, r, layout);
    out.bytes += sent;
    most = std::max(most, sent);
  }
  out.seconds = static_cast<double>(most) / s.link.bytes_per_s;
  return out;
}

Forecast forecast_messages(const Scene& s, std::uint32_t senders, std::uint64_t messages, std::uint64_t bytes) {
  return {.bytes = senders * bytes,
          .messages = senders * messages,
          .seconds = static_cast<double>(bytes) / s.link.bytes_per_s};
}

}  // namespace gradmeter::dataparallel
