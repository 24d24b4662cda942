#include "bench/train/trace.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "core/format.hpp"

namespace gradmeter::bench {
namespace {

std::size_t first_step(const TraceRequest& r, std::size_t steps) {
  constexpr std::size_t usual = 5;  // past the first steps, which touch memory for the first time
  if (!r.first) return steps >= usual + r.count ? usual : 0;
  if (*r.first < steps) return *r.first;
  throw core::UsageError(fmt::format("--trace-steps {}: the run has {} steps, the first is 0", *r.first, steps));
}

}  // namespace

Trace::Trace(TraceRequest r, std::size_t steps, Timeline t)
    : request_(std::move(r)), first_(first_step(request_, steps)), timeline_(std::move(t)) {}

void Trace::before(std::size_t step, dataparallel::Probe& probe) const {
  if (step == first_) probe.keep_background(true);
}

void Trace::after(std::size_t step, const dataparallel::StepRecord& record, dataparallel::Probe& probe) {
  if (!has(step)) return;
  timeline_.add(step, record);
  timeline_.add_background(step, probe.take_background());
  if (!has(step + 1)) probe.keep_background(false);
}

bool Trace::write(const runtime::Communicator& c, const runtime::DriftModel& clock) const {
  if (!c.any(!timeline_.empty())) return false;
  gather_trace(c, timeline_, clock, request_.path, request_.replace);
  return true;
}

}  // namespace gradmeter::bench
