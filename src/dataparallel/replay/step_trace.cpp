#include "dataparallel/replay/step_trace.hpp"

#include <algorithm>

#include "core/format.hpp"

namespace gradmeter::dataparallel {

TracedParts parts_of(const TracedStep& s) {
  std::vector<Interval> calls;
  for (const TracedCall& c : s.calls) calls.push_back({c.when.begin, std::min(c.when.end, s.seconds)});
  const auto communication = unite(calls);
  const auto outside = subtract(communication, s.compute);
  TracedParts p{.step = s.seconds, .compute = total(s.compute), .communication = total(communication)};
  p.exposed = total(outside);
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

}  // namespace gradmeter::dataparallel
