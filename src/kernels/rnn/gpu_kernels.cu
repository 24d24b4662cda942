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

/// One unit of a row of the batch, which a thread computes.
struct Unit {
  /// at: its place in [batch × hidden]; gates: that of its first gate in [batch × gates × hidden]
  std::size_t at, gates;
};
__device__ Unit unit_of(std::size_t i, const Divisor& units, unsigned gates) {
  const Quotient row = units.divide(i);
  return {i, row.whole * gates * units.d + row.rest};
}

// Forward. `gates` are sums on entry and the results of their nonlinearity on return.

__global__ void vanilla_step(float* gates, float* h, std::size_t n) {
  const std::size_t i = element_of_thread();
  if (i < n) h[i] = gates[i] = core::greater(gates[i], 0.0f);
}

__global__ void lstm_step(float* gates, const float* c_before, float* c, float* h, Divisor units, std::size_t n) {
  const std::size_t i = element_of_thread();
  if (i >= n) return;
  const std::size_t hidden = units.d;
  float* const at = gates + unit_of(i, units, 4).gates;
  const float input = sigmoid(at[0]), forget = sigmoid(at[hidden]), candidate = tanhf(at[2 * hidden]),
              output = sigmoid(at[3 * hidden]);
  at[0] = input, at[hidden] = forget, at[2 * hidden] = candidate, at[3 * hidden] = output;
  c[i] = forget * c_before[i] + input * candidate;
  h[i] = output * tanhf(c[i]);
}

/// Computes u and r, and the state that the candidate reads.
__global__ void gru_gates(float* gates, const float* before, float* reset_state, Divisor units, std::size_t n) {
  const std::size_t i = element_of_thread();
  if (i >= n) return;
  const std::size_t hidden = units.d;
  float* const at = gates + unit_of(i, units, 3).gates;
  at[0] = sigmoid(at[0]), at[hidden] = sigmoid(at[hidden]);
  reset_state[i] = at[hidden] * before[i];
}
__global__ void gru_step(float* gates, const float* before, float* h, Divisor units, std::size_t n) {
  const std::size_t i = element_of_thread();
  if (i >= n) return;
  const std::size_t hidden = units.d;
  float* const at = gates + unit_of(i, units, 3).gates;
  const float candidate = tanhf(at[2 * hidden]);
  at[2 * hidden] = candidate;
  h[i] = at[0] * before[i] + (1 - at[0]) * candidate;
}

// Backward. `later`: gradient of h after the step that comes from the later steps, null for the last one. `sums`:
// gradients of the gates' sums.

__device__ float gradient_of(const float* later, const float* outside, std::size_t i) {
  return later != nullptr ? later[i] + outside[i] : outside[i];
}

__global__ void vanilla_gradient(const float* gates, const float* later, const float* outside, float* sums,
                                 std::size_t n) {
  const std::size_t i = element_of_thread();
  if (i < n) sums[i] = gates[i] > 0 ? gradient_of(later, outside, i) : 0;
}

/// `memory`: gradient of c after the step, zero for the last one, of c before it on return.
__global__ void lstm_gradient(const float* gates, const float* c_before, const float* c, const float* later,
                              const float* outside, float* sums, float* memory, Divisor units, std::size_t n) {
  const std::size_t i = element_of_thread();
  if (i >= n) return;
  const std::size_t hidden = units.d;
  const std::size_t first = unit_of(i, units, 4).gates;
  const float* const at = gates + first;
  float* const to = sums + first;
  const float input = at[0], forget = at[hidden], candidate = at[2 * hidden], output = at[3 * hidden];
  const float gradient = gradient_of(later, outside, i), squashed = tanhf(c[i]);
  const float of_c = (later != nullptr ? memory[i] : 0) + gradient * output * (1 - squashed * squashed);
  to[0] = of_c * candidate * input * (1 - input);
  to[hidden] = of_c * c_before[i] * forget * (1 - forget);
  to[2 * hidden] = of_c * input * (1 - candidate * candidate);
  to[3 * hidden] = gradient * squashed * output * (1 - output);
  memory[i] = of_c * forget;
}

/// Computes the gradients of u and the candidate; `state` becomes the whole gradient of h.
__global__ void gru_gradient(const float* gates, const float* before, const float* later, const float* outside,
                             float* sums, float* state, Divisor units, std::size_t n) {
  const std::size_t i = element_of_thread();
  if (i >= n) return;
  const std::size_t hidden = units.d;
  const std::size_t first = unit_of(i, units, 3).gates;
  const float u = gates[first], candidate = gates[first + 2 * hidden], gradient = gradient_of(later, outside, i);
  sums[first] = gradient * (before[i] - candidate) * u * (1 - u);
  sums[first + 2 * hidden] = gradient * (1 - u) * (1 - candidate * candidate);
  state[i] = gradient;
}
/// Computes the gradient of r; `through` is the gradient of r·h. `state` becomes the part that reaches the
/// earlier h without products with weights.
__global__ void gru_reset_gradient(const float* gates, const float* before, const float* through, float* sums,
                                   float* state, Divisor units, std::size_t n) {
  const std::size_t i = element_of_thread();
  if (i >= n) return;
  const std::size_t hidden = units.d;
  const std::size_t first = unit_of(i, units, 3).gates;
  const float u = gates[first], r = gates[first + hidden];
  sums[first + hidden] = through[i] * before[i] * r * (1 - r);
  state[i] = state[i] * u + through[i] * r;
}

