// A fully connected network with ReLU between its layers and softmax cross-entropy on top. Almost all of its time is
// matrix products, so it suits experiments with batch, precision and exchange.
#pragma once
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "kernels/aligned.hpp"
#include "kernels/gemm.hpp"
#include "model/mlp_shard.hpp"

namespace gradmeter::model {

/// A whole network on one rank; `split_mlp.hpp` has parts of one. Tensors as in `MlpShard`; a weight's gradient is
/// computed before its bias's.
/// A weight lies as [out × in], as in most frameworks: measured with oneDNN 2.6 on AVX-512 at batch 16 and 256, a
/// step's products take as long as with [in × out] within 2 %, and the narrow last layer's gradient 0.6 times as long.
/// Cost: 2·(weights) FLOP a sample forward; backward twice that, less the first layer's input gradient.
/// Errors: UsageError for fewer than 2 widths, more than 64, or a width outside 1 … 65536. forward and backward throw
/// std::invalid_argument on buffers or batches of the wrong size, std::logic_error on a backward that no forward of
/// this batch size came right before.
/// Source: initialisation He et al., "Delving deep into rectifiers", ICCV 2015 (uniform, variance 2/in); biases zero.
class Mlp final : public Model {
 public:
  /// widths: features, hidden layers, classes.
  explicit Mlp(std::vector<std::size_t> widths,
               std::string gemm_backend = std::string(kernels::gemm_backends().front().name));

  const std::string& name() const override { return shard_.name(); }
  std::span<const Tensor> tensors() const override { return shard_.tensors(); }
  std::size_t element_count() const override { return shard_.element_count(); }
  std::size_t input_features() const override { return shard_.widths().front(); }
  std::size_t classes() const override { return shard_.widths().back(); }
  /// Matrix products only: the rest is under 1 % and by convention not counted.
  double step_flops(std::size_t samples) const override { return shard_.step_flops(samples); }
  std::vector<RepeatedProduct> pass_products(std::size_t n) const override { return shard_.pass_products(n); }
  std::vector<RepeatedProduct> forward_products(std::size_t n) const override { return shard_.forward_products(n); }
  /// Activations and their gradients; the GEMM library's own scratch not counted.
  std::size_t workspace_bytes(std::size_t samples) const override;

  void initialise(Buffers b, std::uint64_t seed) const override { shard_.initialise(b, seed); }
  /// Buffers.gradients may be empty here: validation needs none.
  Outcome forward(Queue&, Buffers, const Batch&) override;
  void backward(Queue&, Buffers, const Batch&, const Ready& ready) override;

 private:
  /// All that a layer needs at one batch size.
  struct Layer {
    kernels::AlignedVector<float> output, delta;  ///< [samples × out]; delta is the loss's gradient by the output
    LayerProducts products;
    std::unique_ptr<kernels::Gemm> forward, weight, input;
  };
  /// All layers at one batch size and one number of threads (a Gemm is bound to it).
  struct Workspace {
    std::size_t samples;
    int threads;
    std::vector<Layer> layers;
  };

  std::size_t layers() const { return shard_.layers().size(); }
  std::size_t width(std::size_t i) const { return shard_.widths()[i]; }
  const Tensor& weight(std::size_t layer) const { return shard_.weight(shard_.layers()[layer]); }
  const Tensor& bias(std::size_t layer) const { return shard_.bias(shard_.layers()[layer]); }
  Workspace& workspace_for(std::size_t samples);
  void prepare_forward(Workspace&) const;
  void prepare_backward(Workspace&) const;
  void check(Buffers, const Batch&) const;
  void weight_gradients(Queue&, std::span<float> gradients, Layer&, std::size_t layer, std::span<const float> input,
                        const Ready&) const;

  MlpShard shard_;
  std::string gemm_backend_;
  std::list<Workspace> workspaces_;  ///< a run has few batch sizes; each is prepared once
  Workspace* current_ = nullptr;     ///< what the last forward filled
};

}  // namespace gradmeter::model
