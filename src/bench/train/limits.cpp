// SPDX-License-Identifier: Apache-2.0
#include "bench/train/limits.hpp"

#include <algorithm>
#include <map>
#include <stdexcept>

#include "bench/train/metrics.hpp"
#include "core/format.hpp"
#include "core/statistics.hpp"
#include "kernels/host/roofline.hpp"
#include "kernels/host/threads.hpp"
#include "runtime/clock.hpp"

namespace gradmeter::bench {
namespace {

constexpr double shortest_turn_s = 2e-4;  // a short operation is run until its runs have taken this time

/// The shortest time of at least two calls [s], and of `so_far` unless that is 0. The first call brings the operands
/// into the caches where they fit.
template <class Work>
double shortest(double so_far, const Work& work) {
  double best = so_far, spent = 0;
  for (int calls = 0; calls < 2 || spent < shortest_turn_s; ++calls) {
    const double begin = runtime::host_clock();
    work();
    const double took = runtime::host_clock() - begin;
    best = best > 0 ? std::min(best, took) : took;
    spent += took;
  }
  return best;
}

std::span<const float> as_floats(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const float*>(bytes.data()), bytes.size() / sizeof(float)};
}

}  // namespace

OperationTimer::Memory& OperationTimer::memory_of(const kernels::NumberFormat* format) {
  for (Memory& m : inputs_)
    if (m.format == format || (m.format && format && *m.format == *format)) return m;
  return inputs_.emplace_back(Memory{.format = format, .bytes = {}});
}

void OperationTimer::reserve_operands(const kernels::Op& op) {
  std::map<Memory*, std::size_t> needed;
  for (const kernels::Operand& o : op.inputs())
    needed[&memory_of(o.format)] += kernels::whole_line_bytes(o.stored_bytes);
  for (const auto& [memory, bytes] : needed) {
    if (bytes <= memory->bytes.size()) continue;
    memory->bytes.assign(bytes, std::byte{});
    if (memory->format) kernels::fill_repeating(memory->bytes, *memory->format, 1);
  }
  std::size_t written = 0;
  for (const kernels::Operand& o : op.outputs()) written += kernels::whole_line_bytes(o.stored_bytes);
  if (written > outputs_.size()) outputs_.assign(written, std::byte{});
}

OperationTimer::Entry& OperationTimer::entry(const kernels::Problem& problem) {
  for (Entry& e : entries_)
    if (same_work(e.problem, problem)) return e;
  auto op = kernels::prepare(problem, {.training = true});
  reserve_operands(*op);
  return entries_.emplace_back(Entry{.problem = problem, .op = std::move(op)});
}

void OperationTimer::round(std::span<const model::RepeatedProblem> problems, core::Seconds budget) {
  kernels::set_compute_threads(threads_);
  const double begin = runtime::host_clock();
  fma_ = std::max(fma_, kernels::measure_fma_peak(core::Seconds{0}));
  peak_ = std::max(peak_, fma_);
  std::vector<Entry*> entries;
  for (const auto& p : problems) {
    Entry* const e = &entry(p.problem);
    if (std::ranges::find(entries, e) == entries.end()) entries.push_back(e);
  }
  std::ranges::stable_sort(entries, {}, &Entry::rounds);
  for (Entry* e : entries) {
    if (e->rounds > 0 && runtime::host_clock() - begin > budget.value) return;
    run(*e);
  }
}

void OperationTimer::run(Entry& e) {
  std::map<const Memory*, std::size_t> used;
  std::vector<runtime::ConstBuffer> inputs;
  std::vector<std::span<const std::byte>> operands;
  for (const kernels::Operand& o : e.op->inputs()) {
    const Memory& m = memory_of(o.format);
    operands.push_back(std::span(m.bytes).subspan(used[&m], o.stored_bytes));
    inputs.emplace_back(core::Element::i8, operands.back());
    used[&m] += kernels::whole_line_bytes(o.stored_bytes);
  }
  std::vector<runtime::Buffer> outputs;
  std::size_t written = 0;
  for (const kernels::Operand& o : e.op->outputs()) {
    const std::span<std::byte> to = std::span(outputs_).subspan(written, o.stored_bytes);
    outputs.emplace_back(core::Element::i8, to);
    operands.emplace_back(to);
    written += kernels::whole_line_bytes(o.stored_bytes);
  }
  e.run_s = shortest(e.run_s, [&] { e.op->execute(inputs, outputs); });
  e.read_s = shortest(e.read_s, [&] {
    for (const auto& operand : operands) (void)kernels::read_once(as_floats(operand));
  });
  // The library's rate is trusted only up to a multiple of the rate of our own multiply-adds.
  const double most = kernels::product_rate_bound(e.problem.precision) * fma_.value;
  peak_.value = std::max(peak_.value, std::min(most, kernels::run_flops(e.problem) / e.run_s));
  ++e.rounds;
}