/// The layer's extents and the products of its passes.
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

/// Products in one stream, which share their scratch.
class Products {
 public:
  Products(DeviceSpan<float> scratch, cudaStream_t stream) : scratch_(scratch), stream_(stream) {}
  struct Extents {
    std::size_t m, n, k;
    ProductExtents whole() const {
      return {static_cast<unsigned>(m), static_cast<unsigned>(n), static_cast<unsigned>(k), 1};
    }
    std::size_t scratch() const { return m * k == 0 ? 0 : product_scratch(whole()); }
  };
  void set(const Extents& e, Matrix a, Matrix b, DeviceMatrix<float> c, const float* bias = nullptr) const {
    run(e, a, b, c, false, bias);
  }
  void add(const Extents& e, Matrix a, Matrix b, DeviceMatrix<float> c) const { run(e, a, b, c, true, nullptr); }

 private:
  void run(const Extents& e, Matrix a, Matrix b, DeviceMatrix<float> c, bool accumulate, const float* bias) const {
    const ProductExtents whole = e.whole();
    multiply({whole.m, whole.n, whole.k, a, b, c, accumulate, bias}, scratch_.first(e.scratch()), stream_);
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
  Forward(const RnnShape& s, const RnnOperands& in, DeviceSpan<float> output, DeviceSpan<float> kept,
          DeviceSpan<float> scratch, cudaStream_t stream)
      : cell_(s.cell), l_(s), in_(in), output_(output), kept_(kept), products_(scratch, stream), stream_(stream) {}

  void run() const {
    const std::size_t columns = l_.columns();
    float* const gates = kept_.device_address();
    products_.set({l_.rows(), columns, l_.input}, {in_.input.device_address(), l_.input},
                  {in_.weights.device_address(), columns}, {gates, columns}, in_.bias.device_address());
    for (std::size_t t = 0; t < l_.steps; ++t) step(t, gates + t * l_.step_gates());
  }

 private:
  void step(std::size_t t, float* gates) const {
    const std::size_t h = l_.hidden, n = l_.state(), columns = l_.columns();
    float *const output = output_.device_address(), *const now = output + t * n;
    const float* const before = t == 0 ? in_.state.device_address() : now - n;
    float* const beside = kept_.device_address() + l_.steps * l_.step_gates() + t * n;  // holds c or r·h
    const float* const recurrent = in_.recurrent.device_address();
    if (cell_ == Cell::gru) {
      products_.add({l_.batch, 2 * h, h}, {before, h}, {recurrent, columns}, {gates, columns});
      launch_each(gru_gates, "gru_gates", n, stream_, gates, before, beside, Divisor(h), n);
      products_.add({l_.batch, h, h}, {beside, h}, {recurrent + 2 * h, columns}, {gates + 2 * h, columns});
      launch_each(gru_step, "gru_step", n, stream_, gates, before, now, Divisor(h), n);
      return;
    }
    products_.add({l_.batch, columns, h}, {before, h}, {recurrent, columns}, {gates, columns});
    if (cell_ == Cell::vanilla) return launch_each(vanilla_step, "vanilla_step", n, stream_, gates, now, n);
    const float* const c_before = t == 0 ? in_.memory.device_address() : beside - n;
    launch_each(lstm_step, "lstm_step", n, stream_, gates, c_before, beside, now, Divisor(h), n);
  }

  Cell cell_;
  Layer l_;
  const RnnOperands& in_;
  DeviceSpan<float> output_, kept_;
  Products products_;
  cudaStream_t stream_;
};

class Backward {
 public:
  Backward(const RnnShape& s, const RnnOperands& in, const RnnForwardState& f, const RnnGradientSpans& to,
           DeviceSpan<float> scratch, cudaStream_t stream)
      : cell_(s.cell),
        l_(s),
        in_(in),
        f_(f),
        to_(to),
        sums_(scratch.device_address()),
        through_(sums_ + l_.steps * l_.step_gates()),
        bias_sums_(scratch.subspan(gate_floats(s), row_sums_workspace(l_.rows(), l_.columns()))),
        products_(scratch.subspan(own_scratch(s)), stream),
        stream_(stream) {}
  /// Floats for the gates' sums, for a gru's r·h, and for the bias's gradient.
  static std::size_t own_scratch(const RnnShape& s) {
    const Layer l(s);
    return gate_floats(s) + row_sums_workspace(l.rows(), l.columns());
  }

