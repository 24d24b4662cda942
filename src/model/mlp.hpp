// A fully connected network with ReLU between its layers and softmax cross-entropy on top: almost all of its time is
// matrix products, so it is the plainest carrier for questions of batch, precision and exchange.
#pragma once
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "kernels/aligned.hpp"
#include "kernels/gemm.hpp"
#include "model/model.hpp"

namespace gradmeter::model {

/// Tensors, last layer first: for each layer its weight [out × in], whose gradient is computed first, then its bias
/// [out]; each starts on a multiple of 16 floats, the gaps between are zero in both buffers and stay so.
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
  explicit Mlp(std::vector<std::size_t> widths, std::string gemm_backend = "onednn");

  const std::string& name() const override { return name_; }
  std::span<const Tensor> tensors() const override { return tensors_; }
  std::size_t element_count() const override { return element_count_; }
  std::size_t input_features() const override { return widths_.front(); }
  std::size_t classes() const override { return widths_.back(); }
  /// Matrix products only: the rest is under 1 % and by convention not counted.
  double step_flops(std::size_t samples) const override;
  /// Activations and their gradients; the GEMM library's own scratch not counted.
  std::size_t workspace_bytes(std::size_t samples) const override;

  void initialise(Buffers, std::uint64_t seed) const override;
  /// Buffers.gradients may be empty here: validation needs none.
  Outcome forward(Computer&, Buffers, const Batch&) override;
  void backward(Computer&, Buffers, const Batch&, const Ready& ready) override;

 private:
  /// All that a layer needs at one batch size.
  struct Layer {
    kernels::AlignedVector<float> output, delta;  ///< [samples × out]; delta is the loss's gradient by the output
    kernels::GemmProblem forward_problem, weight_problem, input_problem;
    std::unique_ptr<kernels::Gemm> forward, weight, input;
  };
  /// All layers at one batch size and one number of threads (a Gemm is bound to it).
  struct Workspace {
    std::size_t samples;
    int threads;
    std::vector<Layer> layers;
  };

  std::size_t layers() const { return widths_.size() - 1; }
  const Tensor& weight(std::size_t layer) const { return tensors_[2 * (layers() - 1 - layer)]; }
  const Tensor& bias(std::size_t layer) const { return tensors_[2 * (layers() - 1 - layer) + 1]; }
  Workspace& workspace_for(std::size_t samples);
  void prepare_forward(Workspace&) const;
  void prepare_backward(Workspace&) const;
  void check(Buffers, const Batch&) const;
  void weight_gradients(Computer&, std::span<float> gradients, Layer&, std::size_t layer, std::span<const float> input,
                        const Ready&) const;
  void zero_padding(std::span<float> gradients, std::size_t tensor) const;

  std::vector<std::size_t> widths_;
  std::string gemm_backend_, name_;
  std::vector<Tensor> tensors_;
  std::size_t element_count_ = 0;
  std::list<Workspace> workspaces_;  ///< a run sees few batch sizes; each is made ready once
  Workspace* current_ = nullptr;     ///< what the last forward filled
};

}  // namespace gradmeter::model
