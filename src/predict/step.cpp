// SPDX-License-Identifier: Apache-2.0
#include "predict/step.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "core/format.hpp"
#include "core/print.hpp"

namespace gradmeter::predict {
namespace {

constexpr double element_bytes = 2;  // of activations and weights in 16 bits

bool mentions(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

/// Flash attention needs a GPU of 2020 or later, and software that came after it.
bool is_fused(const MeasuredStep& s) {
  return !mentions(s.strategy + s.note, "Megatron-DeepSpeed") && !plain_name(s.gpu).starts_with("v100") &&
         !plain_name(s.gpu).starts_with("p100");
}

/// Published shapes of networks that tables and users give by name. Sources: Grattafiori et al., "The Llama 3 herd of
/// models", 2024, table 3; Touvron et al., "Llama 2", 2023; Brown et al., 2020, table 2.1; Scao et al., "BLOOM", 2022;
/// MosaicML's configurations of MPT, InternLM's of 7B.
struct Shape {
  std::string_view name;  ///< lower-case letters and digits
  std::size_t layers, hidden, heads, vocabulary;
  double ffn, kv_heads;
  bool gated = true;
};
constexpr std::array shapes{
    Shape{"llama38b", 32, 4096, 32, 128256, 14336, 8},
    Shape{"llama370b", 80, 8192, 64, 128256, 28672, 8},
    Shape{"llama3405b", 126, 16384, 128, 128256, 53248, 8},
    Shape{"llama31405b", 126, 16384, 128, 128256, 53248, 8},
    Shape{"llama27b", 32, 4096, 32, 32000, 11008, 32},
    Shape{"llama270b", 80, 8192, 64, 32000, 28672, 8},
    Shape{"internlm7b", 32, 4096, 32, 103168, 11008, 32},
    Shape{"gpt3175b", 96, 12288, 96, 50257, 49152, 96, false},
    Shape{"bloom176b", 70, 14336, 112, 250880, 57344, 112, false},
    Shape{"mpt7b", 32, 4096, 32, 50368, 16384, 32, false},
    Shape{"mpt30b", 48, 7168, 56, 50368, 28672, 56, false},
};

const Shape* shape_of(const MeasuredStep& s) {
  const std::string name = plain_name(s.model);
  const auto* at = std::ranges::find_if(shapes, [&](const Shape& shape) { return name.starts_with(shape.name); });
  return at == shapes.end() ? nullptr : at;
}

/// With what its name says where the table does not.
MeasuredStep completed(MeasuredStep s) {
  if (const Shape* shape = shape_of(s)) {
    if (s.layers == 0) s.layers = shape->layers;
    if (s.hidden == 0) s.hidden = shape->hidden;
    if (s.heads == 0) s.heads = shape->heads;
    if (s.vocabulary == 0) s.vocabulary = shape->vocabulary;
  }
  return s;
}

}  // namespace

std::string_view name(Term t) {
  constexpr std::array<std::string_view, term_count> names{
      "product_share", "traffic", "launch",       "tensor_launch", "attention_share", "within_rate",
      "between_rate",  "latency", "interference", "fp8_gain",      "optimizer",       "fixed"};
  return names.at(static_cast<std::size_t>(t));
}

SheetOrReason sheet_of(const MeasuredStep& s) {
  const Device* device = find_device(s.gpu);
  if (!device) return {{}, fmt::format("no data sheet of '{}' is known", core::printable(s.gpu))};
  Sheet sheet{.peak_16 = device->peak(mentions(s.precision, "fp32") ? "fp32" : "bf16"),
              .memory_bytes_per_s = device->memory_bytes_per_s,
              .multiprocessors = device->multiprocessors,
              .within_bytes_per_s = device->link_bytes_per_s,
              .between_bytes_per_s = 0,
              .gpus_per_node = s.gpus_per_node > 0 ? s.gpus_per_node : 8,
              .fused = is_fused(s)};
  if (!(sheet.peak_16 > 0) || !(sheet.memory_bytes_per_s > 0))
    return {{}, fmt::format("the data sheet of {} lacks a peak or a memory rate", device->name)};
  if (!(sheet.within_bytes_per_s > 0)) sheet.within_bytes_per_s = 12e9;  // PCIe 3 x16
  // Nodes are built with ports of an eighth to a half of what links within them carry.
  sheet.between_bytes_per_s = static_cast<double>(sheet.gpus_per_node) * sheet.within_bytes_per_s / 12;
  return {sheet, {}};
}

std::array<Prior, term_count> priors_of(const Sheet& s) {
  // Faster devices reach a smaller share of their peak.
  constexpr double usual_peak = 312e12, usual_share = 0.66, fall = 0.15;
  return {Prior{.middle = usual_share * std::pow(usual_peak / s.peak_16, fall), .width = 0.25},
          {.middle = 1.7, .width = 0.8},
          {.middle = s.fused ? 3e-4 : 8e-4, .width = 0.8},
          {.middle = 1.4, .width = 0.4},
          {.middle = 0.5, .width = 0.4},
          {.middle = 0.7 * s.within_bytes_per_s, .width = 0.4},
          {.middle = 0.8 * s.between_bytes_per_s, .width = 0.7},
          {.middle = 1e-5, .width = 0.8},
          {.middle = 0.15, .width = 0.8},
          {.middle = 1.65, .width = 0.25},
          {.middle = 1.3, .width = 0.5},
          {.middle = 3e-3, .width = 1.2}};
}

std::string TransformerStep::refusal(const MeasuredStep& row) {
  const MeasuredStep s = completed(row);
  if (s.expert > 1) return "experts";
  if (s.layers == 0 || s.hidden == 0 || s.sequence == 0) return "layers, hidden size or sequence are not stated";
  if (s.global_batch == 0) return "the global batch is not stated";
  const std::size_t replicas = s.gpus / (s.tensor * s.pipeline * s.context);
  if (replicas == 0) return "the mesh needs more GPUs than there are";
  return {};
}

TransformerStep::TransformerStep(const MeasuredStep& row, const Sheet& sheet)
    : TransformerStep(completed(row), sheet, Completed{}) {}

TransformerStep::TransformerStep(const MeasuredStep& s, const Sheet& sheet, Completed)
    : sheet_(sheet),
      layers_(static_cast<double>(s.layers)),
      hidden_(static_cast<double>(s.hidden)),
      heads_(static_cast<double>(s.heads > 0 ? s.heads : std::max<std::size_t>(1, s.hidden / 128))),
      kv_heads_(heads_),
      ffn_(4 * hidden_),
      sequence_(static_cast<double>(s.sequence)),
      vocabulary_(static_cast<double>(s.vocabulary > 0 ? s.vocabulary : 50257)),
      tensor_(static_cast<double>(s.tensor)),
      pipeline_(static_cast<double>(s.pipeline)),
      context_(static_cast<double>(s.context)),
      virtual_stages_(static_cast<double>(s.virtual_stages)),
      zero_(s.zero) {
  const std::size_t replicas = s.gpus / (s.tensor * s.pipeline * s.context);
  data_ = static_cast<double>(replicas);
  micro_batch_ = static_cast<double>(s.micro_batch > 0 ? s.micro_batch : 1);
  micro_batches_ = std::max(1.0, std::ceil(static_cast<double>(s.global_batch) / (data_ * micro_batch_)));
  if (const Shape* shape = shape_of(s)) {
    gated_ = shape->gated;
    ffn_ = shape->ffn;
    kv_heads_ = shape->kv_heads;
  }
  const std::string about = s.strategy + " " + s.note;
  flash_ = sheet_.fused;
  recomputes_ = s.recompute.starts_with("full");
  selective_ = s.recompute.starts_with("selective");
  fp8_ = mentions(s.precision, "fp8") || mentions(s.precision, "FP8");
  fp4_ = mentions(s.precision, "fp4") || mentions(s.precision, "FP4");
  adapts_ = mentions(about, "LoRA");
  sequence_parallel_ = mentions(about, "sequence parallel");
  overlaps_ = !mentions(about, "no gradient bucket");
  if (mentions(about, "DEFAULT")) reduced_bytes_ = 4;  // FSDP's mixed precision of that name reduces in fp32
}

double TransformerStep::layer_parameters() const {
  const double head_size = hidden_ / heads_;
  return hidden_ * (hidden_ + 2 * kv_heads_ * head_size) + hidden_ * hidden_ + (gated_ ? 3 : 2) * hidden_ * ffn_;
}
double TransformerStep::end_parameters() const { return vocabulary_ * hidden_; }

/// Of products in 8 or 4 bits, relative to those in 16.
double TransformerStep::narrow_gain(const Terms& t) const {
  constexpr double of_four_bits = 1.4;  // relative to 8 bits, whose peak is half
  return (fp8_ || fp4_ ? t[Term::fp8_gain] : 1) * (fp4_ ? of_four_bits : 1);
}

/// Tiles of 256 x 128 down to 128 x 64 fill the multiprocessors in waves; the last wave may be mostly empty. Short k
/// does not fill the pipeline of a tile.
double TransformerStep::product(const Terms& t, double m, double n, double k) const {
  struct Tile {
    double rows, columns, share;
  };
  constexpr std::array tiles{Tile{256, 128, 1.0}, Tile{128, 128, 0.93}, Tile{128, 64, 0.8}, Tile{64, 64, 0.65}};
  double filled = 1;
  if (sheet_.multiprocessors > 0) {
    filled = 0;
    for (const Tile& tile : tiles) {
      const double needed = std::ceil(m / tile.rows) * std::ceil(n / tile.columns);
      const double waves = std::ceil(needed / sheet_.multiprocessors);
      filled = std::max(filled, tile.share * m * n / (waves * sheet_.multiprocessors * tile.rows * tile.columns));
    }
  }
  constexpr double half_k = 128;
  const double rate = t[Term::product_share] * sheet_.peak_16 * narrow_gain(t) * filled;
  const double bytes = element_bytes * (m * k + k * n + m * n);
  return std::max(2 * m * n * k / rate * (1 + half_k / k), bytes / (0.8 * sheet_.memory_bytes_per_s));
}

double TransformerStep::all_reduce(const Terms& t, double bytes, double members, double within_node,
                                   double groups_of_node) const {
  if (members <= 1) return 0;
  const bool crosses = within_node < members;
  double rate = t[Term::within_rate];
  if (crosses) rate = std::min(rate, t[Term::between_rate] / std::max(1.0, groups_of_node));
  const double hops = crosses ? 2 * (within_node - 1) + 2 * std::log2(members / within_node) : 2 * (members - 1);
  return hops * t[Term::latency] + 2 * (members - 1) / members * bytes / rate;
}

TransformerStep::Layer TransformerStep::layer(const Terms& t) const {
  const double b = micro_batch_, s = sequence_ / context_, h = hidden_, d = h / heads_, tp = tensor_;
  const double tokens = b * s, memory = 0.8 * sheet_.memory_bytes_per_s;
  const double products = product(t, tokens, (h + 2 * kv_heads_ * d) / tp, h) + product(t, tokens, h, h / tp) +
                          product(t, tokens, (gated_ ? 2 : 1) * ffn_ / tp, h) + product(t, tokens, h, ffn_ / tp);
  const double attention_flops = 4 * b * (heads_ / tp) * s * sequence_ * d;
  // Flash attention computes the lower half only; short sequences fill it badly.
  constexpr double half_sequence = 1024;
  const double attention_rate =
      t[Term::product_share] * sheet_.peak_16 * t[Term::attention_share] / (flash_ ? 1 + half_sequence / sequence_ : 1);
  const double attention =
      flash_ ? attention_flops / 2 / attention_rate : attention_flops / (t[Term::product_share] * sheet_.peak_16) * 1.5;
  // Scores are written, masked, and read again where nothing is fused.
  const double softmax = flash_ ? 0 : 5 * element_bytes * b * (heads_ / tp) * s * sequence_ / memory;
  constexpr double passes = 10;  // over activations of a layer: norms, residuals, dropout, the nonlinearity
  const double loops =
      t[Term::traffic] * element_bytes * tokens *
      (0.6 * passes * h / (sequence_parallel_ ? tp : 1) + 0.4 * passes * (gated_ ? 2 : 1) * ffn_ / (4 * tp)) / memory;
  const double launch = t[Term::launch] * (tp > 1 ? t[Term::tensor_launch] : 1);
  const double forward = products + attention + softmax + loops;
  // Low-rank adapters get gradients of activations, and next to none of weights.
  const double backward = (adapts_ ? 1 : 2) * products + (flash_ ? 2.5 : 2) * attention + 2 * softmax + 2 * loops;
  const auto floored = [](double x, double o) { return std::pow(std::pow(x, 4) + std::pow(o, 4), 0.25); };
  return {
      floored(forward, launch), floored(backward, 2 * launch),
      2 * all_reduce(t, element_bytes * tokens * h, tp, std::min(tp, static_cast<double>(sheet_.gpus_per_node)), 1)};
}

/// The last stage's products and loss, and the first one's embedding, of one micro-batch.
double TransformerStep::head(const Terms& t) const {
  const double tokens = micro_batch_ * sequence_ / context_, memory = 0.8 * sheet_.memory_bytes_per_s;
  return 3 * product(t, tokens, vocabulary_ / tensor_, hidden_) + 16 * tokens * vocabulary_ / tensor_ / memory +
         16 * tokens * hidden_ / memory;
}

StepParts TransformerStep::parts(const Terms& t) const {
  StepParts p;
  const Layer one = layer(t);
  const double recomputed = recomputes_ ? one.forward : selective_ ? 0.1 * one.forward : 0;
  const double ends = head(t);
  const double node = static_cast<double>(sheet_.gpus_per_node);
  const double local_parameters = layers_ / pipeline_ * layer_parameters() / tensor_ + end_parameters() / tensor_;
  const double members = data_ * context_;
  const double within =
      std::clamp(std::floor(node / (tensor_ * (pipeline_ * tensor_ <= node ? pipeline_ : 1))), 1.0, members);
  const double groups = std::clamp(node / within, 1.0, node);
  if (zero_ == 3) {
    // Every layer's weights are gathered twice and its gradients scattered once in each micro-batch.
    const double bytes = element_bytes * layer_parameters() / tensor_;
    const double gather = all_reduce(t, bytes, members, within, groups) / 2;
    const double scatter = gather * reduced_bytes_ / element_bytes;
    const auto together = [&](double compute, double exchange) {
      const double hidden = std::min(compute, exchange);
      return std::pair{compute + t[Term::interference] * hidden, std::max(0.0, exchange - compute)};
    };
    const auto [forward, forward_exposed] = together(one.forward, gather);
    const auto [backward, backward_exposed] = together(one.backward + recomputed, gather + scatter);
    p.compute = micro_batches_ * (layers_ * (forward + backward) + ends);
    p.data_exchange = micro_batches_ * layers_ * (forward_exposed + backward_exposed) +
                      micro_batches_ * (end_parameters() / layer_parameters()) * (2 * gather + scatter);
    p.tensor_exchange = micro_batches_ * layers_ * 2 * one.exchange;
  } else {
    const double layer_s = one.forward + one.backward + recomputed;
    const double exchange_s = one.exchange * (recomputes_ ? 3 : 2);
    std::vector<double> stages(static_cast<std::size_t>(pipeline_), layers_ / pipeline_ * (layer_s + exchange_s));
    stages.back() += ends;
    const double longest = *std::ranges::max_element(stages);
    const double sum = std::accumulate(stages.begin(), stages.end(), 0.0);
    const double message = element_bytes * micro_batch_ * sequence_ / context_ * hidden_;
    const bool crosses = pipeline_ * tensor_ > node;
    const double hop = t[Term::latency] + message / (crosses ? t[Term::between_rate] / tensor_ : t[Term::within_rate]);
    p.compute = micro_batches_ * (longest - layers_ / pipeline_ * exchange_s);
    p.tensor_exchange = micro_batches_ * layers_ / pipeline_ * exchange_s;
    p.pipeline_wait = pipeline_ > 1 ? (sum - longest + 2 * (pipeline_ - 1) * hop) / virtual_stages_ : 0;
    const double reduce = all_reduce(t, element_bytes * local_parameters, members, within, groups);
    const double backward_s = layers_ / pipeline_ * (one.backward + recomputed);
    p.data_exchange =
        overlaps_ ? std::max(0.0, reduce - backward_s) + t[Term::interference] * std::min(reduce, backward_s) : reduce;
  }
  // Adam in mixed precision reads and writes weights, their fp32 copies, two moments and the gradient.
  constexpr double update_bytes = 30;
  const double shards = zero_ >= 1 ? members : 1;
  p.update = t[Term::optimizer] * update_bytes * local_parameters / shards / (0.8 * sheet_.memory_bytes_per_s);
  if (zero_ == 3)
    p.update = t[Term::optimizer] * update_bytes * (layers_ * layer_parameters() + end_parameters()) / shards /
               (0.8 * sheet_.memory_bytes_per_s);
  p.fixed = t[Term::fixed];
  return p;
}

double TransformerStep::flops() const {
  const double tokens = micro_batches_ * micro_batch_ * data_ * sequence_;
  return 6 * tokens * (layers_ * layer_parameters() + end_parameters()) + 12 * layers_ * hidden_ * sequence_ * tokens;
}

}  // namespace gradmeter::predict
