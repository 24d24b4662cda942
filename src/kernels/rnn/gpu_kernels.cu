// SPDX-License-Identifier: Apache-2.0
#include "kernels/rnn/gpu_kernels.hpp"

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <stdexcept>

#include "core/element.hpp"
#include "core/host_device.hpp"
#include "kernels/cuda/divisor.cuh"
#include "kernels/cuda/each.cuh"
#include "kernels/cuda/row_sums.cuh"
#include "kernels/gemm/gpu_kernels.hpp"
#include "kernels/rnn/reference.hpp"

namespace gradmeter::kernels::cuda {
namespace {

/// One hidden unit of one row of the batch, which a thread computes.
struct Unit {
  /// at: the unit's index in [batch × hidden]; first_gate: the index of its first gate in [batch × gates × hidden]
  std::size_t at, first_gate;
};
__device__ Unit unit_of(std::size_t i, const Divisor& units, unsigned gates) {
  const Quotient row = units.divide(i);
  return {i, row.whole * gates * units.value + row.rest};
}

// Forward steps. `gates` has the gates' sums on entry, and their values after the nonlinearity on return.

__global__ void vanilla_step(float* gates, float* h, std::size_t n) {
  const std::size_t i = element_of_thread();
  if (i < n) h[i] = gates[i] = core::greater(gates[i], 0.0f);
}

__global__ void lstm_step(float* gates, const float* c_before, float* c, float* h, Divisor units, std::size_t n) {
  const std::size_t i = element_of_thread();
  if (i >= n) return;
  const std::size_t hidden = units.value;
  float* const at = gates + unit_of(i, units, 4).first_gate;
  const float input = sigmoid(at[0]), forget = sigmoid(at[hidden]), candidate = tanhf(at[2 * hidden]),
              output = sigmoid(at[3 * hidden]);
  at[0] = input, at[hidden] = forget, at[2 * hidden] = candidate, at[3 * hidden] = output;
  c[i] = forget * c_before[i] + input * candidate;
  h[i] = output * tanhf(c[i]);
}

/// Computes u and r, and writes r·h to `reset_state`, which the candidate's product reads.
__global__ void gru_gates(float* gates, const float* before, float* reset_state, Divisor units, std::size_t n) {
  const std::size_t i = element_of_thread();
  if (i >= n) return;
  const std::size_t hidden = units.value;
  float* const at = gates + unit_of(i, units, 3).first_gate;
  at[0] = sigmoid(at[0]), at[hidden] = sigmoid(at[hidden]);
  reset_state[i] = at[hidden] * before[i];
}
__global__ void gru_step(float* gates, const float* before, float* h, Divisor units, std::size_t n) {
  const std::size_t i = element_of_thread();
  if (i >= n) return;
  const std::size_t hidden = units.value;
  float* const at = gates + unit_of(i, units, 3).first_gate;
  const float candidate = tanhf(at[2 * hidden]);
  at[2 * hidden] = candidate;
  h[i] = at[0] * before[i] + (1 - at[0]) * candidate;
}

// Backward steps. The gradient of h after the step is `later`, which comes from later steps (null: this is the last
// step), plus `outside`, the gradient of the layer's output. The kernels write the gradients of the gates' sums to
// `sums`.

__device__ float gradient_of(const float* later, const float* outside, std::size_t i) {
  return later != nullptr ? later[i] + outside[i] : outside[i];
}

__global__ void vanilla_gradient(const float* gates, const float* later, const float* outside, float* sums,
                                 std::size_t n) {
  const std::size_t i = element_of_thread();
  if (i < n) sums[i] = gates[i] > 0 ? gradient_of(later, outside, i) : 0;
}

/// `memory` is the gradient of c: on entry of c after the step (not read in the last step), on return of c before it.
__global__ void lstm_gradient(const float* gates, const float* c_before, const float* c, const float* later,
                              const float* outside, float* sums, float* memory, Divisor units, std::size_t n) {
  const std::size_t i = element_of_thread();
  if (i >= n) return;
  const std::size_t hidden = units.value;
  const std::size_t first = unit_of(i, units, 4).first_gate;
  const float* const at = gates + first;
  float* const to = sums + first;
  const float input = at[0], forget = at[hidden], candidate = at[2 * hidden], output = at[3 * hidden];
  const float gradient = gradient_of(later, outside, i), tanh_c = tanhf(c[i]);
  const float c_gradient = (later != nullptr ? memory[i] : 0) + gradient * output * (1 - tanh_c * tanh_c);
  to[0] = c_gradient * candidate * input * (1 - input);
  to[hidden] = c_gradient * c_before[i] * forget * (1 - forget);
  to[2 * hidden] = c_gradient * input * (1 - candidate * candidate);
  to[3 * hidden] = gradient * tanh_c * output * (1 - output);
  memory[i] = c_gradient * forget;
}

/// Computes the gradients of the sums of u and the candidate. `state` becomes the gradient of h after the step.
__global__ void gru_gradient(const float* gates, const float* before, const float* later, const float* outside,
                             float* sums, float* state, Divisor units, std::size_t n) {
  const std::size_t i = element_of_thread();
  if (i >= n) return;
  const std::size_t hidden = units.value;
  const std::size_t first = unit_of(i, units, 3).first_gate;
  const float u = gates[first], candidate = gates[first + 2 * hidden], gradient = gradient_of(later, outside, i);
  sums[first] = gradient * (before[i] - candidate) * u * (1 - u);
  sums[first + 2 * hidden] = gradient * (1 - u) * (1 - candidate * candidate);
  state[i] = gradient;
}
/// Computes the gradient of r's sum from `through`, the gradient of r·h. `state` becomes the part of the gradient of
/// the earlier h that passes through no product with weights.
__global__ void gru_reset_gradient(const float* gates, const float* before, const float* through, float* sums,
                                   float* state, Divisor units, std::size_t n) {
  const std::size_t i = element_of_thread();
  if (i >= n) return;
  const std::size_t hidden = units.value;
  const std::size_t first = unit_of(i, units, 3).first_gate;
  const float u = gates[first], r = gates[first + hidden];
  sums[first + hidden] = through[i] * before[i] * r * (1 - r);
  state[i] = state[i] * u + through[i] * r;
}

/// The extents of a layer, and the numbers of elements of its tensors.
struct Layer {
  std::size_t gates, hidden, batch, steps, input;
  explicit Layer(const RnnShape& s)
      : gates(gates_of(s.cell)), hidden(s.hidden), batch(s.batch), steps(s.steps), input(s.input_width()) {}
  std::size_t columns() const { return gates * hidden; }
  std::size_t rows() const { return steps * batch; }
  std::size_t state() const { return batch * hidden; }
  std::size_t step_gates() const { return batch * columns(); }
};

using Matrix = DeviceMatrix<const float>;

/// Queues products on a stream, all with the same scratch memory.
class Products {
 public:
  Products(DeviceSpan<float> scratch, cudaStream_t stream) : scratch_(scratch), stream_(stream) {}
  struct Extents {
    std::size_t m, n, k;
    ProductExtents product_extents() const {
      return {static_cast<unsigned>(m), static_cast<unsigned>(n), static_cast<unsigned>(k), 1};
    }
    std::size_t scratch() const { return m * k == 0 ? 0 : product_scratch(product_extents()); }
  };
  void set(const Extents& e, Matrix a, Matrix b, DeviceMatrix<float> c, const float* bias = nullptr) const {
    run(e, a, b, c, false, bias);
  }
  void add(const Extents& e, Matrix a, Matrix b, DeviceMatrix<float> c) const { run(e, a, b, c, true, nullptr); }

