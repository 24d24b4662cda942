// SPDX-License-Identifier: Apache-2.0
// The time of a training step on a machine of which few terms are known: products, traffic, launches, exchanges,
// pipelines. Sources: Narayanan et al., SC 2021 (pipelines, tensor parallelism); Zhao et al., VLDB 2023 (FSDP);
// Rajbhandari et al., SC 2020 (ZeRO); docs/predict.md has each formula.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "predict/measurements.hpp"

namespace gradmeter::predict {

/// The terms of a machine that are fitted, in the order of Terms::values.
enum class Term : std::uint8_t {
  product_share,    ///< of the peak that long products reach
  traffic,          ///< bytes moved by loops over activations, relative to the least
  launch,           ///< time that the host takes for the kernels of a layer's forward [s]
  tensor_launch,    ///< factor of `launch` where layers are split over GPUs
  attention_share,  ///< of the rate of products that attention reaches
  within_rate,      ///< of an all-reduce in a node: bytes/s of the bus
  between_rate,     ///< of a node's ports to others [bytes/s]
  latency,          ///< of a step of a collective [s]
  interference,     ///< share of hidden communication that lengthens computation all the same
  fp8_gain,         ///< products in fp8 relative to bf16's rate
  optimizer,        ///< factor of the traffic of an update
  fixed,            ///< time of a step besides [s]
};
inline constexpr std::size_t term_count = 12;
std::string_view name(Term);

struct Prior {
  double middle;  ///< the value without any measurement
  double width;   ///< standard deviation of its logarithm
};

/// Terms of one machine, each positive.
struct Terms {
  std::array<double, term_count> values = {};
  double operator[](Term t) const { return values.at(static_cast<std::size_t>(t)); }
  double& operator[](Term t) { return values.at(static_cast<std::size_t>(t)); }
};

/// What is known of a machine from its data sheet.
struct Sheet {
  double peak_16 = 0;  ///< FLOP/s in bf16, or fp16
  double memory_bytes_per_s = 0;
  double multiprocessors = 0;      ///< 0: not known; tiles then fill the device
  double within_bytes_per_s = 0;   ///< a GPU's link to others of its node, one direction
  double between_bytes_per_s = 0;  ///< of a node's ports
  std::size_t gpus_per_node = 0;
  bool fused = true;  ///< false: software of before flash attention, which launches more kernels a layer
};
/// Errors by value: the reason why there is none.
struct SheetOrReason {
  std::optional<Sheet> sheet;
  std::string reason;
};
SheetOrReason sheet_of(const MeasuredStep&);
std::array<Prior, term_count> priors_of(const Sheet&);

/// Parts of a step [s].
struct StepParts {
  double compute = 0, tensor_exchange = 0, pipeline_wait = 0, data_exchange = 0, update = 0, fixed = 0;
  double step() const { return compute + tensor_exchange + pipeline_wait + data_exchange + update + fixed; }
  void scale(double factor) {
    for (double* part : {&compute, &tensor_exchange, &pipeline_wait, &data_exchange, &update, &fixed}) *part *= factor;
  }
};

/// A transformer's step, from a row that states layers, hidden size and sequence.
class TransformerStep {
 public:
  /// The reason why this row cannot be predicted; empty: it can.
  static std::string refusal(const MeasuredStep&);
  /// Precondition: not refused.
  TransformerStep(const MeasuredStep&, const Sheet&);
  StepParts parts(const Terms&) const;
  double seconds(const Terms& t) const { return parts(t).step(); }
  double flops() const;  ///< of the model's products and attention in a step, all GPUs, without recomputation

 private:
  struct Completed {};
  TransformerStep(const MeasuredStep&, const Sheet&, Completed);
  struct Layer {
    double forward, backward, exchange;  ///< [s]; exchange: of tensor parallelism, of one pass
  };
  double narrow_gain(const Terms&) const;
  double product(const Terms&, double m, double n, double k) const;
  Layer layer(const Terms&) const;
  double head(const Terms&) const;
  double all_reduce(const Terms&, double bytes, double members, double within_node, double groups_of_node) const;
  double layer_parameters() const;
  double end_parameters() const;

  Sheet sheet_;
  bool flash_ = true, gated_ = false, recomputes_ = false, selective_ = false, fp8_ = false, fp4_ = false,
       adapts_ = false, sequence_parallel_ = false;
  bool overlaps_ = true;
  double layers_, hidden_, heads_, kv_heads_, ffn_, sequence_, vocabulary_;
  double micro_batch_, micro_batches_, data_, tensor_, pipeline_, context_, virtual_stages_;
  int zero_;
  double reduced_bytes_ = 2;  ///< of a gradient when it is exchanged
};

}  // namespace gradmeter::predict
