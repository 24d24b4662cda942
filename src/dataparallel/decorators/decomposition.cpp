#include "dataparallel/decorators/decomposition.hpp"

#include <algorithm>

namespace gradmeter::dataparallel {
namespace {

std::vector<CallTimes> call_times(const StepRecord& r, std::span<const double> last_start,
                                  const std::vector<Interval>& computing) {
  std::vector<CallTimes> all;
  std::vector<Interval> taken = computing;  // and by the calls before
  for (std::size_t i = 0; i < r.calls.size(); ++i) {
    const Completion& c = r.calls[i].completion;
    const Interval call{c.started, c.finished};
    const double all_there = i < last_start.size() ? std::clamp(last_start[i], c.started, c.finished) : c.started;
    all.push_back({.posted = c.posted - r.step.begin,
                   .started = c.started - r.step.begin,
                   .finished = c.finished - r.step.begin,
                   .wire = c.finished - all_there,
                   .exposed = total(subtract(unite({&call, 1}), taken))});
    taken.push_back(call);
    taken = unite(taken);
  }
  return all;
}

}  // namespace

Decomposition decompose(const StepRecord& r, std::span<const double> last_start) {
  Decomposition d;
  d.step = r.step.length();
  std::vector<Interval> computing, communicating, exchanging, waiting, late;
  for (const auto& c : r.computations) (c.exchanges ? exchanging : computing).push_back(c.when);
  for (std::size_t i = 0; i < r.calls.size(); ++i) {
    const Completion& c = r.calls[i].completion;
    communicating.push_back({c.started, c.finished});
    if (i < last_start.size()) late.push_back({c.started, std::min(last_start[i], c.finished)});
    d.bytes_sent += c.bytes_sent;
    d.bytes_between_nodes += c.bytes_between_nodes;
    d.bytes_due += c.bytes_due.value_or(0);
    d.bytes_known &= c.bytes_due.has_value();
    d.encode += c.encode_s;
    d.decode += c.decode_s;
  }
  for (const auto& w : r.waits) {
    d.waited += w.when.length();
    waiting.push_back(w.when);
  }
  computing = unite(computing);
  communicating = unite(communicating);
  d.handled = total(subtract(subtract(unite(exchanging), computing), unite(waiting)));
  d.compute = total(computing);
  d.communication = total(communicating);
  d.exposed = total(subtract(communicating, computing));
  d.overlap = d.communication - d.exposed;
  d.skew = total(subtract(unite(late), computing));
  d.calls = call_times(r, last_start, computing);
  return d;
}

}  // namespace gradmeter::dataparallel
