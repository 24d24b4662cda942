// SPDX-License-Identifier: Apache-2.0
// One layer of a network: its tensors, costs, forward and backward passes, and the parts of it that tensor ranks hold.
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
#include "model/network/part.hpp"
#include "runtime/device.hpp"

namespace gradmeter::model {

/// The shape of one sample of a layer's input or output. In memory a sample is row-major with its dimensions in the
/// order of the fields; samples follow one another.
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

/// own: the layer has its own weight. tied: a language model's softmax shares the embedding's weight (Press & Wolf,
/// EACL 2017).
enum class Weight : std::uint8_t { own, tied };

struct LayerTensor {
  std::string name;
  std::vector<std::size_t> shape;
  double bound = 0;  ///< initial values are drawn uniformly within centre ± bound
  double centre = 0;
  /// True if this tensor is also the first tensor of the layer `owner`, with the same shape and memory. This layer
  /// writes the gradient and the owner adds to it; the tensor is ready after that.
  bool is_tied = false;
  std::size_t owner = 0;         ///< number of a layer of the whole network, before this one
  WholePlace whole = {};         ///< place in the uncut layer's tensor; columns 0: this is the whole tensor
  bool has_unique_name = false;  ///< true: no other tensor has this name; false: the network adds the layer's number
};
std::size_t elements(const LayerTensor&);

/// A way in which tensor ranks share a layer. Layers are cut in pairs: the first by outputs, the second by inputs, so
/// that no activations are exchanged between the two. Layers between them work on the features that each rank has.
/// Source: Shoeybi et al., "Megatron-LM", 2019, section 3.
enum class Cut : std::uint8_t {
  /// Each rank has some outputs; the gradients with respect to the layer's input must be added over the ranks.
  outputs,
  inputs,   ///< each rank has some inputs; the partial sums of outputs must be added over the ranks
  between,  ///< for layers between two cut ones: each rank has some features, or heads, of both input and output
  /// For layers that contain layers: each rank has the whole input and output, and pairs of inner layers are cut.
  within
};
/// The sums over tensor ranks that a part of a layer needs. The buffers that are summed come from Peers::memory.
struct LayerSums {
  bool output = false, input_gradient = false;
  /// For a layer that contains layers: the lengths of the sums that the inner layers need, in floats a sample, in the
  /// order in which the sums are made. Each sum has a buffer of its own (LayerForward::shared).
  std::vector<std::size_t> forward = {}, backward = {};
};

/// The operands of a forward pass, in plain fp32 memory; an operand between two layers with `Layer::keeps_activations`
/// is empty. Parameters and gradients are lists by tensor, which the caller keeps until the call returns.
struct LayerForward {
  runtime::Queue& queue;
  kernels::BufferList<runtime::ConstBuffer> parameters;
  runtime::ConstBuffer input;
  runtime::Buffer output;
  Peers* peers = nullptr;  ///< for a part of a layer: the peers with which it sums
  /// Buffers from Peers::memory, one for each sum in LayerSums::forward, then one for each in LayerSums::backward. Each
  /// is long enough for the samples. The backward pass gets the same buffers as the forward pass.
  kernels::BufferList<runtime::Buffer> shared = {};
};
struct LayerBackward {
  runtime::Queue& queue;
  kernels::BufferList<runtime::ConstBuffer> parameters;
  runtime::ConstBuffer input, output;  ///< input and output of the forward pass
  runtime::Buffer output_gradient;     ///< the layer may overwrite it
  /// Empty: this gradient is not needed, or goes to memory of the layers' own (`Layer::keeps_activations`).
  runtime::Buffer input_gradient;
  kernels::BufferList<runtime::Buffer> gradients;  ///< overwritten; the owner of a tied tensor adds instead
  std::function<void(std::size_t tensor)> ready;
  std::uint64_t pass = 0;  ///< number of backward passes before this one, for layers with `draws_by_pass`
  Peers* peers = nullptr;  ///< for a part of a layer: the peers with which it sums
  kernels::BufferList<runtime::Buffer> shared = {};
};

struct LayerProblems {
  std::vector<kernels::Problem> forward, backward;
};

/// A layer prepared for one number of samples, with its operations and their memory. It must live until its work is
/// done. The work that a pass submits depends only on its operands: a later pass on the same operands may submit that
/// work again without calling the layer (`RecordedPass`), unless the layer `draws_by_pass`. A layer that is not a part
/// never asks the queue for events, since work with events cannot be recorded.
class PreparedLayer {
 public:
  virtual ~PreparedLayer() = default;
  virtual void forward(const LayerForward&) = 0;
  /// Called after the forward pass of the same samples. Calls `ready` once for each tensor, in the tensors' order.
  virtual void backward(const LayerBackward&) = 0;
};

/// The range of the numbers added so far; zero is always in it.
struct ActivationRange {
  float least = 0, greatest = 0;
  void add(std::span<const float>);
};

/// A request to prepare a trained layer for forward passes alone.
struct InferenceRequest {
  std::size_t samples = 1;
  kernels::Precision precision = kernels::Precision::fp32;
  std::vector<runtime::ConstBuffer> parameters = {};  ///< fp32, by tensor; must not change
  ActivationRange input = {};                         ///< range of the layer's inputs, for precisions of whole numbers
};
class InferenceLayer {
 public:
  virtual ~InferenceLayer() = default;
  /// Input and output are plain fp32 memory.
  virtual void forward(runtime::Queue&, const runtime::ConstBuffer& input, const runtime::Buffer& output) = 0;
  /// The implementation that the backend has for the layer's operation; empty: not known, or there is no operation.
  virtual std::string implementation() const { return {}; }
};

class Layer {
 public:
  virtual ~Layer() = default;
  virtual std::string name() const = 0;  ///< "conv:16x3x3"
  virtual SampleShape input() const = 0;
  virtual SampleShape output() const = 0;
  /// The layer's tensors, in the order in which their gradients become ready.
  virtual std::span<const LayerTensor> tensors() const = 0;
  /// The operations that a prepared layer runs. The FLOP of a step, and the limits of its time, follow from them.
  /// input_gradient: whether the gradient with respect to the input is computed too.
  virtual LayerProblems problems(std::size_t samples, bool input_gradient) const = 0;
  /// Elements of activations and gradients that the layer keeps for each sample, besides the buffers that it is given.
  virtual std::size_t activation_elements() const { return 0; }
  /// True if prepared layers themselves hold the activations and gradients that pass between them (`prepare_run`). The
  /// network then gives memory for these only at the ends of a stage.
  virtual bool keeps_activations() const { return false; }
  /// Bytes that these layers need together, besides what each of them keeps, if `prepare_run` prepares them. All
  /// micro-batches share these bytes.
  virtual std::size_t shared_bytes(std::span<const std::unique_ptr<Layer>> layers, std::size_t samples) const {
    return (void)layers, (void)samples, 0;
  }
  /// True if a backward pass also depends on `LayerBackward::pass`: such passes are not recorded.
  virtual bool draws_by_pass() const { return false; }
  /// Prepares the layer for the calling thread's compute_threads() and for queues of this device. `input_gradient`:
  /// backward computes the input's gradient too. Errors: UsageError or BackendError when no backend takes one of its
  /// operations.
  virtual std::unique_ptr<PreparedLayer> prepare(std::size_t samples, bool input_gradient, runtime::Device&) const = 0;
  /// Prepares the first of `layers`, which is this one, and the next ones that share memory with it. Returns as many
  /// layers as it has prepared; by default only this one. Errors: those of `prepare`.
  virtual std::vector<std::unique_ptr<PreparedLayer>> prepare_run(std::span<const std::unique_ptr<Layer>> layers,
                                                                  std::size_t samples, bool input_gradient,
                                                                  runtime::Device&) const;
  /// The part that one of `ranks` tensor ranks holds; null: the layer cannot be cut in this way. Shapes, tensors and
  /// costs of the returned layer are those of the part. A width that is no multiple of `ranks` is refused by
  /// `cut_pairs`, not here.
  /// Errors: UsageError where heads cannot be shared evenly.
  virtual std::unique_ptr<Layer> part(Cut, std::size_t rank, std::size_t ranks) const {
    return (void)rank, (void)ranks, nullptr;
  }
  virtual LayerSums sums() const { return {}; }

  /// The reason why the layer has no inference in this precision; empty: it has. The default: inference in fp32, and in
  /// other precisions only for layers that run no operation.
  virtual std::string inference_refusal(kernels::Precision) const;
  /// Prepares as `prepare` does, but packs weights once, here. Errors: those of `prepare`.
  virtual std::unique_ptr<InferenceLayer> prepare_inference(const InferenceRequest&, runtime::Queue&) const;
};

/// The reason why no backend takes a problem in this precision, for the first such problem; empty: all are taken.
std::string backend_refusal(kernels::Precision, std::vector<kernels::Problem>);

/// Selects the layers that tensor ranks share: pairs of a layer that can be cut by outputs and a later one that can be
/// cut by inputs, where every layer from one to the other can be cut `between`. Returns one rank's part of each layer,
/// or null where all ranks hold the whole layer. Errors: UsageError where ranks cannot share a pair's width, or its
/// heads, evenly. Source: Shoeybi et al., "Megatron-LM", 2019, section 3.
std::vector<std::unique_ptr<Layer>> cut_pairs(std::span<const Layer* const>, std::size_t rank, std::size_t ranks);

}  // namespace gradmeter::model