 private:
  void run(const Extents& e, Matrix a, Matrix b, DeviceMatrix<float> c, bool accumulate, const float* bias) const {
    const ProductExtents extents = e.product_extents();
    multiply({extents.m, extents.n, extents.k, a, b, c, accumulate, bias}, scratch_.first(e.scratch()), stream_);
  }
  DeviceSpan<float> scratch_;
  cudaStream_t stream_;
};

using Extents = Products::Extents;

std::size_t largest_scratch(std::initializer_list<Extents> products) {
  std::size_t most = 0;
  for (const Extents& e : products) most = std::max(most, e.scratch());
  return most;
}

class Forward {
 public:
  Forward(const RnnShape& s, const RnnOperands& operands, DeviceSpan<float> output, DeviceSpan<float> kept,
          DeviceSpan<float> scratch, cudaStream_t stream)
      : cell_(s.cell),
        layer_(s),
        operands_(operands),
        output_(output),
        kept_(kept),
        products_(scratch, stream),
        stream_(stream) {}

  void run() const {
    const std::size_t columns = layer_.columns();
    float* const gates = kept_.device_address();
    products_.set({layer_.rows(), columns, layer_.input}, {operands_.input.device_address(), layer_.input},
                  {operands_.weights.device_address(), columns}, {gates, columns}, operands_.bias.device_address());
    for (std::size_t t = 0; t < layer_.steps; ++t) step(t, gates + t * layer_.step_gates());
  }

