// SPDX-License-Identifier: Apache-2.0
// Strategies where workers are not alike, and where gradients are late: real gradients on the built-in digits, times of
// a simulated machine, so that neither the cores of this one nor what else runs on it matter. Runs repeat to the bit.
//   build/release/tests/bench/bench_slow_worker slow|late [KEY=VALUE ...]
// slow: virtual time to an accuracy with one worker's computation slowed and with all workers alike. A worker takes the
//       next mini-batch when it is free. Each strategy has the step size of the grid with which it is fastest when all
//       are alike.
// late: accuracy after equal samples, by step size, beside one worker's.
// Keys: workers, batch, samples (at most, of all workers), seeds, steps (step sizes), strategies (names of the
// registry), optimizer, model; slow: slowdown, target [%], every (samples between evaluations). Tables are Markdown.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "core/format.hpp"
#include "core/name.hpp"
#include "core/statistics.hpp"
#include "model/data/dataset.hpp"
#include "support/free_running.hpp"

namespace {

using namespace gradmeter;
using test::Evaluator;
using test::FreeRun;
using test::FreeTraining;
using test::Moment;

constexpr std::size_t training_samples = 16384, validation_samples = 5000;
constexpr double never = std::numeric_limits<double>::infinity();

struct Named {
  std::string text;  ///< as given
  dataparallel::StrategyPtr strategy;
};

struct Options {
  bool late = false;
  int workers = 8;
  std::size_t batch = 16, samples = 0, every = 512;
  double slowdown = 3, target = 0.95;
  std::string optimizer, model;
  std::vector<std::uint64_t> seeds;
  std::vector<double> step_sizes;
  std::vector<Named> strategies;
};

/// Every item of a list that has no blanks.
std::vector<std::string> items(const std::string& list) {
  std::vector<std::string> out{""};
  for (const char c : list) {
    if (c == ',') out.emplace_back();
    if (c != ',') out.back() += c;
  }
  return out;
}

core::ParsedName arguments(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  if (mode != "slow" && mode != "late")
    throw core::UsageError("bench_slow_worker slow|late [KEY=VALUE ...]; the head of its source says more");
  const bool late = mode == "late";
  core::ParsedName out{.base = mode, .bare = {}, .parameters = {}};
  out.parameters = {
      {"workers", late ? "16" : "8"},
      {"batch", "16"},
      {"samples", late ? "16384" : "40960"},
      {"every", "512"},
      {"seeds", "1,2,3"},
      {"slowdown", "3"},
      {"target", "95"},
      {"optimizer", "sgd"},
      {"model", "mlp:784-64-10"},
      {"steps", late ? "0.0125,0.025,0.035,0.05,0.07,0.1" : "0.1,0.2,0.4,0.8"},
      {"strategies", late ? "ps-async:scale=sum,dc-asgd:lambda=0.04,scale=sum,dc-asgd:lambda=0.2,scale=sum,"
                            "dc-asgd:lambda=1,scale=sum,dc-asgd:lambda=4,scale=sum,"
                            "dc-asgd:adaptive=1,lambda=0.5,scale=sum,dc-asgd:adaptive=1,lambda=2,scale=sum,"
                            "dc-asgd:adaptive=1,lambda=8,scale=sum"
                          : "sync,ps-sync,ps-async,ps-ssp,ps-backup,ps-softsync,d-psgd,ad-psgd"}};
  std::vector<std::string> keys;
  for (const auto& [key, value] : out.parameters) keys.push_back(key);
  for (int i = 2; i < argc; ++i) {
    const std::string text = argv[i], key = text.substr(0, text.find('='));
    if (!out.parameters.contains(key) || key.size() == text.size()) core::refuse_unknown("argument", text, keys);
    out.parameters[key] = text.substr(key.size() + 1);
  }
  return out;
}

Options options_of(const core::ParsedName& given) {
  const auto count = [&](const char* key, std::uint64_t most) { return core::count_parameter(given, key, {1, most}); };
  const auto number = [&](const char* key, core::NumberRange range) {
    return core::number_parameter(given, key, range);
  };
  const auto one = [&](const char* key, const std::string& item) {
    return core::ParsedName{.base = given.base, .bare = {}, .parameters = {{key, item}}};
  };
  Options o{.late = given.base == "late",
            .workers = static_cast<int>(count("workers", 256)),
            .batch = count("batch", training_samples),
            .samples = count("samples", 1u << 24),
            .every = count("every", 1u << 24),
            .slowdown = number("slowdown", {1, 1e6}),
            .target = number("target", {0, 101}) / 100,
            .optimizer = given.parameters.at("optimizer"),
            .model = given.parameters.at("model"),
            .seeds = {},
            .step_sizes = {},
            .strategies = {}};
  if (o.late) o.every = o.samples;
  for (const auto& s : items(given.parameters.at("seeds")))
    o.seeds.push_back(core::count_parameter(one("seeds", s), "seeds", {0, 1u << 30}));
  for (const auto& s : items(given.parameters.at("steps")))
    o.step_sizes.push_back(core::number_parameter(one("steps", s), "steps", {0, 1e6}));
  for (const auto& s : core::split_names(given.parameters.at("strategies")))
    o.strategies.push_back({s, dataparallel::find_strategy(s)});
  return o;
}

/// A pass over a mini-batch of 16 takes 3.3 ms, the ring all-reduce of its gradients between 8 ranks 0.4 ms.
dataparallel::SimMachine machine() {
  dataparallel::SimMachine m;
  m.machine = {.within_node = {.latency_s = 10e-6, .bandwidth = {{.bytes_per_s = 1.25e9}}},
               .reduce_bytes_per_s = 1e10,
               .flops_per_s = 1e9,
               .memory_bytes_per_s = 1e10,
               .noise = 0.1};
  return m;
}

/// Data and its evaluation, by seed.
class Bench {
 public:
  explicit Bench(const Options& o) : o_(o) {
    for (const std::uint64_t seed : o.seeds) {
      if (seeds_.contains(seed)) continue;
      const auto data =
          model::make_data({.train_samples = training_samples, .validation_samples = validation_samples, .seed = seed});
      seeds_.try_emplace(seed, data.train, Evaluator(o.model, *data.validation));
    }
  }

