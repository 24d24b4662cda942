#include "bench/train/product_probe.hpp"

#include <algorithm>
#include <stdexcept>

#include "kernels/cases/random_data.hpp"
#include "kernels/roofline.hpp"
#include "kernels/threads.hpp"
#include "runtime/time/clock.hpp"

namespace gradmeter::bench {
namespace {

constexpr double shortest_turn_s = 2e-4;  // of one product: more runs of a short one

/// Where the second operand, the bias and the end lie among the inputs, each on a cache line [elements].
struct Places {
  explicit Places(const kernels::GemmShape& p)
      : b(kernels::whole_lines(p.m * p.k)), bias(b + kernels::whole_lines(p.k * p.n)), end(bias + p.n) {}
  std::size_t b, bias, end;
};

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

}  // namespace

ProductProbe::Entry& ProductProbe::entry(const kernels::GemmShape& problem) {
  for (Entry& e : entries_)
    if (e.problem == problem) return e;
  if (const std::size_t needed = Places(problem).end; needed > inputs_.size()) {
    inputs_.resize(needed);
    kernels::fill_gaussian(inputs_, 1);
  }
  outputs_.resize(std::max(outputs_.size(), problem.m * problem.n));
  return entries_.emplace_back(Entry{.problem = problem, .gemm = kernels::make_gemm(problem)});
}

void ProductProbe::round(std::span<const model::RepeatedProduct> products, core::Seconds budget) {
  kernels::set_compute_threads(threads_);
  const double begin = runtime::host_clock();
  peak_ = std::max(peak_, kernels::measure_fma_peak(core::Seconds{0}));
  std::vector<Entry*> mine;
  for (const auto& p : products) {
    Entry* const e = &entry(p.problem);
    if (std::ranges::find(mine, e) == mine.end()) mine.push_back(e);
  }
  std::ranges::stable_sort(mine, {}, &Entry::rounds);
  for (Entry* e : mine) {
    if (e->rounds > 0 && runtime::host_clock() - begin > budget.value) return;
    run(*e);
  }
}

void ProductProbe::run(Entry& e) {
  const kernels::GemmShape& p = e.problem;
  const std::span<const float> inputs(inputs_);
  const Places at(p);
  const auto a = inputs.first(p.m * p.k), b = inputs.subspan(at.b, p.k * p.n);
  const auto bias = inputs.subspan(at.bias, p.bias ? p.n : 0);
  const auto c = std::span(outputs_).first(p.m * p.n);
  e.run_s = shortest(e.run_s, [&] { e.gemm->run(a, b, bias, c); });
  e.read_s = shortest(e.read_s, [&] {
    for (const std::span<const float> operand : {a, b, std::span<const float>(c)}) (void)kernels::read_once(operand);
  });
  peak_ = std::max(peak_, core::Flops{p.flops()} / core::Seconds{e.run_s});
  ++e.rounds;
}

ProductTimes ProductProbe::times(std::span<const model::RepeatedProduct> products) const {
  ProductTimes sum;
  for (const auto& p : products) {
    const auto e = std::ranges::find(entries_, p.problem, &Entry::problem);
    if (e == entries_.end()) throw std::logic_error("a product is asked for that was in no round");
    const auto times = static_cast<double>(p.times);
    sum.library += times * e->run_s;
    sum.roofline += times * std::max(p.problem.flops() / peak_.value, std::min(e->read_s, e->run_s));
  }
  return sum;
}

}  // namespace gradmeter::bench