 private:
  void step(std::size_t t, float* gates) const {
    const std::size_t h = layer_.hidden, n = layer_.state(), columns = layer_.columns();
    float *const output = output_.device_address(), *const now = output + t * n;
    const float* const before = t == 0 ? operands_.state.device_address() : now - n;
    // c of an lstm, r·h of a gru
    float* const c_or_reset_state = kept_.device_address() + layer_.steps * layer_.step_gates() + t * n;
    const float* const recurrent = operands_.recurrent.device_address();
    if (cell_ == Cell::gru) {
      products_.add({layer_.batch, 2 * h, h}, {before, h}, {recurrent, columns}, {gates, columns});
      launch_each(gru_gates, "gru_gates", n, stream_, gates, before, c_or_reset_state, Divisor(h), n);
      products_.add({layer_.batch, h, h}, {c_or_reset_state, h}, {recurrent + 2 * h, columns},
                    {gates + 2 * h, columns});
      launch_each(gru_step, "gru_step", n, stream_, gates, before, now, Divisor(h), n);
      return;
    }
    products_.add({layer_.batch, columns, h}, {before, h}, {recurrent, columns}, {gates, columns});
    if (cell_ == Cell::vanilla) return launch_each(vanilla_step, "vanilla_step", n, stream_, gates, now, n);
    const float* const c_before = t == 0 ? operands_.memory.device_address() : c_or_reset_state - n;
    launch_each(lstm_step, "lstm_step", n, stream_, gates, c_before, c_or_reset_state, now, Divisor(h), n);
  }

  Cell cell_;
  Layer layer_;
  const RnnOperands& operands_;
  DeviceSpan<float> output_, kept_;
  Products products_;
  cudaStream_t stream_;
};

class Backward {
 public:
  Backward(const RnnShape& s, const RnnOperands& operands, const RnnBackwardInputs& backward_inputs,
           const RnnGradientSpans& gradients, DeviceSpan<float> scratch, cudaStream_t stream)
      : cell_(s.cell),
        layer_(s),
        operands_(operands),
        backward_inputs_(backward_inputs),
        gradients_(gradients),
        sum_gradients_(scratch.device_address()),
        reset_gradient_(sum_gradients_ + layer_.steps * layer_.step_gates()),
        bias_workspace_(scratch.subspan(gate_floats(s), column_sums_workspace(layer_.rows(), layer_.columns()))),
        products_(scratch.subspan(own_scratch(s)), stream),
        stream_(stream) {}
  /// The floats of scratch besides those of products: the gradients of the gates' sums and of a gru's r·h, and the
  /// workspace for the gradient of the bias.
  static std::size_t own_scratch(const RnnShape& s) {
    const Layer l(s);
    return gate_floats(s) + column_sums_workspace(l.rows(), l.columns());
  }