  /// slowdown: of the last worker that trains.
  Moment run(const dataparallel::StrategyPtr& strategy, int workers, double step_size, std::uint64_t seed,
             double slowdown) {
    FreeRun r{.strategy = strategy,
              .model = o_.model,
              .optimizer = o_.optimizer,
              .ranks = workers,
              .machine = machine(),
              .batch = o_.batch,
              .step_size = static_cast<float>(step_size),
              .seed = seed,
              .samples = o_.samples,
              .evaluate_every = o_.every,
              .target = o_.late ? 2 : o_.target};
    const auto made = strategy->make({});
    while (made->workers(r.ranks) < workers) ++r.ranks;
    r.machine.slowdown = [slow = workers - 1, slowdown](int rank, std::uint64_t) {
      return rank == slow ? slowdown : 1.0;
    };
    auto& [data, evaluator] = seeds_.at(seed);
    return FreeTraining(r, *data, evaluator).train();
  }

 private:
  struct Seed {
    std::shared_ptr<const model::Dataset> data;
    Evaluator evaluator;
  };
  const Options& o_;
  std::map<std::uint64_t, Seed> seeds_;
};

void print_row(const std::vector<std::string>& cells) { fmt::print("| {} |\n", fmt::join(cells, " | ")); }

void print_head(const std::vector<std::string>& cells) {
  print_row(cells);
  print_row(std::vector<std::string>(cells.size(), "---"));
}

/// Of three times or so; infinite where most are.
double middle(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

std::string text_of(double value, int digits) {
  return std::isfinite(value) ? fmt::format("{:.{}f}", value, digits) : "-";
}

/// A strategy with a step size, all seeds: all workers alike, and one slowed.
struct Pair {
  double step_size = 0;
  std::vector<Moment> alike, slowed;
};

double time_of(const Options& o, const Moment& m) { return m.accuracy >= o.target ? m.seconds : never; }

double middle_time(const Options& o, const std::vector<Moment>& runs) {
  std::vector<double> times;
  for (const Moment& m : runs) times.push_back(time_of(o, m));
  return middle(times);
}

std::vector<Pair> grid_of(const Options& o, Bench& bench, const dataparallel::StrategyPtr& strategy) {
  std::vector<Pair> out;
  for (const double size : o.step_sizes) {
    Pair& p = out.emplace_back(Pair{.step_size = size, .alike = {}, .slowed = {}});
    for (const std::uint64_t seed : o.seeds) {
      p.alike.push_back(bench.run(strategy, o.workers, size, seed, 1));
      p.slowed.push_back(bench.run(strategy, o.workers, size, seed, o.slowdown));
    }
  }
  return out;
}

/// Of the changes that came, so many in a hundred were dropped by their servers.
std::string dropped(const Moment& m) {
  double dropped = 0, updates = 0, servers = 0;
  for (const auto& o : m.observed) {
    dropped += static_cast<double>(o.dropped);
    updates += static_cast<double>(o.updates);
    servers += o.applied > 0 ? 1 : 0;
  }
  return servers > 0 ? fmt::format("{:.1f}", 100 * dropped / servers / updates) : "-";
}

double seconds_a_sample(const Moment& m) { return m.seconds / static_cast<double>(m.samples); }

void print_seeds(const Options& o, const std::string& name, const Pair& p) {
  for (std::size_t i = 0; i < o.seeds.size(); ++i) {
    const Moment &alike = p.alike[i], &slowed = p.slowed[i];
    std::size_t all = 0;
    for (int w = 0; w < o.workers; ++w) all += slowed.steps[static_cast<std::size_t>(w)];
    const std::size_t slow = slowed.steps[static_cast<std::size_t>(o.workers) - 1];
    const double fast = o.workers > 1 ? double(all - slow) / (o.workers - 1) : std::nan("");
    const double before = time_of(o, alike), after = time_of(o, slowed);
    print_row({fmt::format("`{}`", name), fmt::format("{}", p.step_size), fmt::format("{}", o.seeds[i]),
               text_of(before, 3), text_of(after, 3), text_of(after / before, 2),
               text_of(seconds_a_sample(slowed) / seconds_a_sample(alike), 2), fmt::format("{}", alike.samples),
               fmt::format("{}", slowed.samples), fmt::format("{}", slow), text_of(fast, 0),
               text_of(alike.mean_staleness(), 2), text_of(slowed.mean_staleness(), 2), dropped(slowed)});
  }
}

void slow(const Options& o) {
  Bench bench(o);
  std::vector<std::vector<Pair>> grids;
  std::vector<std::size_t> best;
  for (const Named& s : o.strategies) {
    const auto& grid = grids.emplace_back(grid_of(o, bench, s.strategy));
    std::size_t least = 0;
    for (std::size_t i = 1; i < grid.size(); ++i) {
      if (middle_time(o, grid[i].alike) < middle_time(o, grid[least].alike)) least = i;
    }
    best.push_back(least);
  }
  fmt::print("Virtual time to {:.1f} % [s], median of the seeds: all alike / one worker {} times slower\n\n",
             100 * o.target, o.slowdown);
  std::vector<std::string> head{"strategy"};
  for (const double size : o.step_sizes) head.push_back(fmt::format("step size {}", size));
  print_head(head);
  for (std::size_t s = 0; s < grids.size(); ++s) {
    std::vector<std::string> cells{fmt::format("`{}`", o.strategies[s].text)};
    for (const Pair& p : grids[s])
      cells.push_back(text_of(middle_time(o, p.alike), 3) + " / " + text_of(middle_time(o, p.slowed), 3));
    print_row(cells);
  }
  fmt::print("\nWith each strategy's best step size when all are alike\n\n");
  print_head({"strategy", "step size", "seed", "all alike [s]", "one slowed [s]", "times longer", "each sample",
              "samples, alike", "samples, slowed", "steps of the slowed", "of each other", "staleness, alike",
              "staleness, slowed", "dropped [%]"});
  for (std::size_t s = 0; s < grids.size(); ++s) print_seeds(o, o.strategies[s].text, grids[s][best[s]]);
}

/// Percent: the median and the range.
std::string accuracies(const std::vector<Moment>& runs) {
  std::vector<double> all;
  for (const Moment& m : runs) all.push_back(100 * m.accuracy);
  const auto s = core::summarise(all);
  return fmt::format("{:.2f} ({:.1f}–{:.1f})", s.median, s.min, s.max);
}

void late(const Options& o) {
  Bench bench(o);
  const auto all_seeds = [&](const dataparallel::StrategyPtr& strategy, int workers, double size) {
    std::vector<Moment> runs;
    for (const std::uint64_t seed : o.seeds) runs.push_back(bench.run(strategy, workers, size, seed, 1));
    return runs;
  };
  fmt::print("Accuracy after {} samples [%], median and range of the seeds\n\n", o.samples);
  std::vector<std::string> head{"step size", "one worker, `sync`"}, staleness{"mean staleness", "-"};
  for (const Named& s : o.strategies) head.push_back(fmt::format("`{}`", s.text));
  print_head(head);
  for (const double size : o.step_sizes) {
    std::vector<std::string> cells{fmt::format("{}", size),
                                   accuracies(all_seeds(dataparallel::find_strategy("sync"), 1, size))};
    staleness.resize(2);
    for (const Named& s : o.strategies) {
      const auto runs = all_seeds(s.strategy, o.workers, size);
      cells.push_back(accuracies(runs));
      staleness.push_back(text_of(runs.front().mean_staleness(), 2));
    }
    print_row(cells);
  }
  print_row(staleness);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Options o = options_of(arguments(argc, argv));
    fmt::print("{}, {} workers, mini-batches of {}, {}, seeds {}; {} training samples, {} to evaluate\n", o.model,
               o.workers, o.batch, o.optimizer, fmt::join(o.seeds, ", "), training_samples, validation_samples);
    const auto m = machine().machine;
    fmt::print("{} GFLOP/s a worker, noise {:.0f} %, link {} Gbit/s, {} us\n\n", m.flops_per_s / 1e9, 100 * m.noise,
               8e-9 * m.within_node.bandwidth.front().bytes_per_s, 1e6 * m.within_node.latency_s);
    if (o.late) {
      late(o);
    } else {
      slow(o);
    }
  } catch (const core::UsageError& e) {
    fmt::print(stderr, "{}\n", e.what());
    return 2;
  }
  return 0;
}
