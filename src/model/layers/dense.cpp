#include "model/layers/dense.hpp"

#include <array>
#include <cmath>
#include <optional>

#include "core/format.hpp"
#include "kernels/pointwise.hpp"
#include "model/layers/plain_op.hpp"
#include "model/passes.hpp"

namespace gradmeter::model {
namespace {

using kernels::Activation;
using kernels::GemmShape;
using kernels::Transpose;

/// The products of the three passes.
struct DenseProducts {
  GemmShape forward, weight, input;
};

class PreparedDense final : public PreparedLayer {
 public:
  PreparedDense(const DenseProducts& p, bool input_gradient, runtime::Device& device)
      : width_(p.forward.n),
        is_relu_(p.forward.activation == Activation::relu),
        forward_({.shape = p.forward}, device),
        weight_({.shape = p.weight}, device) {
    if (input_gradient) input_.emplace(kernels::Problem{.shape = p.input}, device);
  }

  void forward(const LayerForward& f) override {
    forward_.run(f.queue, "forward.gemm", "forward.pack", {f.input, f.parameters[0], f.parameters[1]}, {f.output});
  }

  void backward(const LayerBackward& b) override {
    const double elements = static_cast<double>(b.output.count());
    if (is_relu_) submit_relu_backward(b.queue, b.output, b.output_gradient);
    weight_.run(b.queue, "backward.gemm", "backward.pack", {b.output_gradient, b.input}, {b.gradients[0]});
    b.ready(0);
    b.queue.submit("backward.bias", {.flops = elements, .bytes = 4 * elements},
                   [delta = b.output_gradient, width = width_, to = b.gradients[1]] {
                     kernels::column_sums(delta.values<float>(), width, to.values<float>());
                   });
    b.ready(1);
    if (input_)
      input_->run(b.queue, "backward.gemm", "backward.pack", {b.output_gradient, b.parameters[0]}, {b.input_gradient});
  }

 private:
  std::size_t width_;
  bool is_relu_;
  PlainOp forward_, weight_;
  std::optional<PlainOp> input_;
};

class DenseLayer final : public Layer {
 public:
  DenseLayer(const SampleShape& input, std::size_t out, Activation activation)
      : input_(input),
        in_(elements(input)),
        out_(out),
        activation_(activation),
        tensors_{LayerTensor{"weight", {out, in_}, std::sqrt(6.0 / static_cast<double>(in_))},
                 LayerTensor{"bias", {out}}} {}

  std::string name() const override { return fmt::format("dense:{}", out_); }
  SampleShape input() const override { return input_; }
  SampleShape output() const override { return FeatureShape{out_}; }
  std::span<const LayerTensor> tensors() const override { return tensors_; }
  LayerProblems problems(std::size_t samples, bool input_gradient) const override {
    const DenseProducts p = products(samples);
    LayerProblems all{.forward = {{.shape = p.forward}}, .backward = {{.shape = p.weight}}};
    if (input_gradient) all.backward.push_back({.shape = p.input});
    return all;
  }
  std::unique_ptr<PreparedLayer> prepare(std::size_t samples, bool input_gradient,
                                         runtime::Device& device) const override {
    return std::make_unique<PreparedDense>(products(samples), input_gradient, device);
  }

 private:
  DenseProducts products(std::size_t n) const {
    return {.forward =
                {.m = n, .n = out_, .k = in_, .transpose_b = Transpose::yes, .bias = true, .activation = activation_},
            .weight = {.m = out_, .n = in_, .k = n, .transpose_a = Transpose::yes},
            .input = {.m = n, .n = in_, .k = out_}};
  }

  SampleShape input_;
  std::size_t in_, out_;
  Activation activation_;
  std::array<LayerTensor, 2> tensors_;
};

}  // namespace

std::unique_ptr<Layer> make_dense_layer(const SampleShape& input, std::size_t out, Activation activation) {
  return std::make_unique<DenseLayer>(input, out, activation);
}

}  // namespace gradmeter::model
