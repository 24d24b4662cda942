#include "dataparallel/decorators/decomposition.hpp"

#include <algorithm>

namespace gradmeter::dataparallel {

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
  return d;
}

std::vector<double> exposed_by_call(const StepRecord& r) {
  std::vector<Interval> taken;  // by computation and by the calls before
  for (const auto& c : r.computations)
    if (!c.exchanges) taken.push_back(c.when);
  taken = unite(taken);
  std::vector<double> exposed;
  for (const CallRecord& c : r.calls) {
    const Interval call{c.completion.started, c.completion.finished};
    exposed.push_back(total(subtract(unite({&call, 1}), taken)));
    taken.push_back(call);
    taken = unite(taken);
  }
  return exposed;
}

}  // namespace gradmeter::dataparallel
