// SPDX-License-Identifier: Apache-2.0
#include "bench/infer/infer.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <span>
#include <tuple>

#include "bench/engine/sweep.hpp"
#include "bench/infer/measure.hpp"
#include "bench/train/training.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "core/random.hpp"
#include "kernels/call_check.hpp"
#include "kernels/host/library.hpp"
#include "kernels/host/threads.hpp"
#include "model/network/inference.hpp"
#include "runtime/clock.hpp"

namespace gradmeter::bench {
namespace {
bool is_emulated(const InferFactors& f, kernels::Precision p) {
  return kernels::info(p).emulated && (f.on_host || kernels::info(p).native_bytes == 0);
}
}  // namespace

std::vector<InferPoint> plan_infer(const InferFactors& f) {
  std::vector<InferPoint> out;
  std::size_t group = 0;
  std::set<std::tuple<std::string, std::size_t, kernels::Precision>> seen;
  const auto add = [&](const std::string& model, std::size_t batch) {
    for (const auto p : f.precisions)
      if (is_emulated(f, p) == (batch == 0) && seen.emplace(model, batch, p).second)
        out.push_back({.model = model, .batch = batch, .precision = p, .group = group});
    ++group;
  };
  for (const std::string& model : f.models) {
    for (const std::size_t batch : f.batches) add(model, batch);
    add(model, 0);
  }
  return out;
}

core::Factors to_factors(const InferPoint& p, const NodeMap& map, int threads, const std::string& device) {
  using core::Factor;
  core::Factors f;
  fill_ranks(map, f);
  f[Factor::threads] = std::int64_t{threads};
  f[Factor::device] = device;
  f[Factor::model] = p.model;
  f[Factor::precision] = std::string(kernels::name(p.precision));
  if (p.is_timed()) f[Factor::batch_per_rank] = static_cast<std::int64_t>(p.batch);
  return f;
}

namespace {

/// Trains `trained` on this rank alone.
void train_alone(Session& session, const runtime::Communicator& alone, const model::DataSplit& data,
                 const TrainOnceOptions& o, const TrainingProgress& progress, TrainedModel& trained) {
  constexpr std::size_t steps_between_reports = 16, steps_between_verified = 64;
  Training training(session, alone, data, o.config);
  const auto same_place = [](const model::Tensor& a, const model::Tensor& b) {
    return a.shape == b.shape && a.offset == b.offset;
  };
  if (!std::ranges::equal(training.model().tensors(), trained.network->tensors(), same_place))
    throw std::logic_error(fmt::format("{}: tensors lie elsewhere for inference", trained.network->name()));
  const std::size_t steps = training.steps_per_epoch() * o.epochs;
  for (std::size_t step = 0; step < steps; ++step) {
    const bool is_verified = step % steps_between_verified == 0 || step + 1 == steps;
    if (is_verified) training.verify_next();
    const double loss = training.step(step).get().mean_loss();
    training.take_records();  // drops the records, which nobody reads
    if (is_verified)
      if (const auto fault = training.take_fault(); !fault.empty()) throw core::WrongResult(fault);
    if (!std::isfinite(loss))
      throw core::WrongResult(fmt::format("{}: the loss is {} at step {}: the step size {} is too large",
                                          trained.network->name(), loss, step, o.config.step_size));
    if (step % steps_between_reports != 0) continue;
    progress(step, steps, loss);
    session.stop_if_interrupted(alone);
  }
  std::ranges::copy(training.weights(), trained.weights.begin());
  training.finish();
}

/// Runs `work` on rank 0 while the other ranks sleep. If a signal or a UsageError ends it there, all ranks throw the
/// same.
void on_rank_0(Session& session, const runtime::Communicator& c,
               const std::function<void(const runtime::Communicator&)>& work) {
  const auto alone = c.split(c.rank() == 0 ? 0 : -1, 0);
  int signal = 0;
  std::string refusal;
  if (!alone.is_null()) {
    try {
      work(alone);
    } catch (const core::Interrupted& e) {
      signal = e.signal();
    } catch (const core::UsageError& e) {
      refusal = e.what();
    }
  }
  {
    std::optional<runtime::Pause> sitting_out;
    if (alone.is_null()) sitting_out.emplace(session.activity());
    c.sleeping_barrier();
  }
  signal = c.broadcast_value(signal);
  if (signal != 0) throw core::Interrupted(signal);
  refusal = c.broadcast_text(refusal);
  if (!refusal.empty()) throw core::UsageError(refusal);
}

void calibrate_on(const model::Dataset& set, std::size_t samples, TrainedModel& trained) {
  runtime::HostQueue queue;
  std::vector<std::uint64_t> indices(std::min(samples, set.size()));
  std::iota(indices.begin(), indices.end(), 0);
  for (std::size_t first = 0; first < indices.size(); first += validation_piece) {
    const auto piece = std::span(indices).subspan(first, std::min(validation_piece, indices.size() - first));
    std::vector<float> inputs(piece.size() * set.features());
    std::vector<std::int32_t> labels(piece.size() * set.labels());
    model::gather(set, piece, inputs, labels);
    model::calibrate(*trained.network, queue, trained.buffers(), {inputs, labels, set.labels()}, trained.ranges);
  }
}

}  // namespace

TrainedModel train_once(Session& session, const runtime::Communicator& c, const model::DataSplit& data,
                        const TrainOnceOptions& o, const TrainingProgress& progress) {
  kernels::set_compute_threads(o.config.threads);
  const model::Dataset& set = *data.train;
  TrainedModel trained{
      .network = model::make_model(o.config.model,
                                   {.features = set.features(), .classes = set.classes(), .labels = set.labels()}),
      .weights = {},
      .ranges = {}};
  trained.weights.resize(trained.network->element_count());
  on_rank_0(session, c, [&](const auto& alone) { train_alone(session, alone, data, o, progress, trained); });
  c.broadcast(std::span<float>(trained.weights));
  calibrate_on(set, o.calibration_samples, trained);
  return trained;
}

namespace {

using core::Status;
using kernels::Precision;

constexpr core::Seconds usual_time{1};

struct InferEntry : SweepPoint {
  InferEntry(SweepPoint planned, InferPoint p) : SweepPoint(std::move(planned)), point(std::move(p)) {}
  InferPoint point;
};

std::unique_ptr<model::Network> network_of(const std::string& name, const DataFacts& d) {
  return model::make_model(name, {.features = d.features, .classes = d.classes, .labels = d.labels});
}

/// The kernel problems of one pass of a layer table.
std::vector<model::RepeatedProblem> table_problems(const InferPoint& p, const model::Network& table,
                                                   const runtime::Device& device) {
  return model::inference_problems(table.forward_problems(p.batch), p.precision, device);
}

class InferSweep final : public Experiment {
 public:
  InferSweep(Session& s, const InferOptions& o)
      : session_(s), c_(s.world()), options_(o), queue_(s.device().make_queue()) {
    kernels::set_compute_threads(o.training.config.threads);
    data_ = load_data(c_, o.data);
  }

