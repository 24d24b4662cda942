// One layer of a network: its tensors, what it costs, and its forward and backward pass.
#pragma once
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "kernels/problems/problem.hpp"
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

struct LayerTensor {
  std::string name;
  std::vector<std::size_t> shape;
  double bound = 0;  ///< initial values are uniform within ±bound
};
std::size_t elements(const LayerTensor&);

/// Plain memory, fp32. Parameters and gradients by tensor.
struct LayerForward {
  runtime::Queue& queue;
  std::vector<runtime::ConstBuffer> parameters;
  runtime::ConstBuffer input;
  runtime::Buffer output;
};
struct LayerBackward {
  runtime::Queue& queue;
  std::vector<runtime::ConstBuffer> parameters;
  runtime::ConstBuffer input, output;      ///< of the forward pass
  runtime::Buffer output_gradient;         ///< the layer may overwrite it
  runtime::Buffer input_gradient;          ///< empty: nobody needs it
  std::vector<runtime::Buffer> gradients;  ///< overwritten
  std::function<void(std::size_t tensor)> ready;
};

struct LayerProblems {
  std::vector<kernels::Problem> forward, backward;
};

/// A layer at one number of samples, with the operations that it runs and their memory. Lives until its work is done.
class PreparedLayer {
 public:
  virtual ~PreparedLayer() = default;
  virtual void forward(const LayerForward&) = 0;
  /// After the forward pass of the same samples. Calls `ready` once for each tensor, in their order.
  virtual void backward(const LayerBackward&) = 0;
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
  /// For the calling thread's compute_threads() and queues of this device; with `input_gradient` for a backward pass
  /// that computes it. Errors: UsageError or BackendError when no backend takes one of its operations.
  virtual std::unique_ptr<PreparedLayer> prepare(std::size_t samples, bool input_gradient, runtime::Device&) const = 0;
};

}  // namespace gradmeter::model
