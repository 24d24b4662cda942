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

using kernels::Activation;
using kernels::GemmShape;
using kernels::Precision;
using kernels::Problem;
using kernels::Transpose;

/// Adds the bias to a sum over tensor ranks. Before that sum, every rank would add it once.
void add_bias(runtime::Queue& queue, const runtime::ConstBuffer& bias, Activation activation,
              const runtime::Buffer& output) {
  const double elements = static_cast<double>(output.count());
  queue.submit("forward.bias", {.flops = elements, .bytes = 8 * elements},
               [is_relu = activation == Activation::relu, bias, output] {
                 kernels::loops().add_row(output, bias, is_relu, output);
               });
}

/// The products of the passes. `bias_gradient`, a row of ones times the output's gradient, is used only where the
/// precision's sums are logarithms.
struct DenseProducts {
  Problem forward, weight_gradient, input_gradient, bias_gradient;
  const GemmShape& shape() const { return std::get<GemmShape>(forward.shape); }
  bool has_bias_product() const { return kernels::info(forward.precision).logarithmic_sums; }
};

class PreparedDense final : public PreparedLayer {
 public:
  PreparedDense(const DenseProducts& p, Activation activation, const LayerSums& sums, bool input_gradient,
                runtime::Device& device)
      : activation_(activation), sums_(sums), forward_(p.forward, device), weight_gradient_(p.weight_gradient, device) {
    if (input_gradient) input_gradient_.emplace(p.input_gradient, device);
    if (!p.has_bias_product()) return;
    bias_gradient_.emplace(p.bias_gradient, device);
    ones_ = device.allocate(core::Element::f32, p.shape().m);
  }

  void forward(const LayerForward& f) override {
    if (!sums_.output)
      return forward_.run(f.queue, "forward.gemm", "forward.pack", {f.input, f.parameters[0], f.parameters[1]},
                          {f.output});
    forward_.run(f.queue, "forward.gemm", "forward.pack", {f.input, f.parameters[0]}, {f.output});
    f.peers->sum(f.output);
    add_bias(f.queue, f.parameters[1], activation_, f.output);
  }

  void backward(const LayerBackward& b) override {
    if (activation_ == Activation::relu) submit_relu_backward(b.queue, b.output, b.output_gradient);
    weight_gradient_.run(b.queue, "backward.gemm", "backward.pack", {b.output_gradient, b.input}, {b.gradients[0]});
    b.ready(0);
    sum_bias_gradient(b.queue, b.output_gradient, b.gradients[1]);
    b.ready(1);
    if (!input_gradient_) return;
    input_gradient_->run(b.queue, "backward.gemm", "backward.pack", {b.output_gradient, b.parameters[0]},
                         {b.input_gradient});
    if (sums_.input_gradient) b.peers->sum(b.input_gradient);
  }

 private:
  void sum_bias_gradient(runtime::Queue& queue, const runtime::Buffer& delta, const runtime::Buffer& to) {
    const double elements = static_cast<double>(delta.count());
    if (!bias_gradient_) {
      queue.submit("backward.bias", {.flops = elements, .bytes = 4 * elements},
                   [delta, to] { kernels::loops().column_sums(delta, to); });
      return;
    }
    queue.submit("backward.bias", {.flops = 0, .bytes = static_cast<double>(ones_.buffer.bytes())},
                 [ones = ones_.buffer] { kernels::loops().fill(ones, 1.0F); });
    bias_gradient_->run(queue, "backward.bias", "backward.pack", {ones_.buffer, delta}, {to});
  }

  Activation activation_;
  LayerSums sums_;
  PlainOp forward_, weight_gradient_;
  std::optional<PlainOp> input_gradient_, bias_gradient_;
  runtime::OwnedBuffer ones_;
};

class DenseLayer final : public Layer {
 public:
  /// rows: the number of rows that a sample has in the product, such as its steps; its elements are divided equally
  /// among them.
  DenseLayer(const SampleShape& input, std::size_t rows, std::size_t out, const StepDenseOptions& o)
      : input_(input),
        rows_(rows),
        in_(elements(input) / rows),
        out_(out),
        activation_(o.activation),
        precision_(o.precision),
        parts_(o.parts),
        tensors_{LayerTensor{"weight", {out, in_}, std::sqrt(3 * o.variance / static_cast<double>(in_))},
                 LayerTensor{"bias", {out}}} {
    tensors_[0].is_tied = o.weight == Weight::tied;
  }

