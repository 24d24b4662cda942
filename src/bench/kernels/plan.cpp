// SPDX-License-Identifier: Apache-2.0
#include "bench/kernels/plan.hpp"

#include <algorithm>
#include <numeric>
#include <set>
#include <vector>

#include "bench/engine/flags.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "kernels/cases/kernel_case.hpp"
#include "kernels/problems/problem_file.hpp"

namespace gradmeter::bench {
namespace {

using core::Factor;
using kernels::Problem;

/// All factors that the point sets, as a text; equal points have equal keys.
std::string key(const KernelPoint& p) { return to_factors(p, {}).key(); }

bool has_chosen_pass(const KernelFactors& f, const Problem& p) {
  return f.passes.empty() || std::ranges::find(f.passes, p.pass) != f.passes.end();
}

/// The points of one chosen problem: one with the problem's own shape, or one for each batch.
std::vector<KernelPoint> points_of(const KernelFactors& f, const ChosenProblem& chosen) {
  KernelPoint p{.problem = chosen.problem, .is_from_training_list = chosen.is_from_training_list};
  if (auto* gemm = std::get_if<kernels::GemmShape>(&p.problem.shape)) gemm->packed |= f.packed;
  if (f.batches.empty()) return {p};
  if (const auto* gemm = std::get_if<kernels::GemmShape>(&p.problem.shape); gemm && gemm->packed) {
    throw core::UsageError(fmt::format(
        "--sweep batch: {} packs B, whose columns are the mini-batch, and weights are what inference packs; "
        "leave packed out, or give a --shape for each batch with the weights as B",
        kernels::problem_text(p.problem.shape)));
  }
  std::vector<KernelPoint> out;
  for (const std::size_t batch : f.batches) {
    const auto shape = kernels::with_batch(p.problem.shape, batch);
    if (!shape) {
      throw core::UsageError(fmt::format("--sweep batch: {} has no batch dimension; leave {} out of --op",
                                         kernels::problem_text(p.problem.shape), name(p.problem.operation())));
    }
    p.problem.shape = *shape;
    p.batch = batch;
    out.push_back(p);
  }
  return out;
}

void refuse_nothing_left(const KernelFactors& f) {
  if (f.problems.empty()) throw core::UsageError("there are no problems: give another --op or --set, or --problems");
  throw core::UsageError(fmt::format("none of {} problems is left by --filter and --pass; one of them is {} {}",
                                     f.problems.size(), kernels::problem_text(f.problems.front().problem.shape),
                                     name(f.problems.front().problem.pass)));
}

}  // namespace

std::string_view name(CacheState c) { return c == CacheState::hot ? "hot" : "cold"; }

ProblemFilter::ProblemFilter(const std::string& text) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    if (end > at) conditions_.push_back(text.substr(at, end - at));
    at = end + 1;
  }
}

bool ProblemFilter::matches(const Problem& p) const {
  const std::string description = fmt::format("{} {} {}", kernels::problem_text(p.shape), name(p.pass), p.application);
  const std::string values = fmt::format(",{},", text(p.shape));
  return std::ranges::all_of(conditions_, [&](const std::string& c) {
    // A whole value: n=16 is not n=160.
    if (c.find('=') != std::string::npos) return values.find(fmt::format(",{},", c)) != std::string::npos;
    return description.find(c) != std::string::npos;
  });
}

std::vector<KernelPoint> plan_kernels(const KernelFactors& f) {
  std::vector<KernelPoint> out;
  std::set<std::string> seen;
  for (const ChosenProblem& chosen : f.problems) {
    if (!has_chosen_pass(f, chosen.problem) || !f.filter.matches(chosen.problem)) continue;
    for (KernelPoint& p : points_of(f, chosen)) {
      const auto own = std::vector{p.problem.precision};
      for (const auto precision : f.precisions.empty() ? own : f.precisions) {
        for (const CacheState cache : f.caches) {
          for (const auto search : f.searches) {
            p.problem.precision = precision;
            p.cache = cache;
            p.search = search;
            for (const std::size_t repeat : numbers_of_repeats(f.repeats)) {
              p.repeat = repeat;
              if (seen.insert(key(p)).second) out.push_back(p);
            }
          }
        }
      }
    }
  }
  if (out.empty()) refuse_nothing_left(f);
  return out;
}

