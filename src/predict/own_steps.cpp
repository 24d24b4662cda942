// SPDX-License-Identifier: Apache-2.0
#include "predict/own_steps.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <utility>

#include "compression/registry.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "core/statistics.hpp"
#include "dataparallel/assembly.hpp"
#include "dataparallel/fabric/simulation/world.hpp"
#include "model/registry.hpp"

namespace gradmeter::predict {
namespace {

using core::Factor;
using core::Metric;

/// The most ranks that are simulated, each as a thread with buffers of its own. Steps on more ranks are scaled from a
/// simulation of this many.
constexpr std::int64_t most_simulated = 16;
/// The least spread if all measured points are on one number of ranks.
constexpr double spread_of_one_rank_count = 0.3;
/// Rates at which a simulation begins; they are then scaled to the measured step of one rank.
constexpr double first_flops_per_s = 1e11, first_bytes_per_s = 1e10;

double or_zero(double value) { return value > 0 ? value : 0; }

std::string key_without(core::Factors f, std::span<const Factor> left_out) {
  for (const Factor factor : left_out) f[factor] = core::Value();
  return f.key();
}
constexpr std::array rank_factors{Factor::ranks,        Factor::nodes,   Factor::ranks_per_node, Factor::mapping,
                                  Factor::batch_global, Factor::scaling, Factor::placement};
constexpr std::array exchange_factors{Factor::ranks,        Factor::nodes,        Factor::ranks_per_node,
                                      Factor::mapping,      Factor::placement,    Factor::scaling,
                                      Factor::strategy,     Factor::algorithm,    Factor::codec,
                                      Factor::overlap,      Factor::bucket_bytes, Factor::transport,
                                      Factor::op,           Factor::gradients,    Factor::batch_per_rank,
                                      Factor::batch_global, Factor::buffers,      Factor::accum_dtype,
                                      Factor::cadence,      Factor::mesh,         Factor::tuned_table};

bool is_strong(const OwnStep& s) { return text_of(s.factors[Factor::scaling]) == "strong"; }

std::unique_ptr<model::Model> model_of(const OwnStep& s) {
  constexpr std::size_t digits_features = 784, digits_classes = 10;
  return model::make_model(s.model, {.features = digits_features, .classes = digits_classes});
}

/// The algorithm that is simulated in place of this one: the algorithm itself if it has a schedule, else ring.
allreduce::AlgorithmPtr schedule_for(const std::string& name) {
  if (!name.empty())
    if (auto a = allreduce::find_algorithm(name); a->has_schedule()) return a;
  return allreduce::find_algorithm("ring");
}

/// One worker's steps in virtual time; returns the mean time of a step [s].
double worker_steps(dataparallel::Fabric& fabric, const OwnStep& s, const compression::CodecChoicePtr& message_codec) {
  const auto strategy_choice = dataparallel::find_strategy(s.strategy);
  std::string optimizer = text_of(s.factors[Factor::optimizer]);
  // Null stands for sgd, and for all optimizers in rows from before the factor existed: the strategy's usual one is
  // likelier.
  if (optimizer.empty())
    optimizer = strategy_choice->info().optimizer.empty() ? "sgd" : strategy_choice->info().optimizer;
  const auto* bucket = s.factors[Factor::bucket_bytes].as<std::int64_t>();
  dataparallel::StrategyOptions options{
      .overlap = text_of(s.factors[Factor::overlap]) == "bucketed", .optimizer = optimizer, .codec = message_codec};
  if (bucket) options.bucket_bytes = static_cast<std::size_t>(*bucket);
  dataparallel::Assembly assembly(fabric, {.model = [&](auto&, auto&) { return model_of(s); },
                                           .seed = std::nullopt,
                                           .optimizer = optimizer,
                                           .strategy = strategy_choice,
                                           .strategy_options = options});
  auto& strategy = assembly.strategy();
  auto& worker = assembly.worker();
  strategy.begin(worker);
  double seconds = 0;
  if (fabric.rank() < strategy.workers(fabric.size())) {
    const auto batch = static_cast<std::size_t>(s.batch_per_rank);
    const auto inputs = fabric.device().allocate(core::Element::f32, batch * assembly.model().input_features());
    const auto labels = fabric.device().allocate(core::Element::i32, batch * assembly.model().labels());
    const std::size_t steps = 2 * std::max<std::size_t>(2, strategy.period());
    std::size_t number = 0;
    const auto run = [&](std::size_t count) {
      for (std::size_t i = 0; i < count; ++i) {
        assembly.probe().begin_step();
        (void)strategy.step(worker, {inputs.buffer, labels.buffer, assembly.model().labels()},
                            {.step_size = strategy_choice->info().step_size, .number = ++number});
        (void)assembly.probe().end_step();
      }
    };
    run(steps);
    const double begin = fabric.now();
    run(steps);
    seconds = (fabric.now() - begin) / static_cast<double>(steps);
    strategy.settle(worker);
  }
  strategy.end(worker);
  return seconds;
}

/// The slowest worker's mean step on so many ranks.
double run_world(const OwnStep& s, std::int64_t ranks, const dataparallel::SimMachine& m,
                 const compression::CodecChoicePtr& message_codec) {
  double slowest = 0;
  dataparallel::SimWorld(static_cast<int>(ranks), m).run([&](dataparallel::Fabric& f) {
    slowest = std::max(slowest, worker_steps(f, s, message_codec));
  });
  return slowest;
}

OwnStep without_exchange(OwnStep s) {
  s.strategy = "independent";
  s.algorithm.clear();
  s.codec.clear();
  return s;
}

std::vector<OwnStep> without_refused(std::vector<OwnStep> rows) {
  std::erase_if(rows, [](const OwnStep& s) { return !s.refusal().empty(); });
  return rows;
}

/// The reason why the algorithm of the step's collectives refuses its ranks; empty: it does not, or there are none.
std::string exchange_refusal(const OwnStep& s) {
  const auto pattern = dataparallel::find_strategy(s.strategy)->info().communication;
  if (!dataparallel::encodes_sums(pattern) && pattern != dataparallel::CommunicationPattern::sharded_buckets) return {};
  const auto algorithm = schedule_for(s.algorithm);
  const std::string why =
      algorithm->refusal({static_cast<std::uint32_t>(s.ranks), static_cast<std::uint32_t>(s.ranks_per_node)});
  return why.empty() ? "" : fmt::format("{} on {} ranks: {}", algorithm->name, s.ranks, why);
}

/// The exchanges of those rows of `scale` whose bytes are known, as measured collectives.
std::vector<MeasuredCollective> exchanges_of(std::span<const OwnStep> rows) {
  std::vector<MeasuredCollective> out;
  for (const OwnStep& s : rows) {
    if (s.strategy != "sync" || s.ranks < 2 || s.algorithm.empty() || !(s.comm_s > 0)) continue;
    if (text_of(s.factors[Factor::overlap]) != "none" || !s.codec.empty()) continue;
    MeasuredCollective c{.id = s.id,
                         .system = exchange_system(s.factors),
                         .algorithm = s.algorithm,
                         .shape = {static_cast<std::uint32_t>(s.ranks), static_cast<std::uint32_t>(s.ranks_per_node)},
                         .bytes = sizeof(float) * model_of(s)->element_count(),
                         .seconds = s.comm_s};
    if (s.ranks > s.ranks_per_node) c.message_bytes = std::size_t{1} << 20;
    out.push_back(std::move(c));
  }
  return out;
}

}  // namespace

std::string OwnStep::curve() const {
  if (!is_strong(*this)) return key_without(factors, rank_factors);
  core::Factors f = factors;
  f[Factor::batch_per_rank] = {};
  return fmt::format("{} {}", key_without(f, rank_factors), text_of(factors[Factor::batch_global]));
}
std::string OwnStep::refusal() const {
  return factors[Factor::mesh].is_null() ? "" : "a mesh of tensor or pipeline ranks is not predicted";
}
std::string OwnStep::computation() const { return key_without(factors, exchange_factors); }

std::vector<OwnStep> steps_of(std::span<const core::Run> runs, const std::string& file) {
  std::vector<OwnStep> out;
  for (const core::Run& run : runs)
    for (const core::Point& p : run.points) {
      if (p.experiment != "scale" || p.status != core::Status::ok) continue;
      const auto count = [&](Factor f) {
        const auto* n = p.factors[f].as<std::int64_t>();
        return n ? *n : std::int64_t{1};
      };
      const auto text = [&](Factor f) { return text_of(p.factors[f]); };
      const auto number = [&](Metric m) { return or_zero(p.metrics.number(m)); };
      out.push_back({.id = fmt::format("{}: {}", file, p.factors.key()),
                     .factors = p.factors,
                     .ranks = count(Factor::ranks),
                     .ranks_per_node = count(Factor::ranks_per_node),
                     .batch_per_rank = count(Factor::batch_per_rank),
                     .model = text(Factor::model),
                     .strategy = text(Factor::strategy),
                     .algorithm = text(Factor::algorithm),
                     .codec = text(Factor::codec) == "none" ? "" : text(Factor::codec),
                     .step_s = number(Metric::time_s),
                     .compute_s = number(Metric::compute_s),
                     .comm_s = number(Metric::comm_s),
                     .encode_s = number(Metric::encode_s),
                     .decode_s = number(Metric::decode_s),
                     .noise = noise_of(p.metrics)});
    }
  return out;
}

OwnStep on_ranks(const OwnStep& s, std::int64_t ranks) {
  OwnStep out = s;
  out.id = fmt::format("{} ranks", ranks);
  out.ranks = ranks;
  out.ranks_per_node = std::min(ranks, s.ranks_per_node);
  const auto* global_batch = s.factors[Factor::batch_global].as<std::int64_t>();
  if (is_strong(s) && global_batch) out.batch_per_rank = std::max<std::int64_t>(1, *global_batch / ranks);
  out.factors[Factor::ranks] = ranks;
  out.factors[Factor::nodes] = (ranks + out.ranks_per_node - 1) / out.ranks_per_node;
  out.factors[Factor::ranks_per_node] = out.ranks_per_node;
  out.factors[Factor::mapping] = core::Value();
  out.factors[Factor::batch_per_rank] = out.batch_per_rank;
  // Ranks that are servers alone have no part of the batch.
  const std::int64_t workers = global_batch && s.batch_per_rank > 0 && !is_strong(s)
                                   ? ranks - (s.ranks - *global_batch / s.batch_per_rank)
                                   : ranks;
  if (!is_strong(s)) out.factors[Factor::batch_global] = std::max<std::int64_t>(1, workers) * out.batch_per_rank;
  out.step_s = out.compute_s = out.comm_s = 0;
  return out;
}

OwnStepCalibration::OwnStepCalibration(std::vector<OwnStep> rows, std::vector<MeasuredCollective> collectives,
                                       OwnStepOptions options)
    : OwnStepCalibration(std::move(rows), std::move(collectives), options, true) {}

OwnStepCalibration::OwnStepCalibration(std::vector<OwnStep> rows, std::vector<MeasuredCollective> collectives,
                                       OwnStepOptions options, bool with_spread)
    : rows_(without_refused(std::move(rows))),
      measured_collectives_(std::move(collectives)),
      collectives_(measured_collectives_.empty() ? exchanges_of(rows_) : measured_collectives_),
      options_(options),
      spread_(spread_of_one_rank_count) {
  for (const OwnStep& s : rows_) most_ranks_ = std::max(most_ranks_, s.ranks);
  if (!with_spread) return;
  // Rows are left out by their number of ranks, or by whole curves if there is one number of ranks only. A curve that
  // is left out as a whole is predicted by links and virtual time alone.
  std::set<std::int64_t> rank_counts;
  std::set<std::string> curves;
  for (const OwnStep& s : rows_)
    if (s.ranks > 1) rank_counts.insert(s.ranks), curves.insert(s.curve());
  const bool by_ranks = rank_counts.size() > 1;
  if (!by_ranks && curves.size() < 2) return;
  std::vector<double> log_errors;
  const auto leave_out = [&](const auto& is_left_out) {
    std::vector<OwnStep> kept;
    for (const OwnStep& s : rows_)
      if (!is_left_out(s)) kept.push_back(s);
    const OwnStepCalibration others(std::move(kept), measured_collectives_, options_, false);
    for (const OwnStep& s : rows_) {
      if (!is_left_out(s) || s.strategy == "independent") continue;
      if (const auto p = others.predict(s).prediction)
        log_errors.push_back(std::abs(std::log(p->step.seconds / s.step_s)));
    }
  };
  if (by_ranks) {
    for (const std::int64_t n : rank_counts) leave_out([n](const OwnStep& s) { return s.ranks == n; });
  } else {
    for (const std::string& c : curves) leave_out([&](const OwnStep& s) { return s.ranks > 1 && s.curve() == c; });
  }
  if (log_errors.empty()) return;
  // Curves on one number of ranks do not say how the time grows with the ranks.
  spread_ = std::max(by_ranks ? 0.0 : spread_of_one_rank_count, spread_of(std::move(log_errors)));
}

/// The number of ranks that share a core in turn; at least 1.
double OwnStepCalibration::ranks_per_core(std::int64_t ranks) const {
  const double cores = static_cast<double>(options_.shared_cores);
  return cores > 0 ? std::max(1.0, static_cast<double>(ranks) / cores) : 1;
}

/// The factor by which ranks slow each other down without any exchange, even if each has a core of its own.
double OwnStepCalibration::slowdown(const OwnStep& target, double alone_s) const {
  if (target.ranks == 1) return 1;
  const OwnStep* nearest = nullptr;
  for (const OwnStep& r : rows_) {
    if (r.strategy != "independent" || r.ranks < 2 || r.computation() != target.computation() ||
        r.batch_per_rank != target.batch_per_rank)
      continue;
    if (r.ranks_per_node != target.ranks_per_node && r.ranks != target.ranks) continue;
    const auto distance = [&](const OwnStep& x) { return std::abs(x.ranks - target.ranks); };
    if (!nearest || distance(r) < distance(*nearest)) nearest = &r;
  }
  return nearest ? std::max(1.0, nearest->step_s / alone_s) / ranks_per_core(nearest->ranks) : 1;
}

std::optional<core::Machine> OwnStepCalibration::machine_for(const OwnStep& target) const {
  const auto node = static_cast<std::uint32_t>(target.ranks > target.ranks_per_node ? target.ranks_per_node : 0);
  std::optional<core::Machine> fitted = collectives_.machine(exchange_system(target.factors), node);
  if (!fitted) fitted = collectives_.machine_with_most_rows(node);
  if (!fitted) return std::nullopt;
  core::Machine& m = *fitted;
  for (const auto& [name, rates] : collectives_.codec_rates()) m.codecs[name] = rates;
  for (const OwnStep& r : rows_) {
    if (r.codec.empty() || !(r.encode_s > 0) || !(r.decode_s > 0)) continue;
    const auto codec = compression::find_codec(r.codec);
    if (!codec || m.codecs.contains(codec->info->name)) continue;
    const double bytes = sizeof(float) * static_cast<double>(model_of(r)->element_count());
    const double p = static_cast<double>(r.ranks);
    const double decode = bytes * 2 * (p - 1) / p / r.decode_s;
    m.codecs[std::string(codec->info->name)] = {
        .encode = bytes * (1 + 1 / p) / r.encode_s, .decode = decode, .add = decode};
  }
  return fitted;
}

/// alone_on_core_s: time of a step's computation on a core that no other rank uses [s].
std::optional<OwnStepCalibration::Modelled> OwnStepCalibration::simulated(const OwnStep& target,
                                                                          const core::Machine& links,
                                                                          double alone_on_core_s,
                                                                          std::string& reason) const {
  try {
    dataparallel::SimMachine m{.machine = links, .time_only = true};
    m.machine.flops_per_s = first_flops_per_s;
    m.machine.memory_bytes_per_s = first_bytes_per_s;
    m.message_bytes = target.ranks > target.ranks_per_node ? std::size_t{1} << 20 : std::size_t{256} << 10;
    const double unscaled_step_s = run_world(without_exchange(target), 1, m, {});
    m.machine.flops_per_s *= unscaled_step_s / alone_on_core_s;
    m.machine.memory_bytes_per_s *= unscaled_step_s / alone_on_core_s;
    m.shared_cores = static_cast<std::size_t>(options_.shared_cores);
    m.algorithm = schedule_for(target.algorithm);
    const auto codec = compression::find_codec(target.codec.empty() ? "none" : target.codec);
    const bool encodes_in_sums =
        dataparallel::encodes_sums(dataparallel::find_strategy(target.strategy)->info().communication);
    if (encodes_in_sums) m.codec = codec;
    return Modelled{.step = run_world(target, target.ranks, m, encodes_in_sums ? nullptr : codec),
                    .computing = alone_on_core_s * ranks_per_core(target.ranks)};
  } catch (const std::exception& e) {
    reason = e.what();
    return std::nullopt;
  }
}

std::optional<OwnStepCalibration::Modelled> OwnStepCalibration::modelled(const OwnStep& target,
                                                                         std::string& reason) const {
  const OwnStep* base = nullptr;
  for (const OwnStep& r : rows_) {
    if (r.ranks != 1 || r.computation() != target.computation()) continue;
    const auto likeness = [&](const OwnStep& x) {
      return 2 * (x.batch_per_rank == target.batch_per_rank) + (x.strategy == "independent");
    };
    if (!base || likeness(r) > likeness(*base)) base = &r;
  }
  if (!base) {
    reason = "no row of one rank computes the same";
    return std::nullopt;
  }
  const double batch_ratio = static_cast<double>(target.batch_per_rank) / static_cast<double>(base->batch_per_rank);
  const double alone_s = base->step_s * batch_ratio, core_s = alone_s * slowdown(target, alone_s);
  const double computing_s = core_s * ranks_per_core(target.ranks);
  if (target.ranks == 1 || target.strategy == "independent")
    return Modelled{computing_s, alone_s, computing_s, base->noise.value_or(noise_without_interval)};
  const std::int64_t simulated_ranks = std::min(target.ranks, most_simulated);
  const OwnStep on_simulated = on_ranks(target, simulated_ranks);
  const auto links = machine_for(target), simulated_links = machine_for(on_simulated);
  if (!links || !simulated_links) {
    reason =
        "no exchange was measured from which links follow; calibrate on points of allreduce too, or of scale with "
        "strategy sync, overlap none and no codec";
    return std::nullopt;
  }
  if (target.ranks > simulated_ranks)
    if (reason = exchange_refusal(target); !reason.empty()) return std::nullopt;
  const std::string key = fmt::format("{} {} {} {}", target.curve(), simulated_ranks, target.ranks_per_node, core_s);
  const auto [at, is_new] = simulated_.try_emplace(key);
  if (is_new) at->second = simulated(on_simulated, *simulated_links, core_s, reason);
  if (!at->second) {
    if (reason.empty()) reason = "its exchange is not simulated";
    return std::nullopt;
  }
  Modelled out = *at->second;
  out.alone = alone_s;
  if (simulated_ranks == target.ranks) return out;
  // Beyond the simulated ranks the exchange grows as the time that the strategy forecasts, or as that of its
  // collective.
  const double exchange = std::max(0.0, out.step - out.computing);
  out.computing = computing_s;
  const auto exchange_seconds = [&](std::int64_t ranks, const core::Machine& m) {
    const auto choice = dataparallel::find_strategy(target.strategy);
    const auto model = model_of(target);
    const auto pattern = choice->info().communication;
    if (dataparallel::encodes_sums(pattern) || pattern == dataparallel::CommunicationPattern::sharded_buckets) {
      return collective_seconds(
          {.algorithm = schedule_for(target.algorithm),
           .shape = {static_cast<std::uint32_t>(ranks), static_cast<std::uint32_t>(target.ranks_per_node)},
           .bytes = sizeof(float) * model->element_count(),
           .message_bytes = std::size_t{1} << 20},
          m);
    }
    return choice->make({})
        ->predict({.ranks = static_cast<std::uint32_t>(ranks),
                   .tensors = model->tensors(),
                   .elements = model->element_count(),
                   .ranks_per_node = static_cast<std::uint32_t>(target.ranks_per_node),
                   .machine = m})
        .seconds;
  };
  const double simulated_exchange_s = exchange_seconds(simulated_ranks, *simulated_links);
  out.step =
      out.computing +
      exchange *
          (simulated_exchange_s > 0 ? std::max(1.0, exchange_seconds(target.ranks, *links) / simulated_exchange_s) : 1);
  return out;
}

/// The correction by the measured steps of the same curve; those on the nearest numbers of ranks weigh most.
Correction OwnStepCalibration::correction(const OwnStep& target) const {
  constexpr double shrinkage = 0.25;  // weight of no error at all
  double log_error = 0, squares = 0, weight = 0;
  for (const OwnStep& r : rows_) {
    if (r.ranks < 2 || r.curve() != target.curve()) continue;
    std::string reason;
    const auto m = modelled(r, reason);
    if (!m) continue;
    const double row_weight =
        std::exp(-std::abs(std::log2(static_cast<double>(r.ranks) / static_cast<double>(target.ranks))));
    log_error += row_weight * std::log(r.step_s / m->step);
    squares += row_weight * std::pow(r.noise.value_or(noise_without_interval), 2);
    weight += row_weight;
  }
  return {std::exp(log_error / (weight + shrinkage)), weight > 0 ? std::sqrt(squares / weight) : 0};
}

OwnPredictionOrReason OwnStepCalibration::predict(const OwnStep& target) const {
  std::string reason = target.refusal();
  if (!reason.empty()) return {{}, reason};
  const auto m = modelled(target, reason);
  if (!m) return {{}, reason};
  OwnPrediction p;
  const Correction corrected = target.ranks > 1 ? correction(target) : Correction{.noise = m->noise};
  const double rank_ratio = static_cast<double>(target.ranks) / static_cast<double>(most_ranks_);
  p.step.seconds = m->step * corrected.factor;
  set_interval(p.step, spread_with(target.ranks > 1 ? spread_ : least_spread, corrected, rank_ratio), rank_ratio);
  p.compute_s = std::min(m->alone, p.step.seconds);
  p.contention_s = std::clamp(m->computing - m->alone, 0.0, p.step.seconds - p.compute_s);
  p.exposed_s = p.step.seconds - p.compute_s - p.contention_s;
  p.step.parts = {.compute = p.compute_s + p.contention_s, .data_exchange = p.exposed_s};
  p.step.largest_part = p.exposed_s > p.compute_s + p.contention_s ? "wire"
                        : p.contention_s > p.compute_s             ? "contention"
                                                                   : "compute";
  return {p, {}};
}

std::optional<double> OwnStepCalibration::linear_scaling_seconds(const OwnStep& target) const {
  const OwnStep* fewest = nullptr;
  for (const OwnStep& r : rows_)
    if (r.ranks > 1 && r.curve() == target.curve() && (!fewest || r.ranks < fewest->ranks)) fewest = &r;
  if (!fewest) return std::nullopt;
  return fewest->step_s * static_cast<double>(target.batch_per_rank) / static_cast<double>(fewest->batch_per_rank);
}

Score score(const OwnStepCalibration& calibration, std::span<const OwnStep> rows, const std::string& file) {
  std::vector<JudgedRow> judged;
  for (const OwnStep& s : rows) {
    auto [p, reason] = calibration.predict(s);
    judged.push_back({.id = s.id,
                      .measured_s = s.step_s,
                      .prediction = p ? std::optional(p->step) : std::nullopt,
                      .reason = std::move(reason),
                      .constant_flops_s = {},
                      .linear_s = calibration.linear_scaling_seconds(s)});
  }
  return score_of(judged, file);
}

}  // namespace gradmeter::predict
