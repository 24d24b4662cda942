// SPDX-License-Identifier: Apache-2.0
#include "model/layers/layers.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "core/format.hpp"
#include "kernels/loops.hpp"
#include "kernels/number_format.hpp"
#include "kernels/rnn/reference.hpp"
#include "model/layers/operations.hpp"

namespace gradmeter::model {
namespace {

using kernels::Cell;
using kernels::Precision;
using kernels::RnnShape;
using runtime::Buffer;
using runtime::ConstBuffer;
using runtime::OwnedBuffer;

/// Transposes [rows × columns × width] to [columns × rows × width].
void transpose(runtime::Queue& queue, std::string_view label, const ConstBuffer& from, const Buffer& to,
               std::size_t rows, std::size_t columns, std::size_t width) {
  queue.submit(label, {.flops = 0, .bytes = 2.0 * static_cast<double>(from.bytes())},
               [=] { kernels::loops().swap_rows_and_columns(from, rows, columns, width, to); });
}

struct RecurrentOptions {
  RecurrentOutput output;
  Precision precision;
};

class PreparedRecurrent final : public PreparedLayer {
 public:
  PreparedRecurrent(const RnnShape& s, const RecurrentOptions& o, bool input_gradient, runtime::Device& device)
      : shape_(s),
        output_(o.output),
        input_gradient_(input_gradient),
        forward_({.shape = s, .precision = o.precision}, device, {.training = true}),
        backward_({.shape = s, .pass = kernels::Pass::backward_data, .precision = o.precision}, device) {
    const std::size_t rows = s.steps * s.batch, state = s.batch * s.hidden;
    for (OwnedBuffer* const b : {&x_, &x_gradient_}) *b = device.allocate(core::Element::f32, rows * s.input_width());
    for (OwnedBuffer* const b : {&y_, &y_gradient_}) *b = device.allocate(core::Element::f32, rows * s.hidden);
    for (OwnedBuffer* const b : {&zero_, &state_gradient_, &memory_gradient_})
      *b = device.allocate(core::Element::f32, state);
    const auto outputs = forward_.op().outputs();
    kept_ = device.allocate(core::Element::i8, outputs[kernels::index_of(outputs, "kept")].stored_bytes);
  }

  void forward(const LayerForward& f) override {
    transpose(f.queue, "forward.transpose", f.input, x_.buffer, shape_.batch, shape_.steps, shape_.input_width());
    forward_.run(f.queue, "forward.rnn", "forward.pack", inputs(f.parameters), {y_.buffer, kept_.buffer});
    if (output_ == RecurrentOutput::every_step) {
      transpose(f.queue, "forward.transpose", y_.buffer, f.output, shape_.steps, shape_.batch, shape_.hidden);
    } else {
      f.queue.copy("forward.copy", last_step(y_), f.output);
    }
  }

  void backward(const LayerBackward& b) override {
    if (output_ == RecurrentOutput::every_step) {
      transpose(b.queue, "backward.transpose", b.output_gradient, y_gradient_.buffer, shape_.batch, shape_.steps,
                shape_.hidden);
    } else {
      // The gradients of the other steps stay zero, as they were allocated.
      b.queue.copy("backward.copy", b.output_gradient, last_step(y_gradient_));
    }
    auto read = inputs(b.parameters);
    read.insert(read.end(), {y_.buffer, kept_.buffer, y_gradient_.buffer});
    std::vector<Buffer> written{x_gradient_.buffer, state_gradient_.buffer};
    if (shape_.cell == Cell::lstm) written.push_back(memory_gradient_.buffer);
    written.insert(written.end(), b.gradients.begin(), b.gradients.end());
    backward_.run(b.queue, "backward.rnn", "backward.pack", read, written);
    for (std::size_t tensor = 0; tensor < b.gradients.size(); ++tensor) b.ready(tensor);
    if (input_gradient_)
      transpose(b.queue, "backward.transpose", x_gradient_.buffer, b.input_gradient, shape_.steps, shape_.batch,
                shape_.input_width());
  }

 private:
  Buffer last_step(const OwnedBuffer& steps) const {
    const std::size_t state = shape_.batch * shape_.hidden;
    return steps.buffer.part((shape_.steps - 1) * state, state);
  }
  std::vector<ConstBuffer> inputs(kernels::BufferList<ConstBuffer> parameters) const {
    std::vector<ConstBuffer> operands{x_.buffer, zero_.buffer};
    if (shape_.cell == Cell::lstm) operands.emplace_back(zero_.buffer);
    operands.insert(operands.end(), parameters.begin(), parameters.end());
    return operands;
  }

