// SPDX-License-Identifier: Apache-2.0
// Predicts the time of a transformer's training step from a few terms of the machine, as the sum of the times of matrix
// products, memory traffic, launches, exchanges and pipeline waits. Formulas: docs/predict.md.
// Sources: Narayanan et al., SC 2021 (pipelines, tensor parallelism); Zhao et al., VLDB 2023 (FSDP); Rajbhandari et
// al., SC 2020 (ZeRO).
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/machine.hpp"
#include "predict/measurements.hpp"

namespace gradmeter::predict {

/// The terms of a machine that are fitted, in the order of Terms::values.
enum class Term : std::uint8_t {
  product_share,    ///< share of the peak FLOP/s that large matrix products reach
  traffic,          ///< bytes moved by loops over activations, relative to the fewest possible
  launch,           ///< time that the host takes to launch the kernels of a layer's forward pass [s]
  tensor_launch,    ///< factor of `launch` where tensor ranks share layers
  attention_share,  ///< share of the rate of products that attention reaches
  within_rate,      ///< busbw of an all-reduce in a node [bytes/s]
  between_rate,     ///< rate of a node's ports to other nodes [bytes/s]
  latency,          ///< latency of one round of a collective [s]
  interference,     ///< by how much a hidden exchange lengthens computation, as a share of the hidden time
  fp8_gain,         ///< rate of products in fp8, relative to bf16
  optimizer,        ///< memory traffic of an update, relative to 30 bytes for each parameter that a rank updates
  fixed,            ///< time of a step that nothing else explains [s]
};
inline constexpr std::size_t term_count = 12;
std::string_view name(Term);

struct Prior {
  double middle;  ///< the most probable value before any measurement
  double width;   ///< standard deviation of its logarithm
};

/// Terms of one machine, each positive.
struct Terms {
  std::array<double, term_count> values = {};
  double operator[](Term t) const { return values.at(static_cast<std::size_t>(t)); }
  double& operator[](Term t) { return values.at(static_cast<std::size_t>(t)); }
};

/// The machine that follows from a row's device name and its GPUs a node, or the reason why there is none.
struct MachineOrReason {
  std::optional<core::Machine> machine;
  std::string reason;
};
MachineOrReason machine_of(const TrainingStep&);
/// The priors of the terms on this machine. They depend on the row's precision and software too. Precondition: the
/// machine has a device with a peak and a memory rate.
std::array<Prior, term_count> priors_of(const core::Machine&, const TrainingStep&);
/// The terms of the machine's fit where it has one, else the middles of the priors.
Terms terms_of(const core::Machine&, const TrainingStep&);
/// The reason why no step can be predicted on this machine: it has no device, or a data sheet that lacks a peak or a
/// memory rate. Empty: steps can be predicted.
std::string machine_refusal(const core::Machine&);

/// Published networks, which tables and users give by name. Sources: Grattafiori et al., "The Llama 3 herd of models",
/// 2024, table 3; Touvron et al., "Llama 2", 2023; Brown et al., 2020, table 2.1; Scao et al., "BLOOM", 2022;
/// MosaicML's configurations of MPT, InternLM's of 7B.
struct NetworkShape {
  std::string_view name;
  std::size_t layers, hidden, heads, vocabulary, ffn, kv_heads;
  bool is_gated = true;
};
std::span<const NetworkShape> network_shapes();
/// The row; values that it does not state are taken from its network's name.
TrainingStep completed(TrainingStep);

/// Parts of a step [s].
struct StepParts {
  double compute = 0, tensor_exchange = 0, pipeline_wait = 0, data_exchange = 0, update = 0, fixed = 0;
  double step() const { return compute + tensor_exchange + pipeline_wait + data_exchange + update + fixed; }
  void scale(double factor) {
    for (double* part : {&compute, &tensor_exchange, &pipeline_wait, &data_exchange, &update, &fixed}) *part *= factor;
  }
};

/// The memory of the rank that needs most in a transformer's mesh [bytes]. A step needs more than this: memory that the
/// allocator loses, workspaces of libraries, and buffers of collectives are not counted.
struct MemoryParts {
  double weights = 0;  ///< with ZeRO-3, also the gathered weights of two layers
  double gradients = 0;
  double optimizer = 0;    ///< Adam's state: two moments, and fp32 copies of weights that are narrower
  double activations = 0;  ///< kept for the backward pass, and the logits
  double total() const { return weights + gradients + optimizer + activations; }
};

/// A transformer's step, from a row that states layers, hidden size and sequence.
class TransformerStep {
 public:
  /// The reason why this row cannot be predicted; empty: it can.
  static std::string refusal(const TrainingStep&);
  /// Precondition: not refused.
  TransformerStep(const TrainingStep&, const core::Machine&);
  /// The reason why the chosen exchange cannot be predicted on these ranks; empty: it can.
  std::string exchange_refusal() const;
  /// Precondition: the exchange is not refused.
  StepParts parts(const Terms&) const;
  double seconds(const Terms& t) const { return parts(t).step(); }
  MemoryParts memory() const;
  /// FLOP of products and attention in a step, of all GPUs, without recomputation.
  double flops() const;
  /// Parameters of the whole network.
  double parameters() const { return layers_ * layer_parameters() + embedding_parameters(); }

 private:
  struct AlreadyCompleted {};
  TransformerStep(const TrainingStep&, const core::Machine&, AlreadyCompleted);
  struct Layer {
    double forward, backward, exchange;  ///< [s]; exchange: that of tensor parallelism in one pass
  };
  struct DataAxis {
    /// members: number of ranks that exchange gradients with each other (data × context); within: how many of them are
    /// on one node; groups_per_node: how many such groups share a node's ports.
    double members, within, groups_per_node;
  };
  DataAxis data_axis() const;
  double low_precision_speedup(const Terms&) const;
  double product(const Terms&, double m, double n, double k) const;
  Layer layer(const Terms&) const;
  double embedding_and_logits_s(const Terms&) const;
  /// The time of an all-reduce of `members` ranks, `within_node` of them on each node [s]. groups_of_node: groups of
  /// ranks that share a node's ports. algorithm: empty for the default of `ExchangeChoice`.
  double all_reduce(const Terms&, double bytes, double members, double within_node, double groups_of_node,
                    const std::string& algorithm = {}) const;
  double layer_parameters() const;
  double embedding_parameters() const;

  double peak_, memory_rate_, gpus_per_node_;  ///< peak of products [FLOP/s], rate of memory [bytes/s]
  std::uint32_t multiprocessors_;
  std::vector<core::Tile> tiles_;
  core::Link link_;  ///< within a node
  bool flash_ = true, gated_ = false, recomputes_ = false, recomputes_selectively_ = false, fp8_ = false, fp4_ = false,
       has_adapters_ = false, sequence_parallel_ = false;
  bool overlaps_ = true;
  double layers_, hidden_, heads_, kv_heads_, ffn_, sequence_, vocabulary_;
  /// micro_batch_: samples; data_, tensor_, pipeline_, context_: degrees of parallelism.
  double micro_batch_, micro_batches_, data_, tensor_, pipeline_, context_, virtual_stages_;
  double global_batch_;  ///< samples of a step of all ranks
  int zero_;
  double element_bytes_ = 2;  ///< bytes of an element of activations and weights
  double reduced_bytes_ = 2;  ///< bytes of an element of a gradient when it is exchanged
  double gradient_coding_passes_ = 0;
  ExchangeChoice exchange_;
};

}  // namespace gradmeter::predict
