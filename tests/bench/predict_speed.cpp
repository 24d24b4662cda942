// SPDX-License-Identifier: Apache-2.0
// How long predictions of collectives take at many ranks, and the memory that they need. Prints, judges nothing.
#include <sys/resource.h>

#include <chrono>

#include "core/print.hpp"
#include "predict/collective.hpp"

namespace {

using namespace gradmeter;

double seconds_of(const auto& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

core::Machine machine() {
  core::Machine m;
  m.ranks_per_node = 8;
  m.within_node = {.latency_s = 3e-6, .bandwidth = {{.bytes_per_s = 2e11}}};
  m.between_nodes = {.latency_s = 6e-6, .bandwidth = {{.bytes_per_s = 5e10}}};
  m.reduce_bytes_per_s = 1e12;
  return m;
}

}  // namespace

int main() {
  const core::Machine m = machine();
  constexpr std::size_t bytes = std::size_t{1} << 30;
  double sum = 0;
  for (const auto& a : allreduce::algorithms()) {
    if (a.backend != allreduce::Backend::schedule) continue;
    const predict::CollectiveCall call{allreduce::find_algorithm(a.name), {65536, 8}, bytes};
    if (!call.algorithm->refusal(call.shape).empty()) continue;
    const double s = seconds_of([&] { sum += predict::formula_seconds(call, m); });
    core::print("closed form, {}, 65536 ranks: {:.6f} s\n", a.name, s);
  }
  const predict::CollectiveCall ring{allreduce::find_algorithm("ring"), {16384, 8}, bytes};
  core::print("max-plus, ring, 16384 ranks: {:.3f} s\n", seconds_of([&] { sum += predict::walked_seconds(ring, m); }));
  const double curve = seconds_of([&] {
    for (std::uint32_t ranks = 32; ranks <= 65536; ranks *= 2)
      sum += predict::collective_seconds({allreduce::find_algorithm("ring"), {ranks, 8}, bytes}, m);
  });
  core::print("curve of twelve points, ring, 32 to 65536 ranks: {:.3f} s\n", curve);
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  core::print("memory: {:.0f} MiB (sum of times {:.3g} s)\n", static_cast<double>(usage.ru_maxrss) / 1024, sum);
}
