// A model that is a list of layers with softmax cross-entropy on top.
#pragma once
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "model/layers/layer.hpp"
#include "model/model.hpp"

namespace gradmeter::model {

/// Tensors, last layer first, and each layer's in its own order; each starts on a multiple of 16 floats, the gaps
/// between are zero in both buffers and stay so. Initial numbers depend on the seed, the layer's and the tensor's
/// place. Memory: for each number of samples that it is run with, activations, their gradients, and what the layers
/// hold. Errors: UsageError when a layer does not take what the one before gives, or the last one gives no features;
/// std::invalid_argument on buffers or batches of the wrong size.
class Network final : public Model {
 public:
  Network(std::string name, std::vector<std::unique_ptr<Layer>> layers);

  const std::string& name() const override { return name_; }
  std::span<const Tensor> tensors() const override { return tensors_; }
  std::size_t element_count() const override { return element_count_; }
  std::size_t input_features() const override { return elements(layers_.front()->input()); }
  std::size_t classes() const override { return elements(layers_.back()->output()) / labels(); }
  /// One for each step where the last layer gives tokens.
  std::size_t labels() const override;
  /// All passes of all layers, but for the gradient of the first layer's input.
  double step_flops(std::size_t samples) const override;
  std::vector<RepeatedProblem> pass_problems(std::size_t n) const override { return problems(n, true); }
  std::vector<RepeatedProblem> forward_problems(std::size_t n) const override { return problems(n, false); }
  /// Activations and their gradients; what the layers hold (packed operands, scratch) is not counted.
  std::size_t workspace_bytes(std::size_t samples) const override;

  void initialise(Queue&, Buffers, std::uint64_t seed) const override;
  void run_forward(Queue&, Buffers, const Batch&, const OutcomePlace&) override;
  void run_pass(Queue&, Buffers, const Batch&, const Ready&, const OutcomePlace&) override;

 private:
  struct Activation {
    runtime::OwnedBuffer values, gradient;
  };
  /// All layers at one number of samples, for one number of threads and one device.
  struct Workspace {
    std::size_t samples;
    int threads;
    runtime::Device* device;
    std::vector<std::unique_ptr<PreparedLayer>> layers = {};
    std::vector<Activation> outputs = {};  ///< by layer
  };

  void add_tensors(std::size_t layer);
  std::vector<RepeatedProblem> problems(std::size_t samples, bool backward) const;
  Workspace& workspace_for(Queue&, std::size_t samples);
  void check(Buffers, const Batch&) const;
  template <class AnyBuffer>
  std::vector<AnyBuffer> parts(const AnyBuffer& flat, std::size_t layer) const;
  void forward_layers(Queue&, Workspace&, Buffers, const Batch&) const;
  void backward_layers(Queue&, Workspace&, Buffers, const Batch&, const Ready&) const;
  void zero_gaps(Queue&, const Buffer& gradients) const;

  std::string name_;
  std::vector<std::unique_ptr<Layer>> layers_;
  std::vector<Tensor> tensors_;
  std::vector<std::size_t> first_tensor_;  ///< by layer
  std::size_t element_count_ = 0;
  std::list<Workspace> workspaces_;  ///< a run sees few numbers of samples
};

}  // namespace gradmeter::model
