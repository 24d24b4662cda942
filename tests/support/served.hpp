// SPDX-License-Identifier: Apache-2.0
// A run of any strategy on the quadratic model in virtual time, with everything that the tests ask of it.
#pragma once
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "dataparallel/assembly.hpp"
#include "dataparallel/fabric/simulation/world.hpp"
#include "support/departures.hpp"
#include "support/quadratic.hpp"
#include "support/sanitized.hpp"
#include "support/training.hpp"

namespace gradmeter::test {

struct Served {
  std::string strategy = "ps-async";
  int ranks = 4, servers = 0;
  std::function<int(int rank)> steps = [](int) { return 12; };
  std::string optimizer = "sgd", codec = "none";
  std::size_t elements = 200;
  float step_size = 0.1f;
  int updates = std::numeric_limits<int>::max();  ///< the steps after so many have size 0
  std::vector<float> curvatures = {1};            ///< as Quadratic takes them
  bool overlap = true;
  enum class Targets { moving, resting, zero } targets = Targets::moving;  ///< moving: with every step; apart by rank
  bool own_start = true;  ///< every rank draws its own initial weights, so that the strategy must make them equal
  bool path = false;      ///< keep the weights of every step
  bool judge = false;     ///< evaluates after every step; all workers must make equally many
  std::uint64_t seed = 1;
  double flops = 1e6;
  dataparallel::SimMachine machine = {};
};

/// What one rank saw.
struct Seen {
  std::vector<float> weights;                          ///< at the end
  std::vector<float> first;                            ///< element 0 after each step
  std::vector<std::vector<float>> path;                ///< all elements after each step, where it was asked for
  std::vector<std::vector<float>> evaluation_weights;  ///< after each step
  dataparallel::Observations observed = {};
  dataparallel::Totals totals = {};
  double seconds = 0;  ///< at the last step's end
  double end = 0;      ///< when the strategy has ended [s]
  int steps = 0;
};

inline float target_of(int rank, int step, std::size_t i) {
  return std::sin(0.7f * static_cast<float>(rank + 1) + 1.3f * static_cast<float>(step) + 0.1f * static_cast<float>(i));
}

inline dataparallel::StrategyPtr choice(const Served& s) {
  const auto found = dataparallel::find_strategy(s.strategy);
  return s.servers > 0 ? found->with_servers(s.servers) : found;
}

inline void serve(dataparallel::Fabric& fabric, const Served& s, Seen& seen) {
  using namespace dataparallel;
  Assembly assembly(
      fabric,
      {.model = [&](auto&, auto&) { return std::make_unique<Quadratic>(s.elements, s.curvatures, s.flops); },
       .seed = s.own_start ? static_cast<std::uint64_t>(fabric.rank()) : 0,
       .optimizer = s.optimizer,
       .strategy = choice(s),
       .strategy_options = {
           .overlap = s.overlap, .optimizer = s.optimizer, .codec = compression::find_codec(s.codec), .seed = s.seed}});
  Probe& probe = assembly.probe();
  Worker& worker = assembly.worker();
  Strategy& strategy = assembly.strategy();
  const runtime::Buffer weights = assembly.buffers().parameters;
  const runtime::Buffer evaluation_weights = s.judge ? fabric.memory(s.elements) : runtime::empty_buffer;
  std::vector<float> targets(2 * s.elements, 0.0f);
  const std::vector<std::int32_t> labels(2, 0);
  strategy.begin(worker);
  const int steps = worker.rank() < strategy.workers(worker.ranks()) ? s.steps(fabric.rank()) : 0;
  for (int step = 0; step < steps; ++step) {
    for (std::size_t i = 0; i < targets.size() && s.targets != Served::Targets::zero; ++i) {
      targets[i] = target_of(fabric.rank(), s.targets == Served::Targets::moving ? step : 0, i);
    }
    probe.begin_step();
    strategy.step(worker, {targets, labels},
                  {.step_size = step < s.updates ? s.step_size : 0.0f, .number = static_cast<std::uint64_t>(step) + 1});
    probe.end_step();
    seen.first.push_back(values_of(fabric, weights.part(0, 1))[0]);
    if (s.path) seen.path.push_back(values_of(fabric, weights));
    ++seen.steps;
    if (!s.judge) continue;
    strategy.settle(worker);
    strategy.evaluation_weights(worker, evaluation_weights);
    seen.evaluation_weights.push_back(values_of(fabric, evaluation_weights));
  }
  seen.seconds = fabric.now();
  strategy.end(worker);
  seen.end = fabric.now();
  await_departures(probe);
  seen.weights = values_of(fabric, weights);
  seen.observed = strategy.observed();
  seen.totals = probe.totals();
}

/// By rank.
inline std::vector<Seen> serve(const Served& s) {
  std::vector<Seen> seen(static_cast<std::size_t>(s.ranks));
  dataparallel::SimWorld(s.ranks, s.machine).run([&](dataparallel::Fabric& f) {
    serve(f, s, seen[static_cast<std::size_t>(f.rank())]);
  });
  return seen;
}

/// How far the evaluation weights of a run with path, which judged each step, are from a mean of all weights that only
/// updates change: mean(x) <- mean(x) - step mean(g_i), each gradient at the weights that rank i had after its last
/// step. Curvatures are 1.
inline double off_the_mean(const Served& s, const std::vector<Seen>& seen) {
  double most = 0;
  for (std::size_t t = 0; t < seen[0].path.size(); ++t) {
    for (std::size_t i = 0; i < s.elements; i += 1 + s.elements / 1000) {
      const double first = 1 + 0.01 * double(i % 50);
      double mean = t > 0 ? double(seen[0].evaluation_weights[t - 1][i]) : first;
      for (std::size_t r = 0; r < seen.size(); ++r) {
        const int rank = static_cast<int>(r), step = static_cast<int>(t);
        const double target = (double(target_of(rank, step, i)) + double(target_of(rank, step, i + s.elements))) / 2;
        const double read = t > 0 ? double(seen[r].path[t - 1][i]) : first;
        mean -= double(s.step_size) * (read - target) / double(seen.size());
      }
      most = std::max(most, std::fabs(double(seen[0].evaluation_weights[t][i]) - mean));
    }
  }
  return most;
}

inline dataparallel::Forecast forecast(const Served& s) {
  const Quadratic model(s.elements);
  return choice(s)
      ->make({.codec = compression::find_codec(s.codec)})
      ->predict({.ranks = static_cast<std::uint32_t>(s.ranks),
                 .tensors = model.tensors(),
                 .elements = s.elements,
                 .steps = static_cast<std::uint64_t>(s.steps(0)),
                 .machine = s.machine.machine});
}

/// In [0, 1), by rank and number.
inline double noise(int rank, std::uint64_t n) {
  std::uint64_t x = (static_cast<std::uint64_t>(rank) + 1) * 0x9E3779B97F4A7C15u + n * 0xBF58476D1CE4E5B9u;
  x ^= x >> 31;
  x *= 0x94D049BB133111EBu;
  return double(x >> 40) / double(1 << 24);
}
/// Some messages get lost, some come twice, some late.
inline dataparallel::DeliveryFault unreliable(const dataparallel::MessageRoute& f) {
  const double x = noise(f.from * 31 + f.to + (f.to_role == dataparallel::Role::server ? 7 : 0), f.number);
  if (x < 0.15) return {.copies = 0};
  if (x > 0.8) return {.copies = 2, .delay_s = {0, 1e-4 * noise(f.to, f.number)}};
  return {.delay_s = {x > 0.6 ? 1e-4 * x : 0, 0}};
}
/// The same, counted.
struct CountedFaults {
  std::uint64_t lost = 0, doubled = 0;
  dataparallel::DeliveryFault operator()(const dataparallel::MessageRoute& f) {
    const dataparallel::DeliveryFault fault = unreliable(f);
    lost += fault.copies == 0;
    doubled += fault.copies == 2;
    return fault;
  }
};
/// The last rank is three times slower, and all jitter.
inline dataparallel::SimMachine uneven(int ranks) {
  dataparallel::SimMachine m;
  m.slowdown = [ranks](int rank, std::uint64_t n) { return (rank == ranks - 1 ? 3.0 : 1.0) + 0.5 * noise(rank, n); };
  return m;
}
/// The same number of steps for every rank.
inline std::function<int(int)> each(int n) {
  return [n](int) { return n; };
}

}  // namespace gradmeter::test
