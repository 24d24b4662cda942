// SPDX-License-Identifier: Apache-2.0
#include "predict/step.hpp"

#include <algorithm>
#include <cmath>

#include "core/format.hpp"
#include "core/print.hpp"
#include "predict/machines.hpp"

namespace gradmeter::predict {
namespace {

bool mentions(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

/// True if the row's attention is fused (flash attention). Unless the row says so, this needs a GPU of 2020 or later,
/// and software that is newer than flash attention.
bool is_fused(const TrainingStep& s) {
  if (!s.attention.empty()) return s.attention == "flash";
  return !mentions(s.strategy + s.note, "Megatron-DeepSpeed") && !plain_name(s.gpu).starts_with("v100") &&
         !plain_name(s.gpu).starts_with("p100");
}

bool is_fp32(const TrainingStep& s) { return mentions(s.precision, "fp32") || mentions(s.precision, "tf32"); }

/// The peak of products that are not narrower than 16 bits.
double wide_peak(const core::Machine& m, const TrainingStep& s) {
  return m.device->peak(mentions(s.precision, "tf32") ? "tf32" : mentions(s.precision, "fp32") ? "fp32" : "bf16");
}

double within_rate_of(const core::Machine& m) { return m.within_node.bandwidth.back().bytes_per_s; }

constexpr std::array shapes{
    NetworkShape{"llama3-8b", 32, 4096, 32, 128256, 14336, 8},
    NetworkShape{"llama3-70b", 80, 8192, 64, 128256, 28672, 8},
    NetworkShape{"llama3-405b", 126, 16384, 128, 128256, 53248, 8},
    NetworkShape{"llama3.1-405b", 126, 16384, 128, 128256, 53248, 8},
    NetworkShape{"llama2-7b", 32, 4096, 32, 32000, 11008, 32},
    NetworkShape{"llama2-70b", 80, 8192, 64, 32000, 28672, 8},
    NetworkShape{"internlm-7b", 32, 4096, 32, 103168, 11008, 32},
    NetworkShape{"gpt3-175b", 96, 12288, 96, 50257, 49152, 96, false},
    NetworkShape{"bloom-176b", 70, 14336, 112, 250880, 57344, 112, false},
    NetworkShape{"mpt-7b", 32, 4096, 32, 50368, 16384, 32, false},
    NetworkShape{"mpt-30b", 48, 7168, 56, 50368, 28672, 56, false},
};

const NetworkShape* shape_of(const TrainingStep& s) {
  const std::string name = plain_name(s.model);
  const auto* at =
      std::ranges::find_if(shapes, [&](const NetworkShape& shape) { return name.starts_with(plain_name(shape.name)); });
  return at == shapes.end() ? nullptr : at;
}

}  // namespace

std::span<const NetworkShape> network_shapes() { return shapes; }

TrainingStep completed(TrainingStep s) {
  if (const NetworkShape* shape = shape_of(s)) {
    if (s.layers == 0) s.layers = shape->layers;
    if (s.hidden == 0) s.hidden = shape->hidden;
    if (s.heads == 0) s.heads = shape->heads;
    if (s.vocabulary == 0) s.vocabulary = shape->vocabulary;
    if (s.kv_heads == 0) s.kv_heads = shape->kv_heads;
    if (s.ffn == 0) s.ffn = shape->ffn, s.is_gated = shape->is_gated;
  }
  return s;
}

std::string_view name(Term t) {
  constexpr std::array<std::string_view, term_count> names{
      "product_share", "traffic", "launch",       "tensor_launch", "attention_share", "within_rate",
      "between_rate",  "latency", "interference", "fp8_gain",      "optimizer",       "fixed"};
  return names.at(static_cast<std::size_t>(t));
}

std::string machine_refusal(const core::Machine& m) {
  if (!m.device) return "the machine has no device";
  if (m.device->peak("bf16") > 0 && m.device->memory_bytes_per_s > 0) return {};
  return fmt::format("the data sheet of {} lacks a peak or a memory rate", core::printable(m.device->name));
}

MachineOrReason machine_of(const TrainingStep& s) {
  const ListedDevice* device = find_device(s.gpu);
  if (!device) return {{}, fmt::format("no data sheet of '{}' is known", core::printable(s.gpu))};
  constexpr std::uint32_t usual = 8;
  MachineOrReason out{machine_of(*device, s.gpus_per_node > 0 ? static_cast<std::uint32_t>(s.gpus_per_node) : usual),
                      {}};
  out.reason = machine_refusal(*out.machine);
  if (!out.reason.empty()) out.machine.reset();
  return out;
}

std::array<Prior, term_count> priors_of(const core::Machine& m, const TrainingStep& s) {
  // Faster devices reach a smaller share of their peak.
  constexpr double usual_peak = 312e12, usual_share = 0.66, fall = 0.15, most = 0.85;
  return {Prior{.middle = std::min(most, usual_share * std::pow(usual_peak / wide_peak(m, s), fall)), .width = 0.25},
          {.middle = 1.7, .width = 0.8},
          {.middle = is_fused(s) ? 3e-4 : 8e-4, .width = 0.8},
          {.middle = 1.4, .width = 0.4},
          {.middle = 0.5, .width = 0.4},
          {.middle = 0.7 * within_rate_of(m), .width = 0.4},
          {.middle = 0.8 * m.node_port.bytes_per_s, .width = 0.7},
          {.middle = 1e-5, .width = 0.8},
          {.middle = 0.15, .width = 0.8},
          {.middle = 1.65, .width = 0.25},
          {.middle = 1.3, .width = 0.5},
          {.middle = 3e-3, .width = 1.2}};
}

Terms terms_of(const core::Machine& m, const TrainingStep& s) {
  Terms t;
  const auto priors = priors_of(m, s);
  for (std::size_t i = 0; i < term_count; ++i) {
    t.values.at(i) = priors.at(i).middle;
    if (!m.fit) continue;
    const auto fitted = m.fit->terms.find(name(static_cast<Term>(i)));
    if (fitted != m.fit->terms.end()) t.values.at(i) = fitted->second;
  }
  return t;
}

std::string TransformerStep::refusal(const TrainingStep& row) {
  const TrainingStep s = completed(row);
  if (s.expert > 1) return "experts";
  if (s.layers == 0 || s.hidden == 0 || s.sequence == 0) return "layers, hidden size or sequence are not stated";
  if (s.global_batch == 0) return "the global batch is not stated";
  const std::size_t replicas = s.gpus / replica_gpus(s), micro_batch = std::max<std::size_t>(1, s.micro_batch);
  if (replicas == 0) return "the mesh needs more GPUs than there are";
  if (s.pipeline > s.layers) return "the pipeline has more stages than there are layers";
  if (s.zero_stage == 3 && s.pipeline > 1)
    return "ZeRO stage 3 is not predicted with a pipeline, since each stage would gather its own layers only; take "
           "another stage of ZeRO, or no pipeline";
  if (micro_batch > s.global_batch / replicas)
    return fmt::format(
        "a global batch of {} is less than a micro-batch of {} on each of {} replicas, so that some would compute "
        "nothing; take a larger batch, a smaller micro-batch or fewer ranks",
        s.global_batch, micro_batch, replicas);
  return {};
}

TransformerStep::TransformerStep(const TrainingStep& row, const core::Machine& machine)
    : TransformerStep(completed(row), machine, AlreadyCompleted{}) {}

TransformerStep::TransformerStep(const TrainingStep& row, const core::Machine& m, AlreadyCompleted)
    : peak_(wide_peak(m, row)),
      memory_rate_(m.device->memory_bytes_per_s),
      gpus_per_node_(m.ranks_per_node),
      multiprocessors_(m.device->multiprocessors),
      tiles_(m.device->tiles),
      link_(m.within_node),
      gated_(row.ffn > 0 && row.is_gated),
      layers_(static_cast<double>(row.layers)),
      hidden_(static_cast<double>(row.hidden)),
      heads_(static_cast<double>(row.heads > 0 ? row.heads : std::max<std::size_t>(1, row.hidden / 128))),
      kv_heads_(row.kv_heads > 0 ? static_cast<double>(row.kv_heads) : heads_),
      ffn_(row.ffn > 0 ? static_cast<double>(row.ffn) : 4 * hidden_),
      sequence_(static_cast<double>(row.sequence)),
      vocabulary_(static_cast<double>(row.vocabulary > 0 ? row.vocabulary : 50257)),
      tensor_(static_cast<double>(row.tensor)),
      pipeline_(static_cast<double>(row.pipeline)),
      context_(static_cast<double>(row.context)),
      virtual_stages_(static_cast<double>(row.virtual_stages)),
      global_batch_(static_cast<double>(row.global_batch)),
      zero_(row.zero_stage),
      exchange_(row.exchange) {
  const std::size_t replicas = row.gpus / replica_gpus(row);
  data_ = static_cast<double>(replicas);
  micro_batch_ = static_cast<double>(row.micro_batch > 0 ? row.micro_batch : 1);
  micro_batches_ = std::max(1.0, std::ceil(static_cast<double>(row.global_batch) / (data_ * micro_batch_)));
  const std::string about = row.strategy + " " + row.note;
  flash_ = is_fused(row);
  recomputes_ = row.recompute.starts_with("full");
  recomputes_selectively_ = row.recompute.starts_with("selective");
  // A device without 8-bit products computes them in 16 bits.
  const bool has_fp8 = m.device->peak("fp8") > m.device->peak("bf16");
  fp8_ = has_fp8 && (mentions(row.precision, "fp8") || mentions(row.precision, "FP8"));
  fp4_ = has_fp8 && (mentions(row.precision, "fp4") || mentions(row.precision, "FP4"));
  has_adapters_ = mentions(about, "LoRA");
  sequence_parallel_ = row.is_sequence_parallel || mentions(about, "sequence parallel");
  overlaps_ = !mentions(about, "no gradient bucket");
  if (is_fp32(row)) element_bytes_ = reduced_bytes_ = sizeof(float);
  if (mentions(about, "DEFAULT")) reduced_bytes_ = 4;  // FSDP's mixed precision of that name reduces in fp32
  constexpr double byte_bits = 8;
  if (row.gradient_bits > 0) reduced_bytes_ = row.gradient_bits / byte_bits;
  gradient_coding_passes_ = row.coding_passes;
}

double TransformerStep::layer_parameters() const {
  const double head_size = hidden_ / heads_;
  return hidden_ * (hidden_ + 2 * kv_heads_ * head_size) + hidden_ * hidden_ + (gated_ ? 3 : 2) * hidden_ * ffn_;
}
double TransformerStep::embedding_parameters() const { return vocabulary_ * hidden_; }

/// The rate of products in 8 or 4 bits, relative to products in 16.
double TransformerStep::low_precision_speedup(const Terms& t) const {
  constexpr double of_four_bits = 1.4;  // relative to 8 bits, whose peak is half
  return (fp8_ || fp4_ ? t[Term::fp8_gain] : 1) * (fp4_ ? of_four_bits : 1);
}

/// The time of a product [s]. Tiles fill the multiprocessors in waves, of which the last may be mostly empty; the size
/// of tile that fills them best is taken. Short k does not fill the pipeline of a tile.
double TransformerStep::product(const Terms& t, double m, double n, double k) const {
  double filled = 1;
  if (multiprocessors_ > 0) {
    filled = 0;
    for (const core::Tile& tile : tiles_) {
      const double needed = std::ceil(m / tile.rows) * std::ceil(n / tile.columns);
      const double waves = std::ceil(needed / multiprocessors_);
      filled = std::max(filled, tile.share * m * n / (waves * multiprocessors_ * tile.rows * tile.columns));
    }
  }
  constexpr double half_k = 128;
  const double rate = t[Term::product_share] * peak_ * low_precision_speedup(t) * filled;
  const double bytes = element_bytes_ * (m * k + k * n + m * n);
  return std::max(2 * m * n * k / rate * (1 + half_k / k), bytes / (0.8 * memory_rate_));
}

double TransformerStep::all_reduce(const Terms& t, double bytes, double members, double within_node,
                                   double groups_of_node, const std::string& algorithm) const {
  if (members <= 1) return 0;
  const bool crosses = within_node < members;
  // The fitted rate is that of a group of all ranks of a node. The rates of smaller groups are in proportion to those
  // that the link states by size of the group.
  double rate = t[Term::within_rate];
  if (!link_.groups.empty())
    rate *= link_.group_bytes_per_s(static_cast<std::uint32_t>(within_node)) / link_.groups.back().bytes_per_s;
  const double between = t[Term::between_rate] / std::max(1.0, groups_of_node);
  // A sum reads two operands and writes one.
  if (!algorithm.empty())
    return all_reduce_seconds(algorithm, bytes,
                              {.ranks = static_cast<std::uint32_t>(members),
                               .ranks_per_node = static_cast<std::uint32_t>(within_node),
                               .latency_s = t[Term::latency],
                               .within_bytes_per_s = rate,
                               .between_bytes_per_s = between,
                               .reduce_bytes_per_s = 0.8 * memory_rate_ / 3});
  if (crosses) rate = std::min(rate, between);
  const double hops = crosses ? 2 * (within_node - 1) + 2 * std::log2(members / within_node) : 2 * (members - 1);
  return hops * t[Term::latency] + 2 * (members - 1) / members * bytes / rate;
}

TransformerStep::Layer TransformerStep::layer(const Terms& t) const {
  const double b = micro_batch_, s = sequence_ / context_, h = hidden_, d = h / heads_, tp = tensor_;
  const double tokens = b * s, memory_rate = 0.8 * memory_rate_;
  const double products = product(t, tokens, (h + 2 * kv_heads_ * d) / tp, h) + product(t, tokens, h, h / tp) +
                          product(t, tokens, (gated_ ? 2 : 1) * ffn_ / tp, h) + product(t, tokens, h, ffn_ / tp);
  const double attention_flops = 4 * b * (heads_ / tp) * s * sequence_ * d;
  // Flash attention computes the lower half only; short sequences fill it badly.
  constexpr double half_sequence = 1024;
  const double attention_rate =
      t[Term::product_share] * peak_ * t[Term::attention_share] / (flash_ ? 1 + half_sequence / sequence_ : 1);
  const double attention =
      flash_ ? attention_flops / 2 / attention_rate : attention_flops / (t[Term::product_share] * peak_) * 1.5;
  // Without flash attention, scores are written, masked, and read again.
  const double softmax = flash_ ? 0 : 5 * element_bytes_ * b * (heads_ / tp) * s * sequence_ / memory_rate;
  constexpr double passes = 10;  // over activations of a layer: norms, residuals, dropout, the nonlinearity
  const double loops =
      t[Term::traffic] * element_bytes_ * tokens *
      (0.6 * passes * h / (sequence_parallel_ ? tp : 1) + 0.4 * passes * (gated_ ? 2 : 1) * ffn_ / (4 * tp)) /
      memory_rate;
  const double launch = t[Term::launch] * (tp > 1 ? t[Term::tensor_launch] : 1);
  const double forward = products + attention + softmax + loops;
  // Low-rank adapters get gradients of activations, and next to none of weights.
  const double backward = (has_adapters_ ? 1 : 2) * products + (flash_ ? 2.5 : 2) * attention + 2 * softmax + 2 * loops;
  const auto smooth_max = [](double x, double y) { return std::pow(std::pow(x, 4) + std::pow(y, 4), 0.25); };
  return {smooth_max(forward, launch), smooth_max(backward, 2 * launch),
          2 * all_reduce(t, element_bytes_ * tokens * h, tp, std::min(tp, gpus_per_node_), 1)};
}

/// The time of the last stage's logits and loss, and of the first stage's embedding, for one micro-batch [s].
double TransformerStep::embedding_and_logits_s(const Terms& t) const {
  const double tokens = micro_batch_ * sequence_ / context_, memory_rate = 0.8 * memory_rate_;
  return 3 * product(t, tokens, vocabulary_ / tensor_, hidden_) + 16 * tokens * vocabulary_ / tensor_ / memory_rate +
         16 * tokens * hidden_ / memory_rate;
}

TransformerStep::DataAxis TransformerStep::data_axis() const {
  const double node = gpus_per_node_, members = data_ * context_;
  const double within =
      std::clamp(std::floor(node / (tensor_ * (pipeline_ * tensor_ <= node ? pipeline_ : 1))), 1.0, members);
  return {members, within, std::clamp(node / within, 1.0, node)};
}

std::string TransformerStep::exchange_refusal() const {
  const DataAxis axis = data_axis();
  return algorithm_refusal(exchange_.algorithm, static_cast<std::uint32_t>(axis.members),
                           static_cast<std::uint32_t>(axis.within));
}

StepParts TransformerStep::parts(const Terms& t) const {
  StepParts p;
  const Layer layer_times = layer(t);
  const double recomputed = recomputes_ ? layer_times.forward : recomputes_selectively_ ? 0.1 * layer_times.forward : 0;
  const double ends_s = embedding_and_logits_s(t);
  const double node = gpus_per_node_;
  const double local_parameters = layers_ / pipeline_ * layer_parameters() / tensor_ + embedding_parameters() / tensor_;
  const auto [members, within, groups] = data_axis();
  const double exchange_s = layer_times.exchange * (recomputes_ ? 3 : 2);
  const double coding_s =
      members > 1 ? gradient_coding_passes_ * sizeof(float) * local_parameters / (0.8 * memory_rate_) : 0;
  if (zero_ == 3) {
    // Every layer's weights are gathered twice and its gradients scattered once in each micro-batch.
    const double bytes = element_bytes_ * layer_parameters() / tensor_;
    const double gather = all_reduce(t, bytes, members, within, groups) / 2;
    const double scatter = gather * reduced_bytes_ / element_bytes_;
    const auto overlapped = [&](double compute, double exchange) {
      const double hidden = std::min(compute, exchange);
      return std::pair{compute + t[Term::interference] * hidden, std::max(0.0, exchange - compute)};
    };
    const auto [forward, forward_exposed] = overlapped(layer_times.forward, gather);
    const auto [backward, backward_exposed] = overlapped(layer_times.backward + recomputed, gather + scatter);
    p.compute = micro_batches_ * (layers_ * (forward + backward) + ends_s);
    p.data_exchange = micro_batches_ * layers_ * (forward_exposed + backward_exposed) +
                      micro_batches_ * (embedding_parameters() / layer_parameters()) * (2 * gather + scatter) +
                      micro_batches_ * coding_s;
    p.tensor_exchange = micro_batches_ * layers_ * exchange_s;
  } else {
    const double layer_s = layer_times.forward + layer_times.backward + recomputed;
    const double stage_s = layers_ / pipeline_ * (layer_s + exchange_s);
    const double longest = stage_s + ends_s;  // the last stage
    const double message = element_bytes_ * micro_batch_ * sequence_ / context_ * hidden_;
    const bool crosses = pipeline_ * tensor_ > node;
    const double hop_s =
        t[Term::latency] + message / (crosses ? t[Term::between_rate] / tensor_ : t[Term::within_rate]);
    p.compute = micro_batches_ * (longest - layers_ / pipeline_ * exchange_s);
    p.tensor_exchange = micro_batches_ * layers_ / pipeline_ * exchange_s;
    p.pipeline_wait = pipeline_ > 1 ? (pipeline_ - 1) * (stage_s + 2 * hop_s) / virtual_stages_ : 0;
    const double window_s = overlaps_ ? layers_ / pipeline_ * (layer_times.backward + recomputed) : 0;
    // An all-reduce scatters the sums and gathers them. Stages 1 and 2 gather weights instead, which no codec encodes.
    const double sent_bytes = zero_ >= 1 ? (reduced_bytes_ + element_bytes_) / 2 : reduced_bytes_;
    const DataExchange exchange = data_exchange(exchange_, sent_bytes * local_parameters, window_s, [&](double bytes) {
      return all_reduce(t, bytes, members, within, groups, exchange_.algorithm);
    });
    // Encoding and decoding stand at the end of a step, where nothing hides them.
    p.data_exchange = exchange.exposed_s + t[Term::interference] * (exchange.total_s - exchange.exposed_s) + coding_s;
  }
  // Adam in mixed precision reads and writes weights, their fp32 copies, two moments and the gradient.
  constexpr double update_bytes = 30;
  const double shards = zero_ >= 1 ? members : 1;
  p.update = t[Term::optimizer] * update_bytes * local_parameters / shards / (0.8 * memory_rate_);
  p.fixed = t[Term::fixed];
  return p;
}

/// Weights, gradients and Adam's state as in Rajbhandari et al., SC 2020, section 3: 2 + 2 + 12 bytes a parameter in 16
/// bits, of which ZeRO's stages share the last, the last two, or all among the data ranks; 4 + 4 + 8 in fp32.
/// Activations as in Korthikanti et al., MLSys 2023 ("Reducing activation recomputation", 2022), equations 1 to 6, for
/// any width of the feed-forward part: bytes in 16 bits. The first stage of a pipeline (1F1B) keeps as many
/// micro-batches as there are stages.
MemoryParts TransformerStep::memory() const {
  MemoryParts m;
  const double wide = element_bytes_ / 2, members = data_ * context_;
  const double ends = pipeline_ > 1 || !gated_ ? 1 : 2;  // networks with gates have weights of their own at each end
  const double parameters =
      (std::ceil(layers_ / pipeline_) * layer_parameters() + ends * embedding_parameters()) / tensor_;
  const double trained = has_adapters_ ? 0 : parameters;
  m.weights = 2 * wide * parameters / (zero_ >= 3 ? members : 1);
  if (zero_ >= 3) m.weights += 2 * wide * 2 * layer_parameters() / tensor_;
  m.gradients = 2 * wide * trained / (zero_ >= 2 ? members : 1);
  m.optimizer = (element_bytes_ > 2 ? 8 : 12) * trained / (zero_ >= 1 ? members : 1);

  const double tokens = sequence_ / context_ * micro_batch_, tensor_ranks = tensor_, kv_share = kv_heads_ / heads_;
  const double unsplit = 10 * hidden_;  // norms, halves' inputs, dropout's masks; split by sequence parallelism
  const double split = (4 + 4 * kv_share) * hidden_ + (gated_ ? 6 : 4) * ffn_;
  const double scores = flash_ || recomputes_selectively_ ? 0 : 5 * heads_ * sequence_;
  double kept = unsplit / (sequence_parallel_ ? tensor_ranks : 1) + (split + scores) / tensor_ranks;
  if (recomputes_) kept = 2 * hidden_ / (sequence_parallel_ ? tensor_ranks : 1);
  const double of_layer = wide * tokens * kept;
  const double micro_batches_kept = std::min(micro_batches_, pipeline_);
  m.activations = of_layer * layers_ / pipeline_ * micro_batches_kept;
  if (virtual_stages_ > 1) m.activations *= 1 + (pipeline_ - 1) / (pipeline_ * virtual_stages_);
  // While a layer is recomputed, all of its activations are kept.
  if (recomputes_)
    m.activations +=
        wide * tokens * (unsplit / (sequence_parallel_ ? tensor_ranks : 1) + (split + scores) / tensor_ranks);
  // Logits and their gradients in fp32, on the last stage; there only one micro-batch is kept.
  const double logits = 4 * tokens * vocabulary_ / tensor_ranks;
  m.activations =
      std::max(pipeline_ > 1 ? m.activations : m.activations + logits, of_layer * layers_ / pipeline_ + logits);
  return m;
}

double TransformerStep::flops() const {
  const double tokens = global_batch_ * sequence_;
  return 6 * tokens * (layers_ * layer_parameters() + embedding_parameters()) +
         12 * layers_ * hidden_ * sequence_ * tokens;
}

}  // namespace gradmeter::predict
