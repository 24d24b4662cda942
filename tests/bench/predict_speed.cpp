// SPDX-License-Identifier: Apache-2.0
// How long predictions take at many ranks, and the memory that they need. Prints, judges nothing.
// usage: bench_predict [FILE.jsonl]   a result file of scale, from which a curve of steps is predicted; default: a
// recorded one, below the current folder
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/print.hpp"
#include "core/result_file.hpp"
#include "predict/collective.hpp"
#include "predict/machines.hpp"
#include "predict/own_steps.hpp"

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

constexpr std::uint32_t first_ranks = 32, most_ranks = 65536;  // twelve powers of two

/// Predicts each number of ranks by `predict`, and returns the widest interval.
double widest_of(const auto& predict_on) {
  double widest = 0;
  for (std::uint32_t ranks = first_ranks; ranks <= most_ranks; ranks *= 2) {
    const predict::Prediction p = predict_on(ranks);
    widest = std::max(widest, p.high / p.low);
  }
  return widest;
}

/// A transformer by data sheets alone.
double network_curve() {
  const predict::Calibration nothing({});
  const core::Machine h100 = predict::machine_named("H100", 8);
  return widest_of([&](std::uint32_t ranks) {
    predict::TrainingStep s;
    s.model = "llama3-8b";
    s.precision = "bf16";
    s.sequence = 4096;
    s.micro_batch = 1;
    s.zero_stage = 1;
    s.gpus = ranks;
    s.global_batch = ranks;
    return nothing.predict(s, h100).prediction.value();
  });
}

/// The first measured curve of a result file.
double own_curve(const predict::OwnStepCalibration& calibration, const std::string& file) {
  const auto measured = std::ranges::find_if(
      calibration.rows(), [](const predict::OwnStep& s) { return s.ranks > 1 && s.strategy != "independent"; });
  if (measured == calibration.rows().end())
    throw std::runtime_error(file + " has no step of scale on several ranks; name one that has");
  return widest_of([&](std::uint32_t ranks) {
    return calibration.predict(predict::on_ranks(*measured, ranks)).prediction.value().step;
  });
}

}  // namespace

int main(int argc, char** argv) try {
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
    for (std::uint32_t ranks = first_ranks; ranks <= most_ranks; ranks *= 2)
      sum += predict::collective_seconds({allreduce::find_algorithm("ring"), {ranks, 8}, bytes}, m);
  });
  core::print("curve of twelve points, ring, 32 to 65536 ranks: {:.3f} s\n", curve);
  double widest = 0;
  const double network = seconds_of([&] { widest = network_curve(); });
  core::print("curve of twelve steps with intervals, llama3-8b by data sheets: {:.3f} s (widest: high is {:.2f} low)\n",
              network, widest);
  const std::string file = argc > 1 ? argv[1] : "results/predict/three-links.jsonl";
  const auto runs = core::read_results(file, core::Reading::strict, core::RawTimes::left_out).runs;
  std::optional<predict::OwnStepCalibration> calibration;
  const double fit = seconds_of(
      [&] { calibration.emplace(predict::steps_of(runs, file), std::vector<predict::MeasuredCollective>()); });
  core::print("fit to {}, with what left-out rows say of the intervals: {:.3f} s\n", file, fit);
  const double own = seconds_of([&] { widest = own_curve(*calibration, file); });
  core::print("curve of twelve steps with intervals by this fit: {:.3f} s (widest: high is {:.2f} low)\n", own, widest);
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  core::print("memory: {:.0f} MiB (sum of times {:.3g} s)\n", static_cast<double>(usage.ru_maxrss) / 1024, sum);
} catch (const std::exception& e) {
  core::print(stderr, "bench_predict: {}\n", e.what());
  return 2;
}
