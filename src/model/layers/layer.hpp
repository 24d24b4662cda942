// One layer of a network: its tensors, what it costs, and its forward and backward pass.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "kernels/op.hpp"
#include "kernels/problems/problem.hpp"
#include "model/part.hpp"
#include "runtime/device.hpp"
#include "runtime/queue.hpp"

namespace gradmeter::model {

/// What one sample of a layer's input or output is; memory in the order of the fields, samples one after another.
struct FeatureShape {
  std::size_t count = 0;
};
struct ImageShape {
  std::size_t channels = 0, height = 0, width = 0;
};
struct TokenShape {
  std::size_t steps = 0, features = 0;
};
using SampleShape = std::variant<FeatureShape, ImageShape, TokenShape>;
std::size_t elements(const SampleShape&);

/// tied: a language model's softmax has the embedding's weight (Press & Wolf, EACL 2017).
enum class Weight : std::uint8_t { own, tied };

struct LayerTensor {
  std::string name;
  std::vector<std::size_t> shape;
  double bound = 0;  ///< initial values are uniform within centre ± bound
  double centre = 0;
  /// It is the network's first layer's first tensor, of this shape: one place for both. Its gradient is written by this
  /// layer and added to by that one, whose tensor is ready then.
  bool is_lent = false;
  WholePlace whole = {};  ///< in the tensor of the whole layer; columns 0: it is that tensor
};
std::size_t elements(const LayerTensor&);

/// How the tensor ranks of a stage share a layer. Layers go in pairs: the first is cut by outputs, the second by
/// inputs, so that the activations between them need no exchange. Layers between the two have some features each.
/// Source: Shoeybi et al., "Megatron-LM", 2019, section 3.
enum class Cut : std::uint8_t {
  outputs,  ///< each rank has some outputs; the gradients by the layer's input must be added
  inputs,   ///< each rank has some inputs; the partial sums of outputs must be added
  between,  ///< between such two: each rank has some features, or heads, of input and output alike
  within    ///< of layers in a layer: input and output are whole on each rank, pairs of layers in it are cut
};
/// What a part of a layer adds up over the ranks that share it: buffers that it is given, in memory of its peers.
struct LayerSums {
  bool output = false, input_gradient = false;
  /// Of layers within it, in order: floats of a sample that each sum has. Each is made in memory of its own (`shared`).
  std::vector<std::size_t> forward = {}, backward = {};
};

/// Plain memory, fp32. Parameters and gradients by tensor: lists that the caller keeps until the call returns.
struct LayerForward {
  runtime::Queue& queue;
  kernels::BufferList<runtime::ConstBuffer> parameters;
  runtime::ConstBuffer input;
  runtime::Buffer output;
  Peers* peers = nullptr;  ///< of a part: for its sums
  /// In memory of its peers, for the sums within it, those forward first; at least as long as the samples need. The
  /// backward pass is given those of the forward pass.
  kernels::BufferList<runtime::Buffer> shared = {};
};
struct LayerBackward {
  runtime::Queue& queue;
  kernels::BufferList<runtime::ConstBuffer> parameters;
  runtime::ConstBuffer input, output;              ///< of the forward pass
  runtime::Buffer output_gradient;                 ///< the layer may overwrite it
  runtime::Buffer input_gradient;                  ///< empty: nobody needs it
  kernels::BufferList<runtime::Buffer> gradients;  ///< overwritten
  std::function<void(std::size_t tensor)> ready;
  Peers* peers = nullptr;  ///< of a part: for its sums
  kernels::BufferList<runtime::Buffer> shared = {};
};

struct LayerProblems {
  std::vector<kernels::Problem> forward, backward;
};

/// A layer at one number of samples, with the operations that it runs and their memory. Lives until its work is done.
/// What a pass submits depends on its operands alone: a pass on the same ones may submit that work again without
/// calling it (`RecordedPass`). Where the layer is not a part, it asks the queue for no events.
class PreparedLayer {
 public:
  virtual ~PreparedLayer() = default;
  virtual void forward(const LayerForward&) = 0;
  /// After the forward pass of the same samples. Calls `ready` once for each tensor, in their order.
  virtual void backward(const LayerBackward&) = 0;
};

/// Least and greatest of the numbers that were seen, and zero.
struct ActivationRange {
  float least = 0, greatest = 0;
  void add(std::span<const float>);
};

/// A trained layer, for forward passes alone.
struct InferenceRequest {
  std::size_t samples = 1;
  kernels::Precision precision = kernels::Precision::fp32;
  std::vector<runtime::ConstBuffer> parameters = {};  ///< by tensor, fp32; they stay as they are
  ActivationRange input = {};                         ///< of the layer's inputs, where whole numbers stand for them
};
class InferenceLayer {
 public:
  virtual ~InferenceLayer() = default;
  /// Plain memory, fp32.
  virtual void forward(runtime::Queue&, const runtime::ConstBuffer& input, const runtime::Buffer& output) = 0;
  /// What the backend of its products says; empty: it has none.
  virtual std::string implementation() const { return {}; }
};

class Layer {
 public:
  virtual ~Layer() = default;
  virtual std::string name() const = 0;  ///< "conv:16x3x3"
  virtual SampleShape input() const = 0;
  virtual SampleShape output() const = 0;
  /// In the order in which their gradients become ready.
  virtual std::span<const LayerTensor> tensors() const = 0;
  /// The operations that a prepared layer runs. Limits and the FLOP of a step are made of them.
  virtual LayerProblems problems(std::size_t samples, bool input_gradient) const = 0;
  /// Activations and gradients of a sample that it holds beside its output and what it is given as `shared`.
  virtual std::size_t held_elements() const { return 0; }
  /// For the calling thread's compute_threads() and queues of this device; with `input_gradient` for a backward pass
  /// that computes it. Errors: UsageError or BackendError when no backend takes one of its operations.
  virtual std::unique_ptr<PreparedLayer> prepare(std::size_t samples, bool input_gradient, runtime::Device&) const = 0;
  /// The part that one of `ranks` tensor ranks holds; null: it cannot be cut so. Shapes, tensors and costs are the
  /// part's. The width that is cut must be a multiple of `ranks` where the part is to be run. Errors: UsageError where
  /// it can be cut, but not evenly.
  virtual std::unique_ptr<Layer> part(Cut, std::size_t rank, std::size_t ranks) const {
    return (void)rank, (void)ranks, nullptr;
  }
  virtual LayerSums sums() const { return {}; }

  /// Why it is not inferred in a precision; empty: it is. Without an override a layer is inferred as it trains: in
  /// fp32, and where it runs no operation beside any precision of the others.
  virtual std::string inference_refusal(kernels::Precision) const;
  /// As `prepare`, and weights are packed here, once. Errors: those of `prepare`.
  virtual std::unique_ptr<InferenceLayer> prepare_inference(const InferenceRequest&, runtime::Queue&) const;
};

/// The first reason why no backend takes one of these in another precision; empty: all are taken.
std::string refusal_in(kernels::Precision, std::vector<kernels::Problem>);

}  // namespace gradmeter::model