  void run() const {
    for (std::size_t t = layer_.steps; t-- > 0;) step(t);
    const std::size_t columns = layer_.columns(), rows = layer_.rows();
    const Matrix sums{sum_gradients_, columns}, input{operands_.input.device_address(), layer_.input},
        weights{operands_.weights.device_address(), columns};
    products_.set({rows, layer_.input, columns}, sums, weights.transposed(),
                  {gradients_.input.device_address(), layer_.input});
    products_.add({layer_.input, columns, rows}, input.transposed(), sums,
                  {gradients_.weights.device_address(), columns});
    add_recurrent();
    launch_column_sums("add_column_sums", MatrixRows{sum_gradients_, columns}, rows, columns,
                       AddedTo{gradients_.bias.device_address()}, bias_workspace_, stream_);
  }

 private:
  static std::size_t gate_floats(const RnnShape& s) {
    const Layer l(s);
    return l.steps * l.step_gates() + (s.cell == Cell::gru ? l.state() : 0);
  }
  const float* gates(std::size_t t) const { return backward_inputs_.kept.device_address() + t * layer_.step_gates(); }
  /// c of an lstm after step t, or r·h of a gru in step t.
  const float* c_or_reset_state(std::size_t t) const { return gates(layer_.steps) + t * layer_.state(); }
  const float* state_before(std::size_t t) const {
    return t == 0 ? operands_.state.device_address()
                  : backward_inputs_.output.device_address() + (t - 1) * layer_.state();
  }

  /// Computes the gradients of the gates' sums in step t. The gradient of the state before the step goes to where the
  /// earlier step reads it.
  void step(std::size_t t) const {
    const std::size_t h = layer_.hidden, n = layer_.state(), columns = layer_.columns();
    float *const state = gradients_.state.device_address(), *const sums = sum_gradients_ + t * layer_.step_gates();
    const float* const later = t + 1 == layer_.steps ? nullptr : state;
    const float* const outside = backward_inputs_.output_gradient.device_address() + t * n;
    const Matrix recurrent{operands_.recurrent.device_address(), columns};
    if (cell_ == Cell::gru) return gru(t, later, outside, sums);
    if (cell_ == Cell::vanilla) {
      launch_each(vanilla_gradient, "vanilla_gradient", n, stream_, gates(t), later, outside, sums, n);
    } else {
      launch_each(lstm_gradient, "lstm_gradient", n, stream_, gates(t),
                  t == 0 ? operands_.memory.device_address() : c_or_reset_state(t - 1), c_or_reset_state(t), later,
                  outside, sums, gradients_.memory.device_address(), Divisor(h), n);
    }
    products_.set({layer_.batch, h, columns}, {sums, columns}, recurrent.transposed(), {state, h});
  }
  void gru(std::size_t t, const float* later, const float* outside, float* sums) const {
    const std::size_t h = layer_.hidden, n = layer_.state(), columns = layer_.columns();
    float* const state = gradients_.state.device_address();
    const float* const before = state_before(t);
    const Matrix recurrent{operands_.recurrent.device_address(), columns}, candidate{recurrent.first + 2 * h, columns};
    launch_each(gru_gradient, "gru_gradient", n, stream_, gates(t), before, later, outside, sums, state, Divisor(h), n);
    products_.set({layer_.batch, h, h}, {sums + 2 * h, columns}, candidate.transposed(), {reset_gradient_, h});
    launch_each(gru_reset_gradient, "gru_reset_gradient", n, stream_, gates(t), before, reset_gradient_, sums, state,
                Divisor(h), n);
    products_.add({layer_.batch, h, 2 * h}, {sums, columns}, recurrent.transposed(), {state, h});
  }

