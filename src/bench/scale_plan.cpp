#include "bench/scale_plan.hpp"

#include <algorithm>
#include <set>

#include "core/format.hpp"

namespace gradmeter::bench {
namespace {

using dataparallel::StrategyPtr;

std::vector<int> with_one_rank(std::vector<int> ranks) {
  ranks.push_back(1);
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

std::vector<StrategyPtr> with_control(const std::vector<StrategyPtr>& asked) {
  std::vector<StrategyPtr> out{dataparallel::find_strategy("independent")};
  for (const auto& s : asked) {
    if (s->name != out.front()->name) out.push_back(s);
  }
  return out;
}

class Planner {
 public:
  explicit Planner(const ScaleFactors& f)
      : f_(f), ranks_(with_one_rank(f.ranks)), strategies_(with_control(f.strategies)) {}

  std::vector<ScalePoint> plan() {
    for (const auto& model : f_.models) {
      for (const std::size_t batch : f_.batches) {
        for (const int threads : f_.threads) {
          for (const auto cadence : f_.cadences) {
            curve({.model = model,
                   .batch_per_rank = batch,
                   .batch_global = batch,
                   .threads = threads,
                   .cadence = cadence,
                   .curve = curves_++});
          }
        }
      }
    }
    return std::move(points_);
  }

 private:
  void curve(const ScalePoint& base) {
    for (const int ranks : ranks_) {
      if (ranks == 1) {
        each_strategy(base);
        continue;
      }
      for (const Scaling s : f_.scalings) each_strategy(at(base, ranks, s));
    }
  }

  static ScalePoint at(ScalePoint p, int ranks, Scaling scaling) {
    const auto n = static_cast<std::size_t>(ranks);
    p.ranks = ranks;
    p.scaling = scaling;
    if (scaling == Scaling::weak) {
      p.batch_global = p.batch_per_rank * n;
    } else {
      if (p.batch_global % n != 0)
        p.impossible = fmt::format("batch {} does not divide by {} ranks", p.batch_global, ranks);
      p.batch_per_rank = std::max<std::size_t>(1, p.batch_global / n);
    }
    return p;
  }

  void each_strategy(ScalePoint p) {
    for (const auto& s : strategies_) {
      p.strategy = s;
      if (!s->communicates() || p.ranks == 1) {
        points_.push_back(p);
      } else {
        each_exchange(p);
      }
    }
  }

  void each_exchange(ScalePoint p) {
    for (const auto& a : f_.algorithms) {
      p.algorithm = a;
      for (const auto& codec : f_.codecs) {
        p.codec = codec;
        each_overlap(p);
      }
    }
  }

  void each_overlap(ScalePoint p) {
    for (const Overlap overlap : f_.overlaps) {
      p.overlap = overlap;
      for (const std::size_t bucket : f_.buckets) {
        p.bucket_bytes = bucket;
        each_transport(p);
      }
    }
  }

  void each_transport(ScalePoint p) {
    if (p.algorithm->is_vendor()) {  // the vendor chooses its own way
      points_.push_back(p);
      return;
    }
    for (const auto t : f_.transports) {
      p.transport = t;
      points_.push_back(p);
    }
  }

  const ScaleFactors& f_;
  std::vector<int> ranks_;
  std::vector<StrategyPtr> strategies_;
  std::vector<ScalePoint> points_;
  std::size_t curves_ = 0;
};

ScalePoint without_exchange(ScalePoint p) {
  p.algorithm = nullptr;
  p.codec = nullptr;
  p.overlap.reset();
  p.bucket_bytes.reset();
  p.transport.reset();
  return p;
}

std::string_view transport_name(dataparallel::TransportKind t, bool one_node) {
  using enum dataparallel::TransportKind;
  return runtime::name(t == automatic ? (one_node ? shm : hybrid) : t);
}

}  // namespace

std::string_view name(Scaling s) { return s == Scaling::weak ? "weak" : "strong"; }

ScalePoint baseline_of(ScalePoint p) {
  if (p.scaling == Scaling::strong) p.batch_per_rank = p.batch_global;
  p.batch_global = p.batch_per_rank;
  p.ranks = 1;
  p.scaling.reset();
  return without_exchange(p);
}

ScalePoint control_of(ScalePoint p) {
  p.strategy = dataparallel::find_strategy("independent");
  return without_exchange(p);
}

std::vector<ScalePoint> plan_scale(const ScaleFactors& f) { return Planner(f).plan(); }

core::Factors to_factors(const ScalePoint& p, const Session& session, const std::string& interconnect) {
  using core::Factor;
  const auto integer = [](auto n) { return static_cast<std::int64_t>(n); };
  core::Factors f;
  const int nodes = session.nodes(p.ranks);
  f[Factor::ranks] = integer(p.ranks);
  f[Factor::nodes] = integer(nodes);
  f[Factor::ranks_per_node] = integer(session.ranks_per_node(p.ranks));
  if (!interconnect.empty()) f[Factor::interconnect] = interconnect;
  f[Factor::model] = p.model;
  f[Factor::batch_per_rank] = integer(p.batch_per_rank);
  f[Factor::batch_global] = integer(p.batch_global);
  f[Factor::threads] = integer(p.threads);
  f[Factor::precision] = std::string("fp32");
  f[Factor::strategy] = p.strategy->name;
  f[Factor::device] = std::string("cpu");
  f[Factor::cadence] = std::string(name(p.cadence));
  f[Factor::reduction] = std::string("max");
  if (p.scaling) f[Factor::scaling] = std::string(name(*p.scaling));
  if (p.algorithm) {
    f[Factor::algorithm] = p.algorithm->name;
    f[Factor::codec] = p.codec ? p.codec->name : "none";
    f[Factor::op] = std::string("avg");
  }
  if (p.overlap) f[Factor::overlap] = std::string(name(*p.overlap));
  if (p.bucket_bytes) f[Factor::bucket_bytes] = integer(*p.bucket_bytes);
  if (p.transport) f[Factor::transport] = std::string(transport_name(*p.transport, nodes == 1));
  return f;
}

}  // namespace gradmeter::bench