  std::vector<SweepPoint*> plan(const SweepRows& rows) override {
    for (const InferPoint& p : plan_infer(options_.factors)) {
      const auto factors =
          to_factors(p, session_.map(), options_.training.config.threads, options_.training.config.device);
      InferEntry& entry = entries_.emplace_back(rows.point("infer", factors, p.group), p);
      const auto why = refused_anywhere(c_, infer_refusal(p, facts_of(data_), session_.device()));
      if (!why.empty()) refuse(entry.row, Status::unsupported, why);
    }
    return pointers_to(entries_);
  }

  void measure(std::size_t group, SweepRows& rows) override {
    std::vector<InferEntry*> due;
    for (InferEntry& entry : entries_)
      if (entry.group == group && entry.is_due()) due.push_back(&entry);
    use_model(due.front()->point.model, rows);
    std::vector<TimedEntry> timed;
    for (InferEntry* entry : due) {
      rows.progress(fmt::format("{} {}", entry->point.model, kernels::name(entry->point.precision)));
      const auto why = refusal_of([&] { check(*entry); });  // the same on all ranks
      if (!why.empty()) refuse(entry->row, Status::failed, why);
      if (entry->row.status == Status::ok && entry->point.is_timed()) prepare(*entry, rows, timed);
    }
    time_in_turns(timed);
    for (const TimedEntry& t : timed) compare(*t.entry, rows);
  }

