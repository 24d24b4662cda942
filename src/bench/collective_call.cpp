#include "bench/collective_call.hpp"

#include <algorithm>
#include <cstring>

namespace gradmeter::bench {

void ConcurrentCopy::start(const allreduce::Call& call) {
  const std::size_t bytes = call.count * core::size_of(call.element);
  if (bytes == 0) return;
  if (call.in != call.out) {
    std::memcpy(call.out, call.in, bytes);
    return;
  }
  const std::size_t half = bytes / 2;
  std::memcpy(call.out + half, call.in, bytes - half > half ? half : bytes - half);
  std::memcpy(call.out, call.in + half, half);
}

void CollectiveCaller::wait() {
  constexpr unsigned polls_a_note = 64;  // a note costs more than a poll
  for (unsigned polls = 1; !collective_.advance(); ++polls) {
    if (polls % polls_a_note == 0) {
      const auto w = collective_.waiting();
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
  const std::size_t n = begin_.size();
  std::vector<double> begin(n), end(n);
  // Across hosts only what the clocks agree on may be subtracted.
  for (std::size_t i = 0; i < n; ++i) {
    begin[i] = pace_.clock.model().reference(begin_[i]);
    end[i] = pace_.clock.model().reference(end_[i]);
  }
  const auto begins = pace_.c.all_gather(std::span<const double>(begin));
  const auto ends = pace_.c.all_gather(std::span<const double>(end));
  const auto in_time = pace_.c.all_gather(std::span<const char>(in_time_));
  std::vector<std::vector<double>> out;
  for (std::size_t i = 0; i < n; i += parts_) {
    bool counts = true;
    std::vector<double> times;
    for (std::size_t part = 0; part < parts_; ++part) {
      for (std::size_t r = 0; r < static_cast<std::size_t>(pace_.c.size()); ++r)
        counts &= in_time[r * n + i + part] != 0;
      times.push_back(reduce_one(begins, ends, i + part));
    }
    if (counts) out.push_back(std::move(times));
  }
  return out;
}

double TimeTable::reduce_one(const std::vector<double>& begin, const std::vector<double>& end, std::size_t at) const {
  const std::size_t n = begin_.size();
  const auto ranks = static_cast<std::size_t>(pace_.c.size());
  double least = end[at] - begin[at], most = least, sum = 0, first = begin[at], last = end[at];
  for (std::size_t r = 0; r < ranks; ++r) {
    const double time = end[r * n + at] - begin[r * n + at];
    least = std::min(least, time);
    most = std::max(most, time);
    sum += time;
    first = std::min(first, begin[r * n + at]);
    last = std::max(last, end[r * n + at]);
  }
  switch (pace_.reduction) {
    case Reduction::rank0:
      return end[at] - begin[at];
    case Reduction::average:
      return sum / static_cast<double>(ranks);
    case Reduction::min:
      return least;
    case Reduction::max:
      return most;
    case Reduction::span:
      break;
  }
  return last - first;
}

}  // namespace gradmeter::bench