  void run() const {
    for (std::size_t t = l_.steps; t-- > 0;) step(t);
    const std::size_t columns = l_.columns(), rows = l_.rows();
    const Matrix sums{sums_, columns}, input{in_.input.device_address(), l_.input},
        weights{in_.weights.device_address(), columns};
    products_.set({rows, l_.input, columns}, sums, weights.transposed(), {to_.input.device_address(), l_.input});
    products_.add({l_.input, columns, rows}, input.transposed(), sums, {to_.weights.device_address(), columns});
    add_recurrent();
    launch_row_sums("add_column_sums", MatrixRows{sums_, columns}, rows, columns, AddedTo{to_.bias.device_address()},
                    bias_sums_, stream_);
  }

 private:
  static std::size_t gate_floats(const RnnShape& s) {
    const Layer l(s);
    return l.steps * l.step_gates() + (s.cell == Cell::gru ? l.state() : 0);
  }
  const float* gates(std::size_t t) const { return f_.kept.device_address() + t * l_.step_gates(); }
  /// Gives c or r·h.
  const float* beside(std::size_t t) const { return gates(l_.steps) + t * l_.state(); }
  const float* state_before(std::size_t t) const {
    return t == 0 ? in_.state.device_address() : f_.output.device_address() + (t - 1) * l_.state();
  }

  /// Computes the state's gradient where the earlier step reads it.
  void step(std::size_t t) const {
    const std::size_t h = l_.hidden, n = l_.state(), columns = l_.columns();
    float *const state = to_.state.device_address(), *const sums = sums_ + t * l_.step_gates();
    const float* const later = t + 1 == l_.steps ? nullptr : state;
    const float* const outside = f_.output_gradient.device_address() + t * n;
    const Matrix recurrent{in_.recurrent.device_address(), columns};
    if (cell_ == Cell::gru) return gru(t, later, outside, sums);
    if (cell_ == Cell::vanilla) {
      launch_each(vanilla_gradient, "vanilla_gradient", n, stream_, gates(t), later, outside, sums, n);
    } else {
      launch_each(lstm_gradient, "lstm_gradient", n, stream_, gates(t),
                  t == 0 ? in_.memory.device_address() : beside(t - 1), beside(t), later, outside, sums,
                  to_.memory.device_address(), Divisor(h), n);
    }
    products_.set({l_.batch, h, columns}, {sums, columns}, recurrent.transposed(), {state, h});
  }
  void gru(std::size_t t, const float* later, const float* outside, float* sums) const {
    const std::size_t h = l_.hidden, n = l_.state(), columns = l_.columns();
    float* const state = to_.state.device_address();
    const float* const before = state_before(t);
    const Matrix recurrent{in_.recurrent.device_address(), columns}, candidate{recurrent.first + 2 * h, columns};
    launch_each(gru_gradient, "gru_gradient", n, stream_, gates(t), before, later, outside, sums, state, Divisor(h), n);
    products_.set({l_.batch, h, h}, {sums + 2 * h, columns}, candidate.transposed(), {through_, h});
    launch_each(gru_reset_gradient, "gru_reset_gradient", n, stream_, gates(t), before, through_, sums, state,
                Divisor(h), n);
    products_.add({l_.batch, h, 2 * h}, {sums, columns}, recurrent.transposed(), {state, h});
  }

  /// Uses states before the steps from two places: the first step's state is an operand.
  void add_recurrent() const {
    const std::size_t h = l_.hidden, columns = l_.columns(), by_state = cell_ == Cell::gru ? 2 * h : columns;
    float* const to = to_.recurrent.device_address();
    const Matrix first{in_.state.device_address(), h}, others{f_.output.device_address(), h};
    products_.add({h, by_state, l_.batch}, first.transposed(), {sums_, columns}, {to, columns});
    products_.add({h, by_state, l_.rows() - l_.batch}, others.transposed(), {sums_ + l_.step_gates(), columns},
                  {to, columns});
    if (cell_ != Cell::gru) return;
    const Matrix reset_states{beside(0), h};
    products_.add({h, h, l_.rows()}, reset_states.transposed(), {sums_ + 2 * h, columns}, {to + 2 * h, columns});
  }