 private:
  struct Pass {
    TimedPass timed;
    std::string implementation, left_to_host;
  };
  /// Validation samples by which timed passes are judged, and the logits that training's forward pass computes for
  /// them.
  struct Reference {
    kernels::AlignedVector<float> inputs, logits;
    core::Random draws{core::unpredictable_seed(), 0};
    std::uint64_t drawn = 0;                              ///< number of draws so far
    std::size_t first = 0;                                ///< the first sample of the batch that the passes get now
    runtime::ConstBuffer result = runtime::empty_buffer;  ///< the logits of the last pass, on the device
    std::string fault = {};  ///< the fault of an operation of training's forward pass; empty: none
  };
  /// The number of samples kept beyond one batch, so that batches can begin at different samples.
  static constexpr std::size_t extra_samples = 64;
  struct TimedEntry {
    InferEntry* entry;
    std::unique_ptr<LatencyBenchmark> benchmark;
  };

  /// Trains the model of this name, unless it is the current one already, or a layer table, which cannot be trained.
  void use_model(const std::string& name, SweepRows& rows) {
    if (name == current_) return;
    current_ = name;
    weights_ = {};
    trained_ = {};
    accuracies_.clear();
    if (!network_of(name, facts_of(data_))->learns()) return;
    TrainOnceOptions o = options_.training;
    o.config.model = name;
    std::size_t last_step = 0;
    // fastest: the shortest mean time of a step between two reports, which other programs disturbed least
    double last_report_s = 0, fastest = std::numeric_limits<double>::infinity();
    trained_ = train_once(session_, c_, data_, o, [&](std::size_t step, std::size_t steps, double loss) {
      rows.progress(fmt::format("{} trains: step {} of {}, loss {:.2f}", name, step, steps, loss));
      const double now = runtime::host_clock();
      if (step > last_step) fastest = std::min(fastest, (now - last_report_s) / static_cast<double>(step - last_step));
      last_step = step, last_report_s = now;
      if (step == 0) return;
      rows.foresee_on_first_peer({fastest * static_cast<double>(steps - step)},
                                 fmt::format("{} trains {} steps before it is measured", name, steps));
    });
    weights_ = copy_to_device(trained_.weights);
  }

  void check(InferEntry& entry) {
    if (!trained_.network) return;
    const runtime::Computing note(session_.activity(), "validation");
    const Precision p = entry.point.precision;
    if (!accuracies_.contains(p))
      accuracies_[p] = measure_accuracy(session_, c_, trained_, weights_.buffer, p, *data_.validation);
    fill_accuracy(entry.point, accuracies_[p], entry.row);
  }

  void prepare(InferEntry& entry, SweepRows& rows, std::vector<TimedEntry>& timed) {
    if (!trained_.network && lacks_memory(entry)) return;
    Pass pass;
    Rebuilder rebuilder;
    const runtime::Computing note(session_.activity(), "inference made ready");
    const auto why = refused_anywhere(c_, refusal_of([&] { rebuilder.build([&] { pass = pass_of(entry.point); }); }));
    if (!why.empty()) return refuse(entry.row, Status::failed, why);
    if (!pass.left_to_host.empty())
      return refuse(entry.row, Status::unsupported,
                    fmt::format("{} leaves a layer to the host ({}), whose time is not its own",
                                session_.device().name(), pass.left_to_host));
    core::StoppingRule rule = options_.rule;
    rule.budget = rows.time_for_point(usual_time);
    entry.row.metrics[core::Metric::implementation] = c_.broadcast_text(pass.implementation);
    timed.push_back({&entry, std::make_unique<LatencyBenchmark>(
                                 session_, c_, std::move(pass.timed),
                                 [this, &entry] { return pass_of(entry.point).timed; }, rebuilder, rule)});
  }