  /// Adds to the gradient of `recurrent`. The state before the first step is an operand; those before other steps are
  /// in the layer's output.
  void add_recurrent() const {
    const std::size_t h = layer_.hidden, columns = layer_.columns(),
                      state_columns = cell_ == Cell::gru ? 2 * h : columns;
    float* const to = gradients_.recurrent.device_address();
    const Matrix first{operands_.state.device_address(), h}, others{backward_inputs_.output.device_address(), h};
    products_.add({h, state_columns, layer_.batch}, first.transposed(), {sum_gradients_, columns}, {to, columns});
    products_.add({h, state_columns, layer_.rows() - layer_.batch}, others.transposed(),
                  {sum_gradients_ + layer_.step_gates(), columns}, {to, columns});
    if (cell_ != Cell::gru) return;
    const Matrix reset_states{c_or_reset_state(0), h};
    products_.add({h, h, layer_.rows()}, reset_states.transposed(), {sum_gradients_ + 2 * h, columns},
                  {to + 2 * h, columns});
  }

  Cell cell_;
  Layer layer_;
  const RnnOperands& operands_;
  const RnnBackwardInputs& backward_inputs_;
  const RnnGradientSpans& gradients_;
  float *sum_gradients_, *reset_gradient_;
  DeviceSpan<float> bias_workspace_;
  Products products_;
  cudaStream_t stream_;
};

void check_operands(const RnnShape& s, const RnnOperands& operands) {
  const Layer layer(s);
  if (layer.state() > Divisor::dividend_limit) throw std::invalid_argument("rnn: a state of more than 2^31 numbers");
  check_lengths("rnn: input", operands.input.size(), layer.rows() * layer.input);
  check_lengths("rnn: state", operands.state.size(), layer.state());
  check_lengths("rnn: memory", operands.memory.size(), s.cell == Cell::lstm ? layer.state() : 0);
  check_lengths("rnn: weights", operands.weights.size(), layer.input * layer.columns());
  check_lengths("rnn: recurrent", operands.recurrent.size(), layer.hidden * layer.columns());
  check_lengths("rnn: bias", operands.bias.size(), layer.columns());
}

}  // namespace

std::size_t rnn_kept(const RnnShape& s) {
  const Layer l(s);
  return l.steps * (l.step_gates() + (s.cell == Cell::vanilla ? 0 : l.state()));
}

std::size_t rnn_forward_scratch(const RnnShape& s) {
  const Layer l(s);
  const Extents inputs{l.rows(), l.columns(), l.input};
  if (s.cell != Cell::gru) return largest_scratch({inputs, {l.batch, l.columns(), l.hidden}});
  return largest_scratch({inputs, {l.batch, 2 * l.hidden, l.hidden}, {l.batch, l.hidden, l.hidden}});
}

std::size_t rnn_backward_scratch(const RnnShape& s) {
  const Layer l(s);
  const std::size_t h = l.hidden, others = l.rows() - l.batch, columns = l.columns();
  const Extents input{l.rows(), l.input, columns}, weights{l.input, columns, l.rows()};
  const std::size_t own = Backward::own_scratch(s);
  if (s.cell != Cell::gru)
    return own + largest_scratch({input, weights, {l.batch, h, columns}, {h, columns, l.batch}, {h, columns, others}});
  return own + largest_scratch({input,
                                weights,
                                {l.batch, h, h},
                                {l.batch, h, 2 * h},
                                {h, 2 * h, l.batch},
                                {h, 2 * h, others},
                                {h, h, l.rows()}});
}

void rnn_forward(const RnnShape& s, const RnnOperands& operands, DeviceSpan<float> output, DeviceSpan<float> kept,
                 DeviceSpan<float> scratch, cudaStream_t stream) {
  check_operands(s, operands);
  check_lengths("rnn: output", output.size(), s.steps * s.batch * s.hidden);
  check_lengths("rnn: kept", kept.size(), rnn_kept(s));
  check_lengths("rnn: scratch", scratch.size(), rnn_forward_scratch(s));
  Forward(s, operands, output, kept, scratch, stream).run();
}

void rnn_backward(const RnnShape& s, const RnnOperands& operands, const RnnBackwardInputs& backward_inputs,
                  const RnnGradientSpans& gradients, DeviceSpan<float> scratch, cudaStream_t stream) {
  check_operands(s, operands);
  check_operands(
      s, {gradients.input, gradients.state, gradients.memory, gradients.weights, gradients.recurrent, gradients.bias});
  check_lengths("rnn: output", backward_inputs.output.size(), s.steps * s.batch * s.hidden);
  check_lengths("rnn: kept", backward_inputs.kept.size(), rnn_kept(s));
  check_lengths("rnn: output gradient", backward_inputs.output_gradient.size(), s.steps * s.batch * s.hidden);
  check_lengths("rnn: scratch", scratch.size(), rnn_backward_scratch(s));
  Backward(s, operands, backward_inputs, gradients, scratch, stream).run();
}

namespace {

template <class IndexDivisor>
__device__ std::size_t place_of_ours(std::size_t theirs, const GateMatrix& m, const IndexDivisor& inputs) {
  const Quotient unit = inputs.divide(theirs);
  return (unit.rest * m.gates + m.gate) * m.hidden + unit.whole;
}

template <class IndexDivisor, class T>
__global__ void copy_gate(const T* ours, T* theirs, GateMatrix m, IndexDivisor inputs) {
  const std::size_t i = element_of_thread();
  if (i < m.hidden * m.inputs) theirs[i] = ours[place_of_ours(i, m, inputs)];
}

struct FloatOf {
  __device__ float operator()(float v) const { return v; }
};
template <core::SmallFormat format>
struct FloatOfHalf {
  __device__ float operator()(std::uint16_t v) const { return core::to_float(format, v); }
};
template <class IndexDivisor, class T, class ToFloat>
__global__ void add_gate_elements(const T* theirs, float* ours, ToFloat to_float, GateMatrix m, IndexDivisor inputs) {
  const std::size_t i = element_of_thread();
  if (i < m.hidden * m.inputs) ours[place_of_ours(i, m, inputs)] += to_float(theirs[i]);
}

template <class T>
void launch_copy(const std::byte* ours, std::byte* theirs, const GateMatrix& m, cudaStream_t stream) {
  with_divisors_below(m.hidden * m.inputs, [&]<class IndexDivisor>(std::type_identity<IndexDivisor>) {
    launch_each(copy_gate<IndexDivisor, T>, "copy_gate", m.hidden * m.inputs, stream, reinterpret_cast<const T*>(ours),
                reinterpret_cast<T*>(theirs), m, IndexDivisor(m.inputs));
  });
}
template <class T, class ToFloat>
void launch_add(const std::byte* theirs, float* ours, const GateMatrix& m, cudaStream_t stream) {
  with_divisors_below(m.hidden * m.inputs, [&]<class IndexDivisor>(std::type_identity<IndexDivisor>) {
    launch_each(add_gate_elements<IndexDivisor, T, ToFloat>, "add_gate_elements", m.hidden * m.inputs, stream,
                reinterpret_cast<const T*>(theirs), ours, ToFloat{}, m, IndexDivisor(m.inputs));
  });
}
[[noreturn]] void refuse_weights() { throw std::logic_error("weights of recurrent layers have not this type"); }

}  // namespace

void copy_gate_to_library(const std::byte* ours, std::byte* theirs, core::Element e, const GateMatrix& m,
                          cudaStream_t stream) {
  if (e == core::Element::f32) return launch_copy<float>(ours, theirs, m, stream);
  if (e != core::Element::f16 && e != core::Element::bf16) refuse_weights();
  launch_copy<std::uint16_t>(ours, theirs, m, stream);
}

void add_gate_gradient(const std::byte* theirs, float* ours, core::Element e, const GateMatrix& m,
                       cudaStream_t stream) {
  if (e == core::Element::f32) return launch_add<float, FloatOf>(theirs, ours, m, stream);
  if (e == core::Element::f16)
    return launch_add<std::uint16_t, FloatOfHalf<core::fp16_format>>(theirs, ours, m, stream);
  if (e != core::Element::bf16) refuse_weights();
  launch_add<std::uint16_t, FloatOfHalf<core::bf16_format>>(theirs, ours, m, stream);
}

}  // namespace gradmeter::kernels::cuda
