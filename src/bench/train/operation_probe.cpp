#include "bench/train/operation_probe.hpp"

#include <algorithm>
#include <map>
#include <stdexcept>

#include "kernels/roofline.hpp"
#include "kernels/threads.hpp"
#include "runtime/time/clock.hpp"

namespace gradmeter::bench {
namespace {

constexpr double shortest_turn_s = 2e-4;  // of one operation: more runs of a short one

/// The shortest of at least two calls, the first of which brings the operands to where they can stay.
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

OperationProbe::Memory& OperationProbe::memory_of(const kernels::NumberFormat* format) {
  for (Memory& m : inputs_)
    if (m.format == format || (m.format && format && *m.format == *format)) return m;
  return inputs_.emplace_back(Memory{.format = format, .bytes = {}});
}

/// Room for all operands of an operation, each on a cache line.
void OperationProbe::provide(const kernels::Op& op) {
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

OperationProbe::Entry& OperationProbe::entry(const kernels::Problem& problem) {
  for (Entry& e : entries_)
    if (same_work(e.problem, problem)) return e;
  auto op = kernels::prepare(problem, {.training = true});
  provide(*op);
  return entries_.emplace_back(Entry{.problem = problem, .op = std::move(op)});
}

void OperationProbe::round(std::span<const model::RepeatedProblem> problems, core::Seconds budget) {
  kernels::set_compute_threads(threads_);
  const double begin = runtime::host_clock();
  fma_ = std::max(fma_, kernels::measure_fma_peak(core::Seconds{0}));
  peak_ = std::max(peak_, fma_);
  std::vector<Entry*> mine;
  for (const auto& p : problems) {
    Entry* const e = &entry(p.problem);
    if (std::ranges::find(mine, e) == mine.end()) mine.push_back(e);
  }
  std::ranges::stable_sort(mine, {}, &Entry::rounds);
  for (Entry* e : mine) {
    if (e->rounds > 0 && runtime::host_clock() - begin > budget.value) return;
    run(*e);
  }
}

void OperationProbe::run(Entry& e) {
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
  // The library's word is believed as far as our own multiply-adds allow.
  const double most = kernels::most_of_fma(e.problem.precision) * fma_.value;
  peak_.value = std::max(peak_.value, std::min(most, kernels::run_flops(e.problem) / e.run_s));
  ++e.rounds;
}

OperationTimes OperationProbe::times(std::span<const model::RepeatedProblem> problems) const {
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

}  // namespace gradmeter::bench