  bool lacks_memory(InferEntry& entry) const {
    if (!on_host()) return false;  // on a device, the allocation that fails says so in one line
    const auto table = network_of(entry.point.model, facts_of(data_));
    const std::size_t needs = model::forward_operations_bytes(table_problems(entry.point, *table, session_.device()),
                                                              table->element_count()) *
                              static_cast<std::size_t>(session_.ranks_per_node(c_.size()));
    if (needs <= session_.free_memory_per_node()) return false;
    refuse(entry.row, Status::skipped, short_of_memory(needs, session_.free_memory_per_node()));
    return true;
  }

  Pass pass_of(const InferPoint& p) {
    if (!trained_.network) {
      const auto seed = options_.training.config.seed + (static_cast<std::uint64_t>(c_.rank()) << 40U);
      auto operations = std::make_shared<model::ForwardOperations>(
          table_problems(p, *network_of(p.model, facts_of(data_)), session_.device()), *queue_, seed);
      return {table_pass(operations), operations->implementation(), operations->left_to_host()};
    }
    auto inference = std::make_shared<model::Inference>(*trained_.network, weights_.buffer, p.batch, p.precision,
                                                        trained_.ranges, *queue_);
    return {network_pass(p, inference), inference->implementation(), inference->left_to_host()};
  }

  /// A layer table has no labels to be judged by, so its operations are checked one by one.
  TimedPass table_pass(const std::shared_ptr<model::ForwardOperations>& all) {
    TimedPass timed{.run = [this, all] { all->run(*queue_), queue_->synchronise(); }};
    timed.check = [run = timed.run] {
      const kernels::CallCheck calls(core::unpredictable_seed());
      run();
      return calls.fault().empty() ? "" : fmt::format("an operation between timed passes is wrong: {}", calls.fault());
    };
    return timed;
  }

  TimedPass network_pass(const InferPoint& p, const std::shared_ptr<model::Inference>& inference) {
    auto reference = std::make_shared<Reference>(reference_logits(p.batch + extra_samples));
    const std::size_t features = data_.validation->features();
    const std::size_t outputs = reference->logits.size() / (p.batch + extra_samples);
    const runtime::OwnedBuffer inputs = session_.device().allocate(core::Element::f32, p.batch * features);
    const auto renew = [this, reference, inputs, features, batch = p.batch] {
      reference->first = static_cast<std::size_t>(reference->draws.below(reference->drawn++, extra_samples + 1));
      queue_->copy("upload", std::span(reference->inputs).subspan(reference->first * features, batch * features),
                   inputs.buffer);
      queue_->synchronise();
    };
    renew();
    return {.run =
                [this, reference, inference, inputs] {
                  reference->result = inference->run(*queue_, inputs.buffer);
                  queue_->synchronise();
                },
            .renew = renew,
            .judge =
                [this, reference, outputs, p] {
                  if (!reference->fault.empty()) return reference->fault;
                  std::vector<float> logits(reference->result.count());
                  queue_->copy("download", reference->result, logits);
                  queue_->synchronise();
                  return logits_fault(p.precision, logits,
                                      std::span(reference->logits).subspan(reference->first * outputs, logits.size()));
                }};
  }

