// SPDX-License-Identifier: Apache-2.0
#include "bench/codecs/codecs.hpp"

#include <algorithm>
#include <set>

#include "allreduce/schedule/plan.hpp"
#include "bench/engine/coded_sum.hpp"
#include "core/format.hpp"
#include "runtime/threads/backoff.hpp"
#include "runtime/threads/thread_group.hpp"
#include "runtime/transport/shared_memory_transport.hpp"

namespace gradmeter::bench {
namespace {

using core::Factor;
using core::Metric;
using core::Point;
using core::Status;

allreduce::RankShape one_node(int ranks) {
  const auto p = static_cast<std::uint32_t>(ranks);
  return {.ranks = p, .ranks_per_node = p};
}

core::Factors factors_of(const ExchangeErrorOptions& o, const ExchangeErrorPoint& p) {
  core::Factors f;
  f[Factor::ranks] = std::int64_t{p.ranks};
  f[Factor::nodes] = std::int64_t{1};
  f[Factor::ranks_per_node] = std::int64_t{p.ranks};
  f[Factor::ranks_as] = std::string(runtime::name(runtime::RanksAs::threads));
  f[Factor::codec] = p.codec->name;
  f[Factor::algorithm] = p.algorithm->name;
  f[Factor::size_bytes] = static_cast<std::int64_t>(o.size_bytes);
  f[Factor::distribution] = std::string("half-correlated");
  f[Factor::transport] = std::string("thread");
  f[Factor::device] = std::string("cpu");
  f[Factor::dtype] = std::string("fp32");
  f[Factor::op] = std::string("sum");
  return f;
}

std::string refusal(const ExchangeErrorPoint& p) {
  if (!p.codec->codec) return fmt::format("{} is made of collectives of its own", p.codec->info->name);
  if (!p.algorithm->has_schedule()) return fmt::format("{} does not encode", p.algorithm->name);
  if (auto why = p.algorithm->refusal(one_node(p.ranks)); !why.empty()) return why;
  for (const auto& schedule : p.algorithm->make(one_node(p.ranks))) {
    if (auto why = allreduce::coded_refusal(*schedule); !why.empty()) return why;
  }
  return {};
}

/// Few, since each pair of up to 256 ranks has cells for every channel. The order of sums is the same with any number.
constexpr int channels = 4;

/// Exchanges the vectors of all ranks, where every rank is a thread. values: by rank; each vector is replaced by the
/// sum.
void exchange_on_threads(const ExchangeErrorPoint& p, int cores, std::uint64_t seed,
                         std::vector<std::vector<float>>& values) {
  std::vector<runtime::SharedMemoryCell> cells(runtime::shared_memory_cell_count(p.ranks, channels));
  runtime::run_thread_ranks(p.ranks, [&](const runtime::Communicator& c) {
    auto& mine = values[static_cast<std::size_t>(c.rank())];
    const allreduce::ExchangeSpec options{.max_bytes = mine.size() * sizeof(float), .codec = p.codec};
    const allreduce::ScheduledAlgorithm algorithm{p.algorithm->name, p.algorithm->make(one_node(p.ranks))};
    runtime::SharedMemoryTransport transport("thread", c.rank(), p.ranks, channels, cells, {});
    const auto rank = static_cast<std::uint32_t>(c.rank());
    runtime::PrivateArena arena(allreduce::Executor::arena_bytes(algorithm, rank, options) + 4096);
    allreduce::Executor executor(algorithm, transport, arena, options);
    executor.start({.in = mine, .out = mine, .encoding = {.draw = {.seed = seed}}});
    runtime::Backoff backoff(runtime::spin_policy_for(p.ranks, cores));
    while (!executor.advance()) {
      runtime::throw_if_abandoned(c);
      backoff.wait();
    }
    c.barrier();  // peers may still read what this rank has sent
  });
}

class ExchangeErrorSweep final : public Experiment {
 public:
  explicit ExchangeErrorSweep(const ExchangeErrorOptions& o) : options_(o), points_(plan_exchange_errors(o)) {}

  std::vector<SweepPoint*> plan(const SweepRows& rows) override {
    for (const auto& p : points_) {
      auto& row = rows_.emplace_back(rows.point("codecs", p.factors, rows_.size())).row;
      row.metrics[Metric::implementation] = p.codec->label;
      // All ranks' gradients, kept for the exact sum, and all ranks' buffers, which become the sum.
      const std::size_t needs = 2 * static_cast<std::size_t>(p.ranks) * options_.size_bytes;
      refuse_alone(p.unsupported, needs, options_.memory_bytes, row);
    }
    return pointers_to(rows_);
  }

  void measure(std::size_t group, SweepRows& rows) override {
    const auto& p = points_[group];
    Point& row = rows_[group].row;
    rows.progress(fmt::format("{} {} {} ranks", p.codec->label, p.algorithm->name, p.ranks));
    const auto ranks = static_cast<std::size_t>(p.ranks);
    const std::size_t n = options_.size_bytes / sizeof(float);
    for (std::size_t r = gradients_.size(); r < ranks; ++r) {
      draw_worker_gradient(options_.seed, static_cast<int>(r), gradients_.emplace_back(n));
    }
    std::vector<std::vector<float>> values(gradients_.begin(), gradients_.begin() + p.ranks);
    exchange_on_threads(p, options_.cores, options_.seed, values);
    row.metrics[Metric::error] = error_of(values.front(), ranks);
    const bool same = std::all_of(values.begin(), values.end(), [&](const auto& v) { return v == values.front(); });
    if (!same) refuse(row, Status::wrong, "ranks hold different bits");
  }

 private:
  /// The relative squared error of `sum` against the exact sum in double.
  double error_of(const std::vector<float>& sum, std::size_t ranks) const {
    double squared_error = 0, squared_norm = 0;
    for (std::size_t i = 0; i < sum.size(); ++i) {
      double exact = 0;
      for (std::size_t r = 0; r < ranks; ++r) exact += static_cast<double>(gradients_[r][i]);
      const double off = static_cast<double>(sum[i]) - exact;
      squared_error += off * off;
      squared_norm += exact * exact;
    }
    return squared_error / squared_norm;
  }

  const ExchangeErrorOptions& options_;
  std::vector<ExchangeErrorPoint> points_;
  std::vector<SweepPoint> rows_;  ///< the rows of `points_`, in the same order
  std::vector<std::vector<float>> gradients_;
};

}  // namespace

std::vector<ExchangeErrorPoint> plan_exchange_errors(const ExchangeErrorOptions& o) {
  std::vector<ExchangeErrorPoint> out;
  std::set<std::string> seen;
  for (const auto& codec : o.codecs) {
    for (const auto& algorithm : o.algorithms) {
      for (const int ranks : o.ranks) {
        ExchangeErrorPoint p{codec, algorithm, ranks, {}, {}};
        p.factors = factors_of(o, p);
        p.unsupported = refusal(p);
        if (seen.insert(p.factors.key()).second) out.push_back(std::move(p));
      }
    }
  }
  return out;
}

std::size_t run_exchange_errors(const ExchangeErrorOptions& o, const FinishedRows& finished,
                                const runtime::SignalWatch& signals, const RowListener& listener) {
  ExchangeErrorSweep sweep(o);
  return run_sweep(sweep, no_peers(signals), finished, listener, {});
}

}  // namespace gradmeter::bench