  RnnShape shape_;
  RecurrentOutput output_;
  bool input_gradient_;
  PlainOp forward_, backward_;
  OwnedBuffer x_, x_gradient_;  // [steps × batch × input]
  OwnedBuffer y_, y_gradient_;  // [steps × batch × hidden]
  // the first state (and the LSTM's first memory), the gradients of both, and what forward keeps for backward
  OwnedBuffer zero_, state_gradient_, memory_gradient_, kept_;
};

/// The quantization of int8: one quantum for inputs and states, and for the weights of both one for each gate and
/// output.
kernels::OpOptions inference_options(const InferenceRequest& r, runtime::Queue& queue) {
  // States of lstm and gru are within ±1.
  const ActivationRange range{.least = std::min(r.input.least, -1.0F), .greatest = std::max(r.input.greatest, 1.0F)};
  return quantized(r.precision, range, std::span(r.parameters).first(2), 1, r.parameters.at(2).count(), queue);
}

class RecurrentInference final : public InferenceLayer {
 public:
  RecurrentInference(const RnnShape& s, RecurrentOutput output, const InferenceRequest& r, runtime::Queue& queue)
      : shape_(s),
        output_(output),
        op_({.shape = s, .precision = r.precision}, queue.device(), inference_options(r, queue)) {
    const auto floats = [&](std::size_t n) { return queue.device().allocate(core::Element::f32, n); };
    x_ = floats(s.steps * s.batch * s.input_width());
    y_ = floats(s.steps * s.batch * s.hidden);
    zero_ = floats(s.batch * s.hidden);
    std::vector<ConstBuffer> kept(s.cell == Cell::lstm ? 2 : 1, zero_.buffer);
    kept.insert(kept.end(), r.parameters.begin(), r.parameters.end());
    for (std::size_t i = 0; i < kept.size(); ++i) op_.keep(queue, "inference.pack", i + 1, kept[i]);
  }

  void forward(runtime::Queue& queue, const ConstBuffer& input, const Buffer& output) override {
    transpose(queue, "inference.transpose", input, x_.buffer, shape_.batch, shape_.steps, shape_.input_width());
    // Only the first operand is read from the list: the others have been kept.
    op_.run(queue, "inference.rnn", "inference.pack", std::vector<ConstBuffer>(op_.op().inputs().size(), x_.buffer),
            {y_.buffer});
    if (output_ == RecurrentOutput::every_step)
      return transpose(queue, "inference.transpose", y_.buffer, output, shape_.steps, shape_.batch, shape_.hidden);
    const std::size_t state = shape_.batch * shape_.hidden;
    queue.copy("inference.copy", y_.buffer.part((shape_.steps - 1) * state, state), output);
  }
  std::string implementation() const override { return op_.op().implementation(); }

 private:
  RnnShape shape_;
  RecurrentOutput output_;
  PlainOp op_;
  OwnedBuffer x_, y_, zero_;  // [steps × batch × width]; the state before the first step
};

class RecurrentLayer final : public Layer {
 public:
  RecurrentLayer(Cell cell, const TokenShape& input, std::size_t h, const RecurrentOptions& o)
      : cell_(cell), input_(input), hidden_(h), options_(o) {
    const std::size_t gates = kernels::gates_of(cell);
    const double bound = 1 / std::sqrt(static_cast<double>(h));
    tensors_ = {LayerTensor{"weights", {input.features, gates, h}, bound},
                LayerTensor{"recurrent", {h, gates, h}, bound}, LayerTensor{"bias", {gates, h}}};
  }

  std::string name() const override { return fmt::format("{}:{}", kernels::name(cell_), hidden_); }
  SampleShape input() const override { return input_; }
  SampleShape output() const override {
    if (options_.output == RecurrentOutput::last_step) return FeatureShape{hidden_};
    return TokenShape{.steps = input_.steps, .features = hidden_};
  }
  std::span<const LayerTensor> tensors() const override { return tensors_; }
  LayerProblems problems(std::size_t samples, bool) const override {
    const RnnShape s = shape(samples);
    return {.forward = {{.shape = s, .precision = options_.precision}},
            .backward = {{.shape = s, .pass = kernels::Pass::backward_data, .precision = options_.precision}}};
  }
  std::unique_ptr<PreparedLayer> prepare(std::size_t samples, bool input_gradient,
                                         runtime::Device& device) const override {
    return std::make_unique<PreparedRecurrent>(shape(samples), options_, input_gradient, device);
  }
  std::string inference_refusal(Precision p) const override { return backend_refusal(p, problems(1, false).forward); }
  std::unique_ptr<InferenceLayer> prepare_inference(const InferenceRequest& r, runtime::Queue& queue) const override {
    return std::make_unique<RecurrentInference>(shape(r.samples), options_.output, r, queue);
  }

 private:
  RnnShape shape(std::size_t samples) const {
    return {.cell = cell_,
            .hidden = hidden_,
            .batch = samples,
            .steps = input_.steps,
            .input = input_.features == hidden_ ? 0 : input_.features};
  }

  Cell cell_;
  TokenShape input_;
  std::size_t hidden_;
  RecurrentOptions options_;
  std::array<LayerTensor, 3> tensors_;
};

}  // namespace

std::unique_ptr<Layer> make_recurrent_layer(Cell cell, const TokenShape& input, std::size_t h, RecurrentOutput output,
                                            Precision precision) {
  return std::make_unique<RecurrentLayer>(cell, input, h, RecurrentOptions{output, precision});
}

}  // namespace gradmeter::model