OperationTimes OperationTimer::times(std::span<const model::RepeatedProblem> problems) const {
  OperationTimes sum;
  for (const auto& p : problems) {
    const auto e = std::ranges::find_if(entries_, [&](const Entry& x) { return same_work(x.problem, p.problem); });
    if (e == entries_.end()) throw std::logic_error("an operation is asked for that was in no round");
    const auto times = static_cast<double>(p.times);
    sum.library += times * e->run_s;
    sum.roofline += times * std::max(kernels::run_flops(p.problem) / peak_.value, std::min(e->read_s, e->run_s));
  }
  return sum;
}

namespace {

using core::Metric;

constexpr core::Seconds operations_budget{3e-3};

/// The bound of all ranks together, from each rank's own bound `mine` [s]: in lock step the longest, else the harmonic
/// mean over the ranks that compute.
double of_all(const runtime::Communicator& c, double mine, bool lock_step) {
  if (lock_step) return c.max(mine);
  const double workers = c.sum(mine > 0 ? 1 : 0), rate = c.sum(mine > 0 ? 1 / mine : 0);
  return workers > 0 ? workers / rate : 0;
}

}  // namespace

void StepLimits::round(const StepDemand& d) {
  if (!is_host_) return;
  communicator_.barrier();
  {
    const runtime::Computing note(session_.activity(), "a step's operations");
    operations_.round(d.operations, operations_budget);
  }
  if (!d.exchanges()) return;
  if (!link_) link_.emplace(session_, communicator_, threads_);
  link_->round();
}

StepBound StepLimits::bound(const StepDemand& d) const {
  if (!is_host_) return {.is_known = false};
  const OperationTimes mine = operations_.times(d.operations);
  StepBound b{.is_known = true,
              .compute = {of_all(communicator_, mine.library, d.lock_step)},
              .roofline = {of_all(communicator_, mine.roofline, d.lock_step)}};
  b.machine.flops_per_s = -communicator_.max(-operations_.peak().value);
  if (!d.exchanges()) return b;
  link_->fill(b.machine);
  b.exchange = exchange_time_bound(d.least_sent, b.machine);
  return b;
}

void fill_bound(const StepBound& b, core::Point& row) {
  if (!b.is_known) return;
  auto& m = row.metrics;
  const double limit = b.seconds().value;
  m[Metric::limit_s] = limit;
  m[Metric::limit] = std::string(b.name());
  m[Metric::limit_compute_s] = b.compute.value;
  m[Metric::limit_roofline_s] = b.roofline.value;
  m[Metric::peak_flops_per_s] = b.machine.flops_per_s;
  m[Metric::roofline] = limit / m.number(Metric::time_s);
  if (b.exchange.value > 0) {
    m[Metric::limit_exchange_s] = b.exchange.value;
    m[Metric::link_bytes_per_s] = link_rate(b.machine);
  }
  const auto* time = m[Metric::time_s].as<core::Summary>();
  const double highest = time == nullptr ? m.number(Metric::time_s) : std::max(time->median, time->ci95_high);
  if (row.status != core::Status::ok || !(highest < limit)) return;
  mistrust(row, fmt::format("a step of {} (at most {}) is below its limit of {} ({}): the machine was in another state "
                            "while it was measured; measure again",
                            core::to_text(core::Seconds{m.number(Metric::time_s)}),
                            core::to_text(core::Seconds{highest}), core::to_text(b.seconds()), b.name()));
}

}  // namespace gradmeter::bench