  Cell cell_;
  Layer l_;
  const RnnOperands& in_;
  const RnnForwardState& f_;
  const RnnGradientSpans& to_;
  float *sums_, *through_;
  DeviceSpan<float> bias_sums_;
  Products products_;
  cudaStream_t stream_;
};

void check_operands(const RnnShape& s, const RnnOperands& in) {
  const Layer l(s);
  if (l.state() > Divisor::end) throw std::invalid_argument("rnn: a state of more than 2^31 numbers");
  check_lengths("rnn: input", in.input.size(), l.rows() * l.input);
  check_lengths("rnn: state", in.state.size(), l.state());
  check_lengths("rnn: memory", in.memory.size(), s.cell == Cell::lstm ? l.state() : 0);
  check_lengths("rnn: weights", in.weights.size(), l.input * l.columns());
  check_lengths("rnn: recurrent", in.recurrent.size(), l.hidden * l.columns());
  check_lengths("rnn: bias", in.bias.size(), l.columns());
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

void rnn_forward(const RnnShape& s, const RnnOperands& in, DeviceSpan<float> output, DeviceSpan<float> kept,
                 DeviceSpan<float> scratch, cudaStream_t stream) {
  check_operands(s, in);
  check_lengths("rnn: output", output.size(), s.steps * s.batch * s.hidden);
  check_lengths("rnn: kept", kept.size(), rnn_kept(s));
  check_lengths("rnn: scratch", scratch.size(), rnn_forward_scratch(s));
  Forward(s, in, output, kept, scratch, stream).run();
}

void rnn_backward(const RnnShape& s, const RnnOperands& in, const RnnForwardState& f, const RnnGradientSpans& to,
                  DeviceSpan<float> scratch, cudaStream_t stream) {
  check_operands(s, in);
  check_operands(s, {to.input, to.state, to.memory, to.weights, to.recurrent, to.bias});
  check_lengths("rnn: output", f.output.size(), s.steps * s.batch * s.hidden);
  check_lengths("rnn: kept", f.kept.size(), rnn_kept(s));
  check_lengths("rnn: output gradient", f.output_gradient.size(), s.steps * s.batch * s.hidden);
  check_lengths("rnn: scratch", scratch.size(), rnn_backward_scratch(s));
  Backward(s, in, f, to, scratch, stream).run();
}

namespace {

template <class D>
__device__ std::size_t place_of_ours(std::size_t theirs, const GateMatrix& m, const D& inputs) {
  const Quotient unit = inputs.divide(theirs);
  return (unit.rest * m.gates + m.gate) * m.hidden + unit.whole;
}

template <class D, class T>
__global__ void copy_gate(const T* ours, T* theirs, GateMatrix m, D inputs) {
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
template <class D, class T, class ToFloat>
__global__ void add_gate_elements(const T* theirs, float* ours, ToFloat to_float, GateMatrix m, D inputs) {
  const std::size_t i = element_of_thread();
  if (i < m.hidden * m.inputs) ours[place_of_ours(i, m, inputs)] += to_float(theirs[i]);
}

template <class T>
void launch_copy(const std::byte* ours, std::byte* theirs, const GateMatrix& m, cudaStream_t stream) {
  with_divisors_below(m.hidden * m.inputs, [&]<class D>(std::type_identity<D>) {
    launch_each(copy_gate<D, T>, "copy_gate", m.hidden * m.inputs, stream, reinterpret_cast<const T*>(ours),
                reinterpret_cast<T*>(theirs), m, D(m.inputs));
  });
}
template <class T, class ToFloat>
void launch_add(const std::byte* theirs, float* ours, const GateMatrix& m, cudaStream_t stream) {
  with_divisors_below(m.hidden * m.inputs, [&]<class D>(std::type_identity<D>) {
    launch_each(add_gate_elements<D, T, ToFloat>, "add_gate_elements", m.hidden * m.inputs, stream,
                reinterpret_cast<const T*>(theirs), ours, ToFloat{}, m, D(m.inputs));
  });
}
[[noreturn]] void refuse_weights() { throw std::logic_error("weights of recurrent layers have not this type"); }

}  // namespace

void take_gate(const std::byte* ours, std::byte* theirs, core::Element e, const GateMatrix& m, cudaStream_t stream) {
  if (e == core::Element::f32) return launch_copy<float>(ours, theirs, m, stream);
  if (e != core::Element::f16 && e != core::Element::bf16) refuse_weights();
  launch_copy<std::uint16_t>(ours, theirs, m, stream);
}

void add_gate(const std::byte* theirs, float* ours, core::Element e, const GateMatrix& m, cudaStream_t stream) {
  if (e == core::Element::f32) return launch_add<float, FloatOf>(theirs, ours, m, stream);
  if (e == core::Element::f16)
    return launch_add<std::uint16_t, FloatOfHalf<core::fp16_format>>(theirs, ours, m, stream);
  if (e != core::Element::bf16) refuse_weights();
  launch_add<std::uint16_t, FloatOfHalf<core::bf16_format>>(theirs, ours, m, stream);
}

}  // namespace gradmeter::kernels::cuda
