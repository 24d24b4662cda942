// SPDX-License-Identifier: Apache-2.0
#include "model/layers/layers.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "core/format.hpp"
#include "kernels/loops.hpp"
#include "model/layers/operations.hpp"

namespace gradmeter::model {
namespace {

using kernels::ConvShape;
using kernels::Pass;
using kernels::Precision;

class PreparedConvolution final : public PreparedLayer {
 public:
  PreparedConvolution(const ConvShape& s, Precision precision, bool input_gradient, runtime::Device& device)
      : pixels_(s.out_width() * s.out_height()),
        forward_({.shape = s, .precision = precision}, device),
        filter_gradient_({.shape = s, .pass = Pass::backward_weights, .precision = precision}, device) {
    if (input_gradient)
      input_gradient_.emplace(kernels::Problem{.shape = s, .pass = Pass::backward_data, .precision = precision},
                              device);
  }

  void forward(const LayerForward& f) override {
    forward_.run(f.queue, "forward.conv", "forward.pack", {f.input, f.parameters[0]}, {f.output});
    const double elements = static_cast<double>(f.output.count());
    f.queue.submit("forward.bias", {.flops = elements, .bytes = 8 * elements},
                   [output = f.output, bias = f.parameters[1], pixels = pixels_] {
                     kernels::loops().add_channels_and_relu(bias, pixels, output);
                   });
  }

  void backward(const LayerBackward& b) override {
    const double elements = static_cast<double>(b.output.count());
    submit_relu_backward(b.queue, b.output, b.output_gradient);
    filter_gradient_.run(b.queue, "backward.conv", "backward.pack", {b.input, b.output_gradient}, {b.gradients[0]});
    b.ready(0);
    b.queue.submit("backward.bias", {.flops = elements, .bytes = 4 * elements},
                   [delta = b.output_gradient, to = b.gradients[1], pixels = pixels_] {
                     kernels::loops().channel_sums(delta, pixels, to);
                   });
    b.ready(1);
    if (input_gradient_)
      input_gradient_->run(b.queue, "backward.conv", "backward.pack", {b.output_gradient, b.parameters[0]},
                           {b.input_gradient});
  }

 private:
  std::size_t pixels_;
  PlainOp forward_, filter_gradient_;
  std::optional<PlainOp> input_gradient_;
};

class ConvolutionLayer final : public Layer {
 public:
  ConvolutionLayer(const ImageShape& input, const ConvolutionOptions& o, Precision precision)
      : input_(input),
        precision_(precision),
        shape_{.width = input.width,
               .height = input.height,
               .channels = input.channels,
               .filters = o.filters,
               .filter_width = o.side,
               .filter_height = o.side,
               .pad_width = o.pad,
               .pad_height = o.pad,
               .stride_width = o.stride,
               .stride_height = o.stride},
        tensors_{LayerTensor{"filters",
                             {o.filters, input.channels, o.side, o.side},
                             std::sqrt(6.0 / static_cast<double>(input.channels * o.side * o.side))},
                 LayerTensor{"bias", {o.filters}}} {}

  std::string name() const override {
    return fmt::format("conv:{}x{}x{}", shape_.filters, shape_.filter_height, shape_.filter_width);
  }
  SampleShape input() const override { return input_; }
  SampleShape output() const override { return ImageShape{shape_.filters, shape_.out_height(), shape_.out_width()}; }
  std::span<const LayerTensor> tensors() const override { return tensors_; }
  LayerProblems problems(std::size_t samples, bool input_gradient) const override {
    const ConvShape s = shape(samples);
    const auto problem = [&](Pass pass) { return kernels::Problem{.shape = s, .pass = pass, .precision = precision_}; };
    LayerProblems problems{.forward = {problem(Pass::forward)}, .backward = {problem(Pass::backward_weights)}};
    if (input_gradient) problems.backward.push_back(problem(Pass::backward_data));
    return problems;
  }
  std::unique_ptr<PreparedLayer> prepare(std::size_t samples, bool input_gradient,
                                         runtime::Device& device) const override {
    return std::make_unique<PreparedConvolution>(shape(samples), precision_, input_gradient, device);
  }
  std::string inference_refusal(Precision p) const override { return backend_refusal(p, problems(1, false).forward); }
  std::unique_ptr<InferenceLayer> prepare_inference(const InferenceRequest& r, runtime::Queue& queue) const override {
    return make_inference_product({.problem = {.shape = shape(r.samples), .precision = r.precision},
                                   .weights_per_output = shape_.channels * shape_.filter_height * shape_.filter_width,
                                   .places_per_output = shape_.out_height() * shape_.out_width(),
                                   .is_relu = true},
                                  r, queue);
  }

 private:
  ConvShape shape(std::size_t samples) const {
    ConvShape s = shape_;
    s.batch = samples;
    return s;
  }

  ImageShape input_;
  Precision precision_;
  ConvShape shape_;  // batch is 0: the number of samples is not known yet
  std::array<LayerTensor, 2> tensors_;
};

}  // namespace

std::unique_ptr<Layer> make_convolution_layer(const ImageShape& input, const ConvolutionOptions& o,
                                              Precision precision) {
  return std::make_unique<ConvolutionLayer>(input, o, precision);
}

}  // namespace gradmeter::model
