// SPDX-License-Identifier: Apache-2.0
#include "allreduce/schedule/goal.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <vector>

#include "core/format.hpp"

namespace gradmeter::allreduce {
namespace {

constexpr std::size_t write_bytes = std::size_t{64} << 10;
constexpr std::uint64_t tag_count = std::uint64_t{1} << 30;  // MPI and simulators hold tags in 31 bits

std::uint64_t rounds_of(std::span<const SchedulePtr> schedules) {
  std::uint64_t rounds = 1;
  for (const auto& s : schedules) rounds = std::max<std::uint64_t>(rounds, s->rounds());
  return rounds;
}

class Writer {
 public:
  Writer(const GoalSource& source, const std::function<void(std::string_view)>& write)
      : source_(source), write_(write), rounds_(rounds_of(source.schedules)) {}

  void write() {
    const std::uint32_t ranks = source_.schedules.front()->ranks();
    add("num_ranks {}\n", ranks);
    for (std::uint32_t r = 0; r < ranks; ++r) write_rank(r);
    write_(text_);
  }

 private:
  void write_rank(std::uint32_t r) {
    add("\nrank {} {{\n", r);
    operations_ = 0;
    const std::size_t lanes = lanes_for(source_.schedules);
    std::vector<std::string> ends(lanes);  // by lane: the label at which its last slice so far is done
    for (std::size_t n = 0; n < source_.slices.count(); ++n) {
      const Schedule& s = *source_.schedules[n % source_.schedules.size()];
      const Slice slice = source_.slices[n];
      for (std::uint32_t k = 0; k < s.rounds(); ++k) write_round(s, slice, r, k, ends[n % lanes]);
    }
    add("}}\n");
  }

  /// done: in, the label that the round requires (empty at the beginning); out, the label at which the round is done.
  void write_round(const Schedule& s, const Slice& slice, std::uint32_t r, std::uint32_t k, std::string& done) {
    steps_.clear();
    s.steps(k, r, steps_);
    const std::uint64_t tag = (slice.number * rounds_ + k) % tag_count;
    ends_.clear();
    for (const Step& x : steps_) {
      const Extent e = slice.extent(x.blocks);
      if (x.kind == StepKind::finish || e.elements == 0) continue;
      const std::size_t bytes = e.elements * source_.element_bytes, at = e.offset * source_.element_bytes;
      const bool sends = x.kind == StepKind::send;
      std::string label = next_label(sends ? 's' : 'r', at);
      add("{}: {} {}b {} {} tag {}\n", label, sends ? "send" : "recv", bytes, sends ? "to" : "from", x.peer, tag);
      require(label, done);
      if (sends) continue;
      if (x.kind == StepKind::recv_reduce) {
        const std::string sum = next_label('c', at);
        add("{}: calc {}\n", sum, nanoseconds(bytes));
        require(sum, label);
        label = sum;
      }
      ends_.push_back(std::move(label));
    }
    if (ends_.size() == 1) done = ends_.front();
    if (ends_.size() > 1) add_join(done);
  }

  void add_join(std::string& done) {
    done = fmt::format("j{}", operations_++);
    add("{}: calc 0\n", done);
    for (const auto& end : ends_) require(done, end);
  }

  std::string next_label(char kind, std::size_t at) { return fmt::format("{}{}_at_{}", kind, operations_++, at); }
  void require(const std::string& label, const std::string& before) {
    if (!before.empty()) add("{} requires {}\n", label, before);
  }
  std::uint64_t nanoseconds(std::size_t bytes) const {
    const double rate = source_.reduce_bytes_per_s;
    return rate > 0 ? static_cast<std::uint64_t>(std::llround(1e9 * static_cast<double>(bytes) / rate)) : 0;
  }

  template <class... Values>
  void add(fmt::format_string<const Values&...> form, const Values&... values) {
    fmt::format_to(std::back_inserter(text_), form, values...);
    if (text_.size() < write_bytes) return;
    write_(text_);
    text_.clear();
  }

  const GoalSource& source_;
  const std::function<void(std::string_view)>& write_;
  std::uint64_t rounds_;
  std::uint64_t operations_ = 0;  ///< the number of operations of the rank so far
  std::string text_;
  Steps steps_;
  std::vector<std::string> ends_;  ///< the round's receives, or the sums that follow them
};

std::uint64_t digits(std::uint64_t n) { return fmt::formatted_size("{}", n); }

}  // namespace

void write_goal(const GoalSource& source, const std::function<void(std::string_view)>& write) {
  Writer(source, write).write();
}

std::uint64_t goal_bytes_at_most(const GoalSource& source, std::uint64_t messages) {
  const Slices& slices = source.slices;
  const std::uint64_t ranks = source.schedules.front()->ranks(), slice_messages = messages * slices.count();
  // A message has a send, a recv, and at most a sum and half a join, which follows two receives or more.
  const std::uint64_t operation_digits = digits(4 * slice_messages),
                      byte_digits = digits(slices[0].total * source.element_bytes);
  const std::uint64_t label_bytes = 1 + operation_digits + 4 + byte_digits;
  const std::uint64_t tag_digits = digits(std::min(tag_count, slices.count() * rounds_of(source.schedules)));
  const std::uint64_t message_bytes =
      label_bytes + std::string_view(": send b from  tag \n").size() + byte_digits + digits(ranks) + tag_digits;
  constexpr std::uint64_t digits_of_a_time = 20;
  const std::uint64_t sum_bytes = label_bytes + std::string_view(": calc \n").size() + digits_of_a_time;
  const std::uint64_t require_bytes = 2 * label_bytes + std::string_view(" requires \n").size();
  // Each of these requires one label: the send, the recv, the sum, and the join (the label of this message).
  const std::uint64_t rank_bytes = std::string_view("\nrank  {\n}\n").size() + digits(ranks);
  return slice_messages * (2 * message_bytes + 2 * sum_bytes + 4 * require_bytes) + ranks * rank_bytes +
         std::string_view("num_ranks \n").size() + digits(ranks);
}

}  // namespace gradmeter::allreduce