  /// The logits of the first validation samples, which repeat from the first where there are fewer.
  Reference reference_logits(std::size_t samples) {
    const model::Dataset& set = *data_.validation;
    Reference reference{.inputs = kernels::AlignedVector<float>(samples * set.features()), .logits = {}};
    std::vector<std::uint64_t> indices(samples);
    for (std::size_t i = 0; i < samples; ++i) indices[i] = i % set.size();
    std::vector<std::int32_t> labels(samples * set.labels());
    model::gather(set, indices, reference.inputs, labels);
    const kernels::CallCheck calls(core::unpredictable_seed());
    runtime::HostQueue host;
    const auto outputs =
        trained_.network->layer_outputs(host, trained_.buffers(), {reference.inputs, labels, set.labels()});
    reference.fault = calls.fault();
    const auto logits = outputs.back().values<float>();
    reference.logits.assign(logits.begin(), logits.end());
    return reference;
  }

  runtime::OwnedBuffer copy_to_device(const kernels::AlignedVector<float>& from) const {
    runtime::OwnedBuffer to = session_.device().allocate(core::Element::f32, from.size());
    queue_->copy("upload", from, to.buffer);
    queue_->synchronise();
    return to;
  }
  bool on_host() const { return session_.on_host(); }

  void time_in_turns(std::vector<TimedEntry>& timed) {
    std::vector<Turn> turns;
    for (TimedEntry& t : timed) {
      t.benchmark->warm_up();
      turns.emplace_back([&t] { return t.benchmark->turn(); });
    }
    if (!turns.empty()) take_turns(session_.run_seed() + timed.front().entry->group, turns);
    for (TimedEntry& t : timed) {
      fill_latency(
          t.entry->point, t.benchmark->findings(), c_.size(), [this](int rank) { return session_.host_of(rank); },
          t.entry->row);
      if (t.entry->row.status != Status::ok) continue;
      if (on_host()) t.entry->row.reason = kernels::how_multiplied(t.entry->point.precision);
      t.entry->row.metrics[core::Metric::oversubscribed] =
          session_.ranks_per_node(c_.size()) * options_.training.config.threads > session_.cores_per_node();
    }
  }

  /// Fills in the speedup over the group's point in fp32, which this run or an earlier one has measured.
  void compare(InferEntry& entry, const SweepRows& rows) const {
    for (const InferEntry& other : entries_) {
      if (other.group != entry.group || other.point.precision != Precision::fp32) continue;
      const core::Point* const fp32 = other.kept ? rows.finished(other.row.factors) : &other.row;
      if (fp32->status == Status::ok) fill_speedup(*fp32, entry.row);
    }
  }

  Session& session_;
  const runtime::Communicator& c_;
  const InferOptions& options_;
  model::DataSplit data_;
  std::vector<InferEntry> entries_;
  std::unique_ptr<runtime::Queue> queue_;
  std::string current_;           ///< name of the model whose points are measured
  TrainedModel trained_;          ///< the trained model `current_`; its network is null for a layer table
  runtime::OwnedBuffer weights_;  ///< the weights of `trained_` on the device
  std::map<Precision, PrecisionAccuracy> accuracies_;  ///< the accuracy of `current_` in each precision
};

}  // namespace

std::string infer_refusal(const InferPoint& p, const DataFacts& d, const runtime::Device& device) {
  const auto network = network_of(p.model, d);
  if (network->learns()) return model::inference_refusal(*network, p.precision);
  if (!p.is_timed())
    return fmt::format("a layer table does not learn, and {} is emulated: there is neither accuracy nor time",
                       kernels::name(p.precision));
  for (const auto& r : table_problems(p, *network, device))
    if (auto why = kernels::op_refusal(r.problem, device); !why.empty()) return why;
  return {};
}

std::size_t run_infer(Session& s, const InferOptions& o, const FinishedRows& finished, const RowListener& listener) {
  InferSweep sweep(s, o);
  return run_sweep(sweep, peers_of(s, s.world()), finished, listener, o.time_budget);
}

}  // namespace gradmeter::bench
