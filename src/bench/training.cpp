#include "bench/training.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "bench/coded_sum.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "dataparallel/buckets.hpp"
#include "dataparallel/rules/registry.hpp"
#include "kernels/threads.hpp"

namespace gradmeter::bench {
namespace {

using dataparallel::everybody;

bool exchanges(const TrainingConfig& c, const runtime::Communicator& comm) {
  return c.strategy->communicates() && c.algorithm && comm.size() > 1;
}

runtime::Patience patience(const Session& s, const runtime::Communicator& c, const TrainingConfig& config,
                           bool progress_thread) {
  const int runnable = s.ranks_per_node(c.size()) * (config.threads + (progress_thread ? 1 : 0));
  auto p = runtime::patience_for(runnable, s.cores_per_node());
  // A progress thread without a core of its own takes it from the computation it is meant to hide behind.
  if (progress_thread && runnable > s.cores_per_node()) p.yields = 10;
  return p;
}

dataparallel::WorldFabricOptions with_patience(dataparallel::WorldFabricOptions o, runtime::Patience p,
                                               bool progress_thread) {
  o.patience = p;
  o.progress = progress_thread ? dataparallel::ProgressMode::thread : dataparallel::ProgressMode::on_wait;
  return o;
}

/// The configuration, once its exchange is known to be possible.
const TrainingConfig& accepted(const TrainingConfig& c, const model::Model& m, const runtime::Communicator& comm) {
  if (!exchanges(c, comm)) return c;
  const auto nodes = runtime::Network::nodes_of(comm, {});
  if (const auto why = Training::exchange_refusal(c, m, allreduce::shape_of(nodes)); !why.empty()) {
    throw core::UsageError(why);
  }
  return c;
}

std::uint64_t hash_bits(std::span<const float> values) {  // FNV-1a over words
  std::uint64_t h = 0xcbf29ce484222325ull;
  for (float v : values) h = (h ^ std::bit_cast<std::uint32_t>(v)) * 0x100000001b3ull;
  return h;
}

}  // namespace

std::string_view name(Overlap o) { return o == Overlap::none ? "none" : "bucketed"; }

dataparallel::WorldFabricOptions Training::fabric_options(const TrainingConfig& c, const model::Model& m) {
  const std::size_t bytes = m.element_count() * sizeof(float);
  return {.algorithm = c.algorithm,
          .codec = c.codec,
          .transport = c.transport,
          .memory_bytes = 2 * (bytes + 4096),
          .max_call_bytes = bytes};
}

std::string Training::exchange_refusal(const TrainingConfig& c, const model::Model& m, allreduce::Shape shape) {
  if (!c.algorithm) return {};
  if (!c.codec) return c.algorithm->refusal(shape);
  const allreduce::CodedRequest request{.codec = *c.codec,
                                        .algorithm = *c.algorithm,
                                        .shape = shape,
                                        .options = {.max_bytes = m.element_count() * sizeof(float)}};
  if (auto why = allreduce::codec_refusal(request, allreduce::Goal::all_reduce, {}); !why.empty()) return why;
  const auto all = dataparallel::make_buckets(m.tensors(), m.element_count(), 0);
  return allreduce::contents_refusal(request, all.front().parts);
}

std::size_t Training::resident_bytes(const TrainingConfig& c, const model::Model& m, int ranks) {
  return dataparallel::WorldFabric::resident_bytes(fabric_options(c, m), ranks) + m.workspace_bytes(c.batch_per_rank) +
         c.batch_per_rank * m.input_features() * sizeof(float);
}

Training::Training(Session& session, const runtime::Communicator& comm, const model::DataSplit& data,
                   const TrainingConfig& config)
    : session_(session),
      communicator_(comm),
      data_(data),
      config_(config),
      model_(model::make_model(config.model, data.train->features(), data.train->classes())),
      progress_thread_(config.overlap == Overlap::bucketed && exchanges(config, comm)),
      fabric_(comm,
              with_patience(fabric_options(accepted(config, *model_, comm), *model_),
                            patience(session, comm, config, progress_thread_), progress_thread_),
              session.activity()),
      probe_(fabric_),
      optimizer_(dataparallel::make_optimizer(config.optimizer,
                                              {.elements = model_->element_count(), .tensors = model_->tensors()})),
      strategy_(config.strategy->make({.bucket_bytes = config.bucket_bytes})),
      buffers_{.parameters = fabric_.arena().take_of<float>(model_->element_count()),
               .gradients = fabric_.arena().take_of<float>(model_->element_count())},
      worker_(probe_, dataparallel::everybody, *model_, buffers_, *optimizer_),
      sampler_(data.train->size(), config.batch_per_rank * static_cast<std::size_t>(comm.size()), config.seed),
      indices_(config.batch_per_rank),
      inputs_(config.batch_per_rank * data.train->features()),
      labels_(config.batch_per_rank) {
  kernels::set_compute_threads(config.threads);
  model_->initialise(buffers_, config.seed);
  probe_.begin_step();
  strategy_->begin(worker_);
  probe_.end_step();
}

void Training::load(std::size_t step) {
  if (loaded_ == step) return;
  sampler_.indices(step, static_cast<std::size_t>(communicator_.rank()), indices_);
  model::gather(*data_.train, indices_, inputs_, labels_);
  loaded_ = step;
}

model::Outcome Training::step(std::size_t step, float step_size) {
  load(step);
  probe_.begin_step();
  const auto outcome = strategy_->step(worker_, {inputs_, labels_}, {.size = step_size, .number = step + 1});
  record_ = &probe_.end_step();
  return outcome;
}

std::span<const float> Training::local_gradient(std::size_t step) {
  load(step);
  model::PlainComputer computer;
  model_->forward(computer, buffers_, {inputs_, labels_});
  model_->backward(computer, buffers_, {inputs_, labels_}, [](std::size_t) {});
  return buffers_.gradients.values<float>();
}

double Training::validation_accuracy() {
  const model::Dataset& set = *data_.validation;
  const auto ranks = static_cast<std::size_t>(communicator_.size()),
             rank = static_cast<std::size_t>(communicator_.rank());
  const std::size_t first = set.size() * rank / ranks, last = set.size() * (rank + 1) / ranks;
  constexpr std::size_t chunk = 500;
  std::vector<std::uint64_t> indices;
  std::vector<float> inputs(chunk * set.features());
  std::vector<std::int32_t> labels(chunk);
  model::PlainComputer computer;
  double correct = 0;
  for (std::size_t i = first; i < last; i += chunk) {
    const std::size_t n = std::min(chunk, last - i);
    indices.resize(n);
    for (std::size_t k = 0; k < n; ++k) indices[k] = i + k;
    const auto x = std::span(inputs).first(n * set.features());
    const auto y = std::span(labels).first(n);
    model::gather(set, indices, x, y);
    correct += static_cast<double>(model_->forward(computer, buffers_, {x, y}).correct);
    session_.activity().beat();
  }
  return communicator_.sum(correct) / static_cast<double>(set.size());
}

bool Training::weights_equal() const {
  const auto hashes = communicator_.all_gather_value(hash_bits(buffers_.parameters.values<float>()));
  return std::all_of(hashes.begin(), hashes.end(), [&](auto h) { return h == hashes.front(); });
}

ExchangeCheck Training::check_exchange() {
  ExchangeCheck found;
  if (!exchanges(config_, communicator_)) return found;
  if (config_.codec) {
    found = check_coded_exchange();
  } else if (!sums_are_exact()) {
    found.fault = fmt::format("the all-reduce {} gives wrong sums", config_.algorithm->name);
  }
  std::ranges::fill(buffers_.gradients.values<float>(), 0.0f);
  return found;
}

bool Training::sums_are_exact() {
  const auto value = [](int rank, std::size_t i) {
    return static_cast<float>((i * 7 + static_cast<std::size_t>(rank) * 13) % 101) - 50.0f;
  };
  const auto g = buffers_.gradients.values<float>();
  for (std::size_t i = 0; i < g.size(); ++i) g[i] = value(communicator_.rank(), i);
  fabric_.wait(fabric_.all_reduce(everybody, g, allreduce::Op::sum, {}, {}));
  // Small whole numbers: their sums are exact in fp32 whatever the order, so any difference is an error.
  bool right = true;
  for (std::size_t i = 0; i < g.size(); ++i) {
    float sum = 0;
    for (int r = 0; r < communicator_.size(); ++r) sum += value(r, i);
    right &= g[i] == sum;
  }
  return communicator_.all(right);
}

/// Encoded gradients lose some: how much is the answer, but all ranks must hold the same.
ExchangeCheck Training::check_coded_exchange() {
  const auto g = buffers_.gradients.values<float>();
  const auto buckets = dataparallel::make_buckets(model_->tensors(), model_->element_count(), 0);
  std::ranges::fill(g, 0.0f);  // as between tensors in training
  for (const auto& t : buckets.front().parts) {
    draw_worker_gradient(config_.seed + t.offset, communicator_.rank(), g.subspan(t.offset, t.count));
  }
  const std::vector<float> mine(g.begin(), g.end());
  fabric_.wait(fabric_.all_reduce(everybody, g, allreduce::Op::average, {}, buckets.front().contents()));
  fabric_.forget();
  const CodedSum sum = compare_coded_sum(communicator_, mine, g, allreduce::Op::average);
  ExchangeCheck found{.fault = {}, .error = sum.error};
  if (!sum.same_bits) {
    found.fault =
        fmt::format("ranks hold different sums after {} with codec {}", config_.algorithm->name, config_.codec->label);
  }
  return found;
}

std::string_view Training::transport_name() const { return runtime::name(fabric_.transport()); }

}  // namespace gradmeter::bench
