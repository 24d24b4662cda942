// SPDX-License-Identifier: Apache-2.0
#include "bench/train/training.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "core/error.hpp"
#include "core/format.hpp"
#include "core/random.hpp"
#include "kernels/call_check.hpp"
#include "kernels/host/threads.hpp"
#include "runtime/clock.hpp"
#include "runtime/communicator.hpp"

namespace gradmeter::bench {
namespace {

using dataparallel::everybody;
using dataparallel::Forecast;
using dataparallel::Observations;

int helper_threads(const TrainingConfig& config, const Layout& layout) {
  const bool has_background_task = uses_ports(config.strategy->info().communication);
  return (needs_progress_thread(config, layout) ? 1 : 0) + (has_background_task ? 1 : 0);
}

runtime::SpinPolicy spin_policy(const Session& s, const runtime::Communicator& comm, const TrainingConfig& config,
                                const Layout& layout) {
  const int helpers = helper_threads(config, layout);
  const int runnable = s.ranks_per_node(comm.size()) * (config.threads + helpers);
  auto p = runtime::spin_policy_for(runnable, s.cores_per_node());
  // A progress thread without a core of its own slows the computation that should hide the exchange.
  if (helpers > 0 && runnable > s.cores_per_node()) p.yields = 10;
  return p;
}

/// This rank's layout. Errors: UsageError with the reason if the ranks cannot train with this configuration.
Layout accepted(const TrainingConfig& config, const DataFacts& facts, const runtime::Communicator& comm,
                std::span<const int> nodes) {
  const NodeMap map{.node_of = {nodes.begin(), nodes.end()}, .fake = false, .ranks_as = comm.ranks_as()};
  if (const auto why = refusal(config, facts, map); !why.empty()) throw core::UsageError(why);
  return layout_of(config, comm.size(), comm.rank());
}

struct TrainingQueues {
  runtime::Queue &computation, &exchange;
};

dataparallel::RankFabricOptions options_of(const Session& s, const runtime::Communicator& comm,
                                           const TrainingConfig& config, const Layout& layout, const DataFacts& facts,
                                           const TrainingQueues& queues) {
  auto o = fabric_options(config, layout, facts);
  const bool on_device = &queues.computation.device() != &runtime::host_device();
  if (on_device) o.queue = &queues.computation;
  if (on_device && config.algorithm && config.algorithm->works_on_devices()) o.exchange.queue = &queues.exchange;
  o.spin_policy = spin_policy(s, comm, config, layout);
  // A worker may spin although its own server needs a core, too: the server works while the worker does not.
  o.worker_spin_policy = runtime::spin_policy_for(s.ranks_per_node(comm.size()) * config.threads, s.cores_per_node());
  o.progress =
      needs_progress_thread(config, layout) ? dataparallel::ProgressMode::thread : dataparallel::ProgressMode::on_wait;
  o.message_faults = config.injection.messages;
  o.world_rank = s.world().rank();
  return o;
}

dataparallel::AssemblyOptions assembly_options(const TrainingConfig& config, const Layout& layout,
                                               const DataFacts& facts) {
  return {.mesh = layout.mesh,
          .model =
              [&config, &layout, facts](const dataparallel::Mesh&, model::Peers& peers) {
                return model::make_model(config.model, model_request(config, layout, facts, &peers));
              },
          .seed = config.seed,
          .optimizer = config.optimizer_name(),
          .strategy = config.strategy,
          .strategy_options = config.strategy_options()};
}

std::optional<std::size_t> chosen_bucket_bytes(const TrainingConfig& asked, const TrainingConfig& got,
                                               const Layout& layout) {
  if (asked.bucket_bytes != automatic_bucket || !exchange_factors(got, layout).bucket || !got.bucket_ends.empty())
    return std::nullopt;
  return got.bucket_bytes;
}

std::unique_ptr<dataparallel::FaultInjector> injecting(dataparallel::Fabric& fabric, const Session& s,
                                                       const core::Injection& i) {
  const bool any = i.slow || i.flip || i.omit;
  return any ? std::make_unique<dataparallel::FaultInjector>(fabric, i, s.world().rank()) : nullptr;
}

std::uint64_t hash_bits(std::span<const float> values) {  // FNV-1a over words
  std::uint64_t h = 0xcbf29ce484222325ull;
  for (float v : values) h = (h ^ std::bit_cast<std::uint32_t>(v)) * 0x100000001b3ull;
  return h;
}

}  // namespace

Training::Training(Session& session, const runtime::Communicator& comm, const model::DataSplit& data,
                   const TrainingConfig& config)
    : session_(session),
      communicator_(comm),
      data_(data),
      config_(with_chosen_bucket(session, comm, data, config)),
      node_of_rank_(runtime::Network::nodes_of(comm, {})),
      layout_(accepted(config_, facts_of(data), comm, node_of_rank_)),
      chosen_bucket_(chosen_bucket_bytes(config, config_, layout_)),
      progress_thread_(needs_progress_thread(config_, layout_)),
      queue_(session.device().make_queue()),
      exchange_queue_(session.device().make_queue()),
      fabric_(comm, options_of(session, comm, config_, layout_, facts_of(data), {*queue_, *exchange_queue_}),
              session.activity()),
      fault_injector_(injecting(fabric_, session, config_.injection)),
      verifier_(checked_fabric(), comm, config_.codec && encodes_sums(config_.strategy->info().communication)),
      assembly_(verifier_, assembly_options(config_, layout_, facts_of(data))),
      evaluation_weights_(fabric_.memory(model().element_count())),
      barrier_float_(fabric_.memory(1)),
      sampler_(data.train->size(), layout_.batch_global(config_), config_.seed),
      indices_(config_.batch_per_rank),
      inputs_(session.device(), config_.batch_per_rank * data.train->features()),
      labels_(session.device(), config_.batch_per_rank * data.train->labels()),
      check_seed_(core::unpredictable_seed()) {
  kernels::set_compute_threads(config_.threads);
  if (config_.loss_scale.adapts()) verifier_.allow_overflow();
  verifier_.arm();
  verifier_.begin_step(0);
  assembly_.strategy().begin(assembly_.worker());
  verifier_.end_step();
  verifier_.disarm();
  draw_epoch(0);
}

TrainingTotals& TrainingTotals::operator+=(const TrainingTotals& o) {
  bytes_sent += o.bytes_sent;
  bytes_sent_max += o.bytes_sent_max;
  bytes_between_nodes += o.bytes_between_nodes;
  bytes_of_messages += o.bytes_of_messages;
  forecast = steps == 0 ? o.forecast : forecast += o.forecast;
  steps += o.steps;
  observed = o.observed;
  loss_scale = o.loss_scale;
  bytes_known &= o.bytes_known;
  seconds += o.seconds;
  return *this;
}

std::string TrainingTotals::fault() const {
  if (is_over_bound()) {
    return fmt::format("{} bytes were sent where the strategy's forecast is {} at most", bytes_sent, forecast.bytes);
  }
  return fmt::format("{} bytes were sent where {} {}", bytes_sent,
                     forecast.exact ? "the strategy's forecast is" : "the calls' messages add up to", expected_bytes());
}

DataFacts facts_of(const model::DataSplit& data) {
  return {data.train->features(), data.train->classes(), data.train->labels()};
}

// Work under way uses memory that is freed and unpinned here.
Training::~Training() {
  try {
    queue_->synchronise();
  } catch (...) {  // NOLINT(bugprone-empty-catch): whoever waited for the queue has had its error
  }
}

int Training::helper_threads() const { return bench::helper_threads(config_, layout_); }

void Training::prepare(std::size_t step) {
  if (!layout_.trains() || loaded_ == step) return;
  sampler_.indices(step, static_cast<std::size_t>(layout_.place.data), indices_);
  model::gather(*data_.train, indices_, inputs_.host(), labels_.host());
  inputs_.upload(*queue_);
  labels_.upload(*queue_);
  loaded_ = step;
}

void Training::draw_epoch(std::size_t first_step) {
  if (!layout_.trains()) return;
  for (std::size_t step = first_step; step < first_step + steps_per_epoch(); ++step) {
    sampler_.indices(step, static_cast<std::size_t>(layout_.place.data), indices_);
    for (const std::uint64_t i : indices_) data_.train->prepare(i);
    session_.activity().beat();
  }
}

model::PendingOutcome Training::step(std::size_t step, float step_size) {
  ++steps_;
  if (!layout_.trains()) {
    ++served_steps_;
    return model::PendingOutcome(*queue_);
  }
  prepare(step);
  std::optional<kernels::CallCheck> calls;
  if (std::exchange(checks_operations_, false)) calls.emplace(check_seed_++);
  verifier_.begin_step(steps_);
  assembly_.probe().begin_step();
  auto outcome = assembly_.strategy().step(assembly_.worker(), batch(), {.step_size = step_size, .number = steps_});
  assembly_.probe().leave_step();
  verifier_.end_step();
  if (calls) {
    queue_->synchronise();
    if (operation_fault_.empty()) operation_fault_ = calls->fault();
  }
  return outcome;
}

std::vector<dataparallel::StepRecord> Training::take_records() {
  auto records = assembly_.probe().take_steps();
  for (const auto& r : records) seconds_ += r.step.length();
  records.resize(records.size() + std::exchange(served_steps_, 0));
  return records;
}

std::string Training::take_fault() {
  const auto found = runtime::first_report(communicator_, std::exchange(operation_fault_, {}));
  auto exchange_fault = verifier_.take_fault();
  if (found.text.empty()) return exchange_fault;
  return fmt::format("an operation of a timed step is wrong on rank {}: {}", found.rank, found.text);
}

std::span<const float> Training::local_gradient(std::size_t step) {
  prepare(step);
  model::Batch scaled = batch();
  const auto* const scaler = assembly_.scaler();
  if (scaler) scaled.loss_scale = scaler->scale();
  const runtime::Buffer gradients = assembly_.buffers().gradients;
  assembly_.model().pass(*queue_, assembly_.buffers(), scaled, [](std::size_t) {});
  if (scaler) scaler->submit_unscale(*queue_, gradients);
  if (const auto format = dataparallel::make_update_format(config_.strategy_options().gradient_format))
    queue_->run_and_wait([&] { format->round(gradients); });
  return on_host(gradients, gradient_copy_);
}

std::span<const float> Training::on_host(const runtime::ConstBuffer& b, std::vector<float>& copy) {
  if (!b.on_device()) return b.values<float>();
  copy.resize(b.count());
  queue_->copy("download", b, copy);
  queue_->synchronise();
  return copy;
}

void Training::quiesce() {
  if (layout_.trains() && !finished_) assembly_.strategy().settle(assembly_.worker());
  if (uses_ports() && communicator_.size() > 1) {
    fabric_.wait(fabric_.all_reduce(everybody, barrier_float_, allreduce::Op::sum, fabric_.record()));
  }
}

Training::ProgressPause Training::pause_progress() {
  quiesce();
  return uses_ports() ? fabric_.pause_progress() : nullptr;
}

model::Buffers Training::evaluation_weights() {
  quiesce();
  const model::Buffers with_evaluation_weights{.parameters = evaluation_weights_,
                                               .gradients = assembly_.buffers().gradients};
  if (layout_.trains()) assembly_.strategy().evaluation_weights(assembly_.worker(), with_evaluation_weights.parameters);
  return with_evaluation_weights;
}

Validation Training::validate() {
  const model::Dataset& set = *data_.validation;
  const model::Buffers weights = evaluation_weights();
  const auto workers = static_cast<std::size_t>(layout_.workers), worker = static_cast<std::size_t>(layout_.place.data);
  const std::size_t first = set.size() * worker / workers,
                    last = layout_.trains() ? set.size() * (worker + 1) / workers : first;
  const std::size_t piece = std::max(config_.batch_per_rank, validation_piece);
  std::vector<std::uint64_t> indices;
  Uploaded<float> inputs(session_.device(), piece * set.features());
  Uploaded<std::int32_t> labels(session_.device(), piece * set.labels());
  double correct = 0, loss = 0;
  for (std::size_t i = first; i < last; i += piece) {
    const std::size_t n = std::min(piece, last - i);
    indices.resize(n);
    for (std::size_t k = 0; k < n; ++k) indices[k] = i + k;
    const std::size_t features = n * set.features(), of_labels = n * set.labels();
    model::gather(set, indices, inputs.host().first(features), labels.host().first(of_labels));
    inputs.upload(*queue_);
    labels.upload(*queue_);
    const model::Batch batch{inputs.device().part(0, features), labels.device().part(0, of_labels), set.labels()};
    const auto outcome = assembly_.model().forward(*queue_, weights, batch).get();
    correct += static_cast<double>(outcome.correct);
    loss += outcome.loss_sum;
    session_.activity().beat();
  }
  quiesce();
  const auto label_count = static_cast<double>(set.size() * set.labels());
  return {.accuracy = communicator_.sum(correct) / label_count, .loss = communicator_.sum(loss) / label_count};
}

bool Training::weights_agree() {
  if (!config_.strategy->info().keeps_workers_equal) return true;
  quiesce();
  const auto mine = hash_bits(weights());
  bool equal = true;
  for (int part = 0; part < layout_.mesh.replica_ranks(); ++part) {
    const auto place = layout_.mesh.place(part);
    const bool holds = layout_.trains() && place.stage == layout_.place.stage && place.tensor == layout_.place.tensor;
    equal &= runtime::same_on_all(communicator_, holds ? std::optional(mine) : std::nullopt);
  }
  return equal;
}

dataparallel::ForecastInput Training::forecast_input(std::uint64_t first_step, std::uint64_t steps) const {
  const bool codec_on_messages =
      config_.strategy->info().communication == dataparallel::CommunicationPattern::client_server;
  return {.ranks = static_cast<std::uint32_t>(layout_.mesh.data),
          .tensors = assembly_.model().tensors(),
          .elements = assembly_.model().element_count(),
          .steps = steps,
          .first_step = first_step,
          .ranks_per_node = axis_shape(layout_, node_of_rank_).ranks_per_node,
          .algorithm = config_.algorithm,
          .codec = codec_on_messages || exchanges(config_, layout_) ? config_.codec : nullptr,
          .message_bytes = fabric_.message_bytes(assembly_.mesh().data()),
          .max_call_bytes = fabric_options(config_, layout_, facts_of(data_)).exchange.max_bytes};
}

/// This rank's share of the forecast over all ranks: that of its data axis, on the axis' first rank, and that of the
/// traffic within its replica's stage, on the stage's first tensor rank.
Forecast Training::forecast(const dataparallel::ForecastInput& forecast_input) const {
  Forecast mine;
  if (layout_.place.data == 0) mine += assembly_.strategy().predict(forecast_input);
  if (layout_.trains() && layout_.place.tensor == 0) {
    auto work = assembly_.strategy().replica_work(forecast_input);
    work.shares_norms = dataparallel::needs_norm_sums(layout_.mesh, config_.optimizer);
    const std::size_t batch = config_.batch_per_rank;
    Forecast replica_forecast = dataparallel::forecast_replica(forecast_input, layout_.mesh, layout_.place.stage,
                                                               assembly_.model(), batch, work);
    replica_forecast.least_of_one = 0;  // a replica's busiest rank need not be an axis' busiest
    mine += replica_forecast.times(forecast_input.steps);
  }
  return mine;
}

StepDemand Training::demand() const {
  // A period far beyond the first steps, which some strategies make differently.
  const std::uint64_t period = assembly_.strategy().period(), first = period * (std::uint64_t{1} << 30) + 1;
  const dataparallel::ForecastInput usual_period = forecast_input(first, period);
  StepDemand d{.operations = {}, .least_sent = {}, .lock_step = !uses_ports()};
  if (layout_.trains()) {
    const auto work = assembly_.strategy().replica_work(usual_period);
    const auto take = [&](std::vector<model::RepeatedProblem> problems, std::size_t times) {
      for (auto& p : problems) p.times *= times;
      if (times > 0) d.operations.insert(d.operations.end(), problems.begin(), problems.end());
    };
    take(assembly_.model().pass_problems(config_.batch_per_rank), work.training_passes);
    take(assembly_.model().forward_problems(config_.batch_per_rank), work.forward_only_passes);
  }
  const Forecast mine = forecast(usual_period);
  const auto steps = static_cast<double>(period), ranks = static_cast<double>(communicator_.size());
  const double mean = communicator_.sum(static_cast<double>(mine.least)) / ranks;
  d.least_sent.by_busiest_rank = std::max(mean, communicator_.max(static_cast<double>(mine.least_of_one))) / steps;
  const double nodes = NodeMap{.node_of = node_of_rank_}.nodes();
  d.least_sent.by_busiest_node = communicator_.sum(static_cast<double>(mine.least_between_nodes)) / nodes / steps;
  return d;
}

Observations Training::observed() {
  quiesce();
  Observations observations = assembly_.strategy().observed();
  std::vector<double> counts(observations.staleness.begin(), observations.staleness.end());
  counts.resize(static_cast<std::size_t>(communicator_.max(static_cast<double>(counts.size()))));
  communicator_.sum(counts);
  observations.staleness.assign(counts.begin(), counts.end());
  const bool is_first_of_replica = layout_.place.tensor == 0 && layout_.place.stage == 0;  // one update a replica
  observations.updates = static_cast<std::uint64_t>(
      communicator_.sum(is_first_of_replica ? static_cast<double>(observations.updates) : 0.0));
  observations.applied = static_cast<std::uint64_t>(communicator_.max(static_cast<double>(observations.applied)));
  observations.largest_gap =
      static_cast<std::uint64_t>(communicator_.max(static_cast<double>(observations.largest_gap)));
  observations.read_wait_s = communicator_.sum(observations.read_wait_s);
  observations.dropped = static_cast<std::uint64_t>(communicator_.sum(static_cast<double>(observations.dropped)));
  observations.staleness_under_way =
      static_cast<std::uint64_t>(communicator_.sum(static_cast<double>(observations.staleness_under_way)));
  return observations;
}

std::optional<dataparallel::LossScaler::State> Training::loss_scale() {
  if (!assembly_.scaler()) return std::nullopt;
  const auto mine = assembly_.scaler()->state(*queue_);
  return dataparallel::LossScaler::State{
      .scale = static_cast<float>(-communicator_.max(-double{mine.scale})),
      .skipped = static_cast<std::uint64_t>(communicator_.max(static_cast<double>(mine.skipped)))};
}

TrainingTotals Training::finish() {
  take_records();  // adds their times to `seconds_`
  TrainingTotals t{.steps = steps_};
  const Forecast mine = forecast(forecast_input(1, steps_));
  assembly_.strategy().end(assembly_.worker());
  finished_ = true;
  await_departures();
  t.observed = observed();  // only now do servers know what was under way when the first worker finished
  t.loss_scale = loss_scale();
  quiesce();
  const auto sent = assembly_.probe().totals();
  const auto sum = [&](std::uint64_t n) {
    return static_cast<std::uint64_t>(communicator_.sum(static_cast<double>(n)));
  };
  t.bytes_sent = sum(sent.bytes_sent);
  t.bytes_sent_max = static_cast<std::uint64_t>(communicator_.max(static_cast<double>(sent.bytes_sent)));
  t.bytes_between_nodes = sum(sent.bytes_between_nodes);
  t.bytes_of_messages = sum(sent.bytes_required);
  t.bytes_known = communicator_.all(sent.bytes_known);
  t.seconds = communicator_.max(seconds_);
  t.forecast = {.bytes = sum(mine.bytes),
                .messages = sum(mine.messages),
                .seconds = communicator_.max(mine.seconds),
                .exact = communicator_.all(mine.exact),
                .upper_bound = communicator_.all(mine.bounds_from_above())};
  t.forecast.upper_bound &= !t.forecast.exact;
  return t;
}

void Training::await_departures() {
  if (!uses_ports()) return;
  constexpr double long_enough = 5;
  runtime::Backoff backoff({.spins = 10, .yields = 10});
  const double begin = runtime::host_clock();
  while (!assembly_.probe().idle() && runtime::host_clock() - begin < long_enough) backoff.wait();
}

bool Training::exchanges_buckets() const { return bench::exchanges_buckets(config_, layout_); }

std::vector<dataparallel::Bucket> Training::buckets() const {
  return dataparallel::make_buckets(model().tensors(), model().element_count(), config_.bucket_bytes,
                                    config_.bucket_ends);
}

std::string_view Training::transport_name() const { return runtime::name(fabric_.transport()); }

}  // namespace gradmeter::bench