  std::string name() const override { return fmt::format("dense:{}", out_); }
  SampleShape input() const override { return input_; }
  SampleShape output() const override {
    if (const auto* tokens = std::get_if<TokenShape>(&input_); tokens && tokens->steps == rows_)
      return TokenShape{.steps = rows_, .features = out_};
    return FeatureShape{out_};
  }
  std::span<const LayerTensor> tensors() const override { return tensors_; }
  LayerProblems problems(std::size_t samples, bool input_gradient) const override {
    const DenseProducts p = products(samples);
    LayerProblems problems{.forward = {p.forward}, .backward = {p.weight_gradient}};
    if (p.has_bias_product()) problems.backward.push_back(p.bias_gradient);
    if (input_gradient) problems.backward.push_back(p.input_gradient);
    return problems;
  }
  std::unique_ptr<PreparedLayer> prepare(std::size_t samples, bool input_gradient,
                                         runtime::Device& device) const override {
    return std::make_unique<PreparedDense>(products(samples), activation_, sums_, input_gradient, device);
  }
  LayerSums sums() const override { return sums_; }
  std::unique_ptr<Layer> part(Cut cut, std::size_t rank, std::size_t ranks) const override {
    // Tensor ranks add in fp32 only, and a layer with a tied weight needs all of it.
    if (precision_ != Precision::fp32 || tensors_[0].is_tied || cut == Cut::between || cut == Cut::within)
      return nullptr;
    auto p = std::make_unique<DenseLayer>(*this);
    if (cut == Cut::outputs) {
      p->cut_outputs(out_ / parts_ / ranks, rank);
    } else {
      p->cut_inputs(in_ / ranks, rank);
    }
    return p;
  }
  std::string inference_refusal(Precision p) const override { return backend_refusal(p, {products(1).forward}); }
  std::unique_ptr<InferenceLayer> prepare_inference(const InferenceRequest& r, runtime::Queue& queue) const override {
    Problem p = products(r.samples).forward;
    p.precision = r.precision;
    return make_inference_product({.problem = p, .weights_per_output = in_, .is_relu = activation_ == Activation::relu},
                                  r, queue);
  }

 private:
  /// share: number of outputs that the rank has of each of the `parts_` parts.
  void cut_outputs(std::size_t share, std::size_t rank) {
    const std::size_t out = share * parts_, first = rank * share, part = out_ / parts_;
    tensors_[0].shape = {out, in_};
    tensors_[0].whole = {.first = first * in_, .columns = share * in_, .stride = part * in_};
    tensors_[1].shape = {out}, tensors_[1].whole = {.first = first, .columns = share, .stride = part};
    out_ = out;
    sums_.input_gradient = true;
  }
  void cut_inputs(std::size_t in, std::size_t rank) {
    tensors_[0].shape = {out_, in}, tensors_[0].whole = {.first = rank * in, .columns = in, .stride = in_};
    in_ = in;
    if (auto* const tokens = std::get_if<TokenShape>(&input_); tokens && tokens->steps == rows_) {
      tokens->features = in;
    } else {
      input_ = FeatureShape{in};
    }
    sums_.output = true;
  }
  DenseProducts products(std::size_t samples) const {
    const std::size_t rows = samples * rows_;
    const auto problem = [&](const GemmShape& s) { return Problem{.shape = s, .precision = precision_}; };
    return {.forward = problem({.m = rows,
                                .n = out_,
                                .k = in_,
                                .transpose_b = Transpose::yes,
                                .bias = !sums_.output,
                                .activation = sums_.output ? Activation::none : activation_}),
            .weight_gradient = problem({.m = out_, .n = in_, .k = rows, .transpose_a = Transpose::yes}),
            .input_gradient = problem({.m = rows, .n = in_, .k = out_}),
            .bias_gradient = problem({.m = 1, .n = out_, .k = rows})};
  }

  SampleShape input_;
  std::size_t rows_, in_, out_;
  Activation activation_;
  Precision precision_;
  std::size_t parts_;
  std::array<LayerTensor, 2> tensors_;
  LayerSums sums_ = {};  ///< the sums over tensor ranks that this layer needs if it is a rank's part
};

}  // namespace

std::unique_ptr<Layer> make_dense_layer(const SampleShape& input, std::size_t out, Activation activation,
                                        Precision precision) {
  return std::make_unique<DenseLayer>(input, 1, out,
                                      StepDenseOptions{.activation = activation, .precision = precision});
}

std::unique_ptr<Layer> make_step_dense_layer(const TokenShape& input, std::size_t out, const StepDenseOptions& o) {
  return std::make_unique<DenseLayer>(input, input.steps, out, o);
}

}  // namespace gradmeter::model