core::Factors to_factors(const KernelPoint& p, const KernelPlacement& at) {
  core::Factors f;
  f[Factor::ranks] = std::int64_t{at.ranks};
  f[Factor::nodes] = std::int64_t{at.nodes};
  f[Factor::ranks_per_node] = std::int64_t{at.ranks_per_node};
  f[Factor::ranks_as] = std::string(runtime::name(at.ranks_as));
  f[Factor::threads] = std::int64_t{at.threads};
  f[Factor::device] = at.device;
  f[Factor::problem] = kernels::problem_text(p.problem.shape);
  f[Factor::pass] = std::string(name(p.problem.pass));
  f[Factor::precision] = std::string(name(p.problem.precision));
  f[Factor::cache] = std::string(name(p.cache));
  if (p.search != kernels::AlgorithmSearch::estimated) f[Factor::search] = std::string(name(p.search));
  if (p.batch > 0) f[Factor::batch_per_rank] = static_cast<std::int64_t>(p.batch);
  if (p.repeat > 0) f[Factor::repeat] = static_cast<std::int64_t>(p.repeat);
  return f;
}

std::size_t all_cache_bytes(std::size_t last_caches, std::size_t l2, int threads) {
  return last_caches > 0 ? last_caches + l2 * static_cast<std::size_t>(threads) : 0;
}

std::size_t touched_bytes(const Problem& p, const runtime::Device& device) {
  const double moved = &device == &runtime::host_device() ? bytes(p) : native_bytes(p);
  return std::min(kernels::kernel_case_bytes(p, device), kernels::whole_bytes(moved));
}

std::size_t operand_sets(CacheState cache, std::size_t touched_bytes, std::size_t cache_bytes) {
  if (cache == CacheState::hot) return 1;
  constexpr std::size_t assumed_cache_bytes = std::size_t{64} << 20, most = 1u << 14;
  const std::size_t all_bytes = 2 * (cache_bytes > 0 ? cache_bytes : assumed_cache_bytes);
  return std::clamp<std::size_t>(all_bytes / std::max<std::size_t>(1, touched_bytes) + 1, 2, most);
}

KernelMemory kernel_memory(const KernelPoint& p, std::size_t cache_bytes, const runtime::Device& device) {
  const std::size_t set = kernels::kernel_case_bytes(p.problem, device);
  const std::size_t float64_sets =
      8 / storage_bytes(p.problem.precision);  // the check's copy in float64, counted in sets
  // The check of bf16 may also keep an fp32 copy, which is as large as two sets.
  const std::size_t fp32_sets = p.problem.precision == kernels::Precision::bf16 ? 2 : 0;
  const std::size_t sets = operand_sets(p.cache, touched_bytes(p.problem, device), cache_bytes),
                    check_sets = float64_sets + fp32_sets;
  const auto bytes_of = [set](std::size_t copies) {
    return kernels::whole_bytes(static_cast<double>(set) * static_cast<double>(copies));
  };
  if (&device == &runtime::host_device()) return {.host = bytes_of(sets + check_sets)};
  return {.host = bytes_of(1 + check_sets), .device = bytes_of(sets)};
}

TimeShare share_out(core::Seconds rest, std::span<const double> least) {
  if (least.empty() || !(rest.value > 0)) return {.skip = true};
  const double total_s = std::accumulate(least.begin(), least.end(), 0.0);
  const double fair = rest.value / static_cast<double>(least.size());
  // A long point may take twice as long as predicted, and must leave time for the many short ones.
  const double room = least.front() > fair ? rest.value / 2 : rest.value;
  if (total_s <= room) return {.seconds = least.front() + (rest.value - total_s) / static_cast<double>(least.size())};
  std::vector<double> sorted(least.begin(), least.end());
  std::ranges::sort(sorted);
  double sum = 0;
  for (const double seconds : sorted) {
    sum += seconds;
    if (sum > room) break;
    if (seconds >= least.front()) return {.seconds = least.front()};
  }
  return {.skip = true};
}

void Slowness::learn(const std::string& kind, double ratio) {
  constexpr double weight = 0.25;  // the weight of the newest ratio; it is small, since shapes differ
  double& mean = ratios_.emplace(kind, guess_).first->second;
  mean += weight * (ratio - mean);
}

double Slowness::of(const std::string& kind) const {
  const auto it = ratios_.find(kind);
  return it == ratios_.end() ? guess_ : it->second;
}

}  // namespace gradmeter::bench
