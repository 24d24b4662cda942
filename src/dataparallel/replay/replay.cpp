// SPDX-License-Identifier: Apache-2.0
#include "dataparallel/replay/replay.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>
#include <thread>
#include <utility>

#include "allreduce/test_data.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "dataparallel/replay/step_trace.hpp"
#include "runtime/clock.hpp"

namespace gradmeter::dataparallel {

TracedParts parts_of(const TracedStep& s) {
  std::vector<Interval> calls;
  for (const TracedCall& c : s.calls) calls.push_back({c.when.begin, std::min(c.when.end, s.seconds)});
  const auto communication = unite(calls);
  const auto exposed = subtract(communication, s.compute);
  TracedParts p{.step = s.seconds, .compute = total(s.compute), .communication = total(communication)};
  p.exposed = total(exposed);
  p.overlap = p.communication - p.exposed;
  return p;
}

std::string trace_text(const StepTrace& t) {
  std::size_t calls = 0;
  std::uint64_t bytes = 0;
  for (const TracedStep& s : t.steps) {
    calls += s.calls.size();
    for (const TracedCall& c : s.calls) bytes += c.bytes;
  }
  return fmt::format("trace:steps={},calls={},bytes={}", t.steps.size(), calls, bytes);
}

namespace {

/// The collectives that a replay runs, as result files name them, in the order of CallKind.
constexpr std::array<std::string_view, 4> replayed_collectives{"allreduce", "reduce_scatter", "all_gather",
                                                               "broadcast"};
/// The kind of call that replays a collective; empty: a replay cannot run it.
std::optional<CallKind> replayed_as(std::string_view collective) {
  const auto* const found = std::ranges::find(replayed_collectives, collective);
  if (found == replayed_collectives.end()) return std::nullopt;
  return static_cast<CallKind>(found - replayed_collectives.begin());
}

std::size_t floats_for(std::uint64_t bytes) { return (bytes + sizeof(float) - 1) / sizeof(float); }

/// By index of a call in its step: the length of its longest buffer in any step [floats].
std::vector<std::size_t> buffer_floats(const StepTrace& t) {
  std::vector<std::size_t> floats;
  for (const TracedStep& s : t.steps) {
    floats.resize(std::max(floats.size(), s.calls.size()));
    for (std::size_t i = 0; i < s.calls.size(); ++i) floats[i] = std::max(floats[i], floats_for(s.calls[i].bytes));
  }
  return floats;
}

std::vector<Interval> busy_intervals(const TracedStep& s) {
  std::vector<Interval> calls;
  for (const TracedCall& c : s.calls) calls.push_back({c.when.begin, std::min(c.when.end, s.seconds)});
  const Interval step{0, s.seconds};
  return subtract({&step, 1}, subtract(unite(calls), s.compute));
}

void compute_for(double seconds, ReplayedComputation computation, const std::function<bool()>& is_over) {
  constexpr double between_looks_s = 1e-3;
  const double begin = runtime::host_clock(), end = begin + seconds;
  double next_look = begin + between_looks_s;
  for (double now = begin; now < end; now = runtime::host_clock()) {
    if (computation == ReplayedComputation::sleep)
      std::this_thread::sleep_for(std::chrono::duration<double>(std::min(end - now, between_looks_s)));
    if (now < next_look) continue;
    if (is_over && is_over()) return;
    next_look = now + between_looks_s;
  }
}

allreduce::KnownCollective known_collective(const FabricCall& c, int ranks, std::uint64_t seed) {
  return {.collective_kind = collective_kind(c.kind),
          .data = {.element = c.in.element(), .op = c.op, .ranks = static_cast<std::size_t>(ranks), .seed = seed},
          .count = c.in.count()};
}

}  // namespace

std::vector<ReplayEvent> replay_events(const TracedStep& s) {
  using Kind = ReplayEvent::Kind;
  if (!s.events.empty()) return s.events;
  constexpr double rounding_s = 1e-9;
  std::vector<ReplayEvent> out;
  std::vector<std::size_t> under_way;
  std::size_t next_call = 0;
  // Starts the next call if it began at this time or earlier.
  const auto start_until = [&](double time) {
    if (next_call == s.calls.size() || s.calls[next_call].when.begin > time) return false;
    out.push_back({.kind = Kind::start, .call = next_call});
    under_way.push_back(next_call++);
    return true;
  };
  const auto wait_for = [&](auto&& is_due) {
    std::erase_if(under_way, [&](std::size_t call) {
      if (!is_due(s.calls[call])) return false;
      out.push_back({.kind = Kind::wait, .call = call});
      return true;
    });
  };
  double busy_until = 0;
  for (const Interval& busy : busy_intervals(s)) {
    while (start_until(busy.begin)) {
    }
    // After a pause, the replay waits for the calls that ended during the pause.
    if (busy.begin > busy_until)
      wait_for([&](const TracedCall& c) { return c.when.end > busy_until && c.when.end <= busy.begin + rounding_s; });
    for (double from = busy.begin; from < busy.end;) {
      const double to = next_call < s.calls.size() ? std::min(busy.end, s.calls[next_call].when.begin) : busy.end;
      if (to > from) out.push_back({.kind = Kind::compute, .seconds = to - from});
      from = to;
      if (from < busy.end) start_until(from);
    }
    busy_until = busy.end;
  }
  while (start_until(s.seconds)) {
  }
  wait_for([](const TracedCall&) { return true; });
  return out;
}

std::string replay_refusal(const StepTrace& t) {
  for (const TracedStep& s : t.steps) {
    for (const TracedCall& c : s.calls) {
      if (!replayed_as(c.collective))
        return fmt::format("the trace has a collective '{}'; a replay runs {}", c.collective,
                           fmt::join(replayed_collectives, ", "));
      if (c.bytes == 0)
        return fmt::format(
            "the trace does not say how long the buffer of an {} is; PyTorch's profiler does with record_shapes=True",
            c.collective);
    }
  }
  return {};
}

std::size_t replay_floats(const StepTrace& t) {
  std::size_t sum = 0;
  for (const std::size_t floats : buffer_floats(t)) sum += floats;
  return sum;
}

double replay_busy_s(const StepTrace& t) {
  double sum = 0;
  for (const TracedStep& s : t.steps) {
    for (const ReplayEvent& e : replay_events(s))
      if (e.kind == ReplayEvent::Kind::compute) sum += e.seconds;
  }
  return sum;
}

Replay::Replay(Fabric& f, const StepTrace& t, ReplayedComputation computation, std::function<bool()> is_over)
    : fabric_(f), computation_(computation), is_over_(std::move(is_over)) {
  if (const auto why = replay_refusal(t); !why.empty()) throw core::UsageError(why);
  for (const std::size_t floats : buffer_floats(t)) buffers_.push_back(f.memory(floats));
  for (const TracedStep& s : t.steps) {
    Step& step = steps_.emplace_back(Step{.events = replay_events(s), .calls = {}});
    for (std::size_t i = 0; i < s.calls.size(); ++i) {
      const TracedCall& c = s.calls[i];
      const Buffer buffer(c.element, std::span<std::byte>(buffers_[i].host(), c.bytes));
      const auto op = core::is_integer(c.element) ? allreduce::Op::max : allreduce::Op::average;
      step.calls.push_back(
          {.kind = *replayed_as(c.collective), .group = everybody, .in = buffer, .out = buffer, .op = op});
    }
  }
}

void Replay::step(std::size_t i) {
  const Step& s = steps_.at(i);
  std::vector<Ticket> tickets(s.calls.size());
  for (const ReplayEvent& e : s.events) {
    switch (e.kind) {
      case ReplayEvent::Kind::compute:
        fabric_.submit("replayed", {.flops = e.seconds * replay_flops_per_s},
                       [this, seconds = e.seconds] { compute_for(seconds, computation_, is_over_); });
        break;
      case ReplayEvent::Kind::start:
        tickets[e.call] = fabric_.start(s.calls[e.call]);
        break;
      case ReplayEvent::Kind::wait:
        fabric_.wait(tickets[e.call]);
        break;
    }
  }
}

std::uint64_t Replay::count_wrong_elements(std::uint64_t seed) {
  std::uint64_t wrong = 0;
  const auto rank = static_cast<std::size_t>(fabric_.rank());
  for (const Step& s : steps_) {
    for (const FabricCall& c : s.calls) {
      const auto known = known_collective(c, fabric_.size(), ++seed);
      const std::span<std::byte> bytes(c.out.host(), c.out.bytes());
      allreduce::write_input(known, rank, bytes);
      fabric_.wait(fabric_.start(c));
      const bool is_sum = c.kind == CallKind::all_reduce;
      wrong += (is_sum ? allreduce::check_sample(known, rank, bytes) : allreduce::check(known, rank, bytes)).wrong;
    }
  }
  return wrong;
}

}  // namespace gradmeter::dataparallel
