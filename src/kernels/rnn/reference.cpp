// SPDX-License-Identifier: Apache-2.0
#include "kernels/rnn/reference.hpp"

#include <algorithm>
#include <cmath>

namespace gradmeter::kernels {
namespace {

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

std::span<const double> part(const std::vector<double>& rows, std::size_t index, std::size_t size) {
  return std::span(rows).subspan(index * size, size);
}
std::span<double> part(std::vector<double>& rows, std::size_t index, std::size_t size) {
  return std::span(rows).subspan(index * size, size);
}

/// sums += x · M for columns [first, first + sums.size()) of M [x.size() x columns].
void add_product(std::span<const double> x, std::span<const float> m, std::size_t columns, std::size_t first,
                 std::span<double> sums) {
  for (std::size_t i = 0; i < x.size(); ++i) {
    const float* row = m.data() + i * columns + first;
    const double factor = x[i];
#pragma omp simd
    for (std::size_t j = 0; j < sums.size(); ++j) sums[j] += factor * static_cast<double>(row[j]);
  }
}

/// x += M · g for columns [first, first + g.size()) of M [x.size() x columns].
void add_transposed_product(std::span<const double> g, std::span<const float> m, std::size_t columns, std::size_t first,
                            std::span<double> x) {
  for (std::size_t i = 0; i < x.size(); ++i) {
    const float* row = m.data() + i * columns + first;
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (std::size_t j = 0; j < g.size(); ++j) sum += g[j] * static_cast<double>(row[j]);
    x[i] += sum;
  }
}

double stored(const RnnInputs& in, double x) { return in.round_stored ? in.round_stored(x) : x; }
void round(const RnnInputs& in, std::span<double> values) {
  for (double& x : values) x = stored(in, x);
}

/// h before step t of a row. own_states: h after each step of the reference.
std::vector<double> state_before(const RnnInputs& in, const std::vector<double>& own_states, std::size_t t,
                                 std::size_t row) {
  const std::size_t n = in.hidden;
  const auto copy_of = [&](const std::vector<double>& rows, std::size_t index) {
    const auto found = part(rows, index, n);
    return std::vector<double>(found.begin(), found.end());
  };
  if (t == 0) return copy_of(in.state, row);
  if (in.starts_from_observed()) return copy_of(in.observed, (t - 1) * in.rows + row);
  auto h = copy_of(own_states, (t - 1) * in.rows + row);
  round(in, h);
  return h;
}

/// r·h of a gru, which the candidate multiplies with U.
std::vector<double> reset_state(const RnnInputs& in, std::span<const double> gates, std::span<const double> before) {
  std::vector<double> result(in.hidden);
  for (std::size_t j = 0; j < in.hidden; ++j) result[j] = stored(in, gates[in.hidden + j] * before[j]);
  return result;
}

double memory_before(const RnnInputs& in, const RnnTrace& trace, std::size_t t, std::size_t row, std::size_t j) {
  return t == 0 ? in.memory[row * in.hidden + j] : trace.memory[((t - 1) * in.rows + row) * in.hidden + j];
}

void gru_forward(const RnnInputs& in, std::span<const double> before, std::span<double> gates, std::span<double> h) {
  const std::size_t n = in.hidden;
  add_product(before, in.recurrent, 3 * n, 0, gates.first(2 * n));
  for (std::size_t j = 0; j < 2 * n; ++j) gates[j] = sigmoid(gates[j]);
  add_product(reset_state(in, gates, before), in.recurrent, 3 * n, 2 * n, gates.last(n));
  for (std::size_t j = 0; j < n; ++j) {
    gates[2 * n + j] = std::tanh(gates[2 * n + j]);
    h[j] = gates[j] * before[j] + (1 - gates[j]) * gates[2 * n + j];
  }
}

void step_forward(const RnnInputs& in, std::size_t t, std::size_t row, RnnTrace& trace) {
  const std::size_t n = in.hidden, columns = gates_of(in.cell) * n, index = t * in.rows + row;
  const auto before = state_before(in, trace.hidden, t, row);
  const auto gates = part(trace.gates, index, columns), h = part(trace.hidden, index, n);
  std::ranges::copy(in.bias, gates.begin());
  add_product(part(in.layer_input, index, in.input_width()), in.weights, columns, 0, gates);
  if (in.cell == Cell::gru) return gru_forward(in, before, gates, h);
  add_product(before, in.recurrent, columns, 0, gates);
  for (std::size_t j = 0; j < n; ++j) {
    if (in.cell == Cell::vanilla) {
      h[j] = gates[j] = std::max(gates[j], 0.0);
      continue;
    }
    double &i = gates[j], &f = gates[n + j], &g = gates[2 * n + j], &o = gates[3 * n + j];
    i = sigmoid(i), f = sigmoid(f), g = std::tanh(g), o = sigmoid(o);
    const double c = f * memory_before(in, trace, t, row, j) + i * g;
    trace.memory[index * n + j] = c;
    h[j] = o * std::tanh(c);
  }
}

/// Computes the gradients of the four sums of one lstm unit. `memory` is the gradient of c: on entry of c after the
/// step, on return of c before it.
void lstm_unit_backward(std::span<const double> gates, double c, double c_before, double gradient, std::size_t n,
                        std::span<double> sums, double& memory) {
  const double i = gates[0], f = gates[n], g = gates[2 * n], o = gates[3 * n], squashed = std::tanh(c);
  memory += gradient * o * (1 - squashed * squashed);
  sums[0] = memory * g * i * (1 - i);
  sums[n] = memory * c_before * f * (1 - f);
  sums[2 * n] = memory * i * (1 - g * g);
  sums[3 * n] = gradient * squashed * o * (1 - o);
  memory *= f;
}

/// Computes the gradients of a gru's sums in one step. `state` is the gradient of h: on entry of h after the step, on
/// return of h before it.
void gru_backward(const RnnInputs& in, std::span<const double> gates, std::span<const double> before,
                  std::span<double> sums, std::span<double> state) {
  const std::size_t n = in.hidden;
  std::vector<double> through_reset(n);
  for (std::size_t j = 0; j < n; ++j) {
    const double u = gates[j], candidate = gates[2 * n + j];
    sums[j] = state[j] * (before[j] - candidate) * u * (1 - u);
    sums[2 * n + j] = state[j] * (1 - u) * (1 - candidate * candidate);
  }
  round(in, sums.last(n));
  add_transposed_product(sums.last(n), in.recurrent, 3 * n, 2 * n, through_reset);
  for (std::size_t j = 0; j < n; ++j) {
    const double r = gates[n + j];
    sums[n + j] = through_reset[j] * before[j] * r * (1 - r);
    state[j] = state[j] * gates[j] + through_reset[j] * r;
  }
  round(in, sums.first(2 * n));
  add_transposed_product(sums.first(2 * n), in.recurrent, 3 * n, 0, state);
}

void step_backward(const RnnInputs& in, const RnnTrace& trace, std::span<const double> gradient, std::size_t t,
                   std::size_t row, RnnGradients& out) {
  const std::size_t n = in.hidden, columns = gates_of(in.cell) * n, index = t * in.rows + row;
  std::vector<double> gates(columns);
  for (std::size_t j = 0; j < columns; ++j) gates[j] = stored(in, trace.gates[index * columns + j]);
  const auto sums = part(out.sums, index, columns), state = part(out.state, row, n);
  for (std::size_t j = 0; j < n; ++j) state[j] += gradient[index * n + j];
  if (in.cell == Cell::gru) {
    gru_backward(in, gates, state_before(in, trace.hidden, t, row), sums, state);
  } else {
    for (std::size_t j = 0; j < n; ++j) {
      if (in.cell == Cell::lstm) {
        lstm_unit_backward(std::span(gates).subspan(j), trace.memory[index * n + j],
                           memory_before(in, trace, t, row, j), state[j], n, sums.subspan(j), out.memory[row * n + j]);
      } else {
        // Close to zero, two right sums may differ in sign. The observed state shows the sign of the tested sum.
        sums[j] = (in.observed.empty() ? gates[j] : in.observed[index * n + j]) > 0 ? state[j] : 0;
      }
    }
    round(in, sums);
    std::ranges::fill(state, 0.0);
    add_transposed_product(sums, in.recurrent, columns, 0, state);
  }
  add_transposed_product(sums, in.weights, columns, 0, part(out.layer_input, index, in.input_width()));
}

}  // namespace

std::size_t gates_of(Cell c) { return c == Cell::vanilla ? 1 : c == Cell::lstm ? 4 : 3; }

RnnTrace rnn_forward_reference(const RnnInputs& in) {
  const std::size_t layer_states = in.steps * in.rows * in.hidden;
  RnnTrace trace{std::vector<double>(gates_of(in.cell) * layer_states), std::vector<double>(layer_states),
                 std::vector<double>(in.cell == Cell::lstm ? layer_states : 0)};
  for (std::size_t t = 0; t < in.steps; ++t)
    for (std::size_t row = 0; row < in.rows; ++row) step_forward(in, t, row, trace);
  return trace;
}

RnnGradients rnn_backward_reference(const RnnInputs& in, const RnnTrace& trace, std::span<const double> gradient) {
  const std::size_t layer_states = in.steps * in.rows * in.hidden, states = in.rows * in.hidden;
  RnnGradients out{std::vector<double>(gates_of(in.cell) * layer_states),
                   std::vector<double>(in.steps * in.rows * in.input_width()), std::vector<double>(states),
                   std::vector<double>(in.cell == Cell::lstm ? states : 0)};
  for (std::size_t t = in.steps; t-- > 0;)
    for (std::size_t row = 0; row < in.rows; ++row) step_backward(in, trace, gradient, t, row, out);
  return out;
}

double weights_gradient_at(const RnnInputs& in, const RnnGradients& g, std::size_t at) {
  const std::size_t columns = gates_of(in.cell) * in.hidden, from = at / columns, to = at % columns;
  double sum = 0;
  for (std::size_t i = 0; i < in.steps * in.rows; ++i)
    sum += in.layer_input[i * in.input_width() + from] * g.sums[i * columns + to];
  return sum;
}

double recurrent_gradient_at(const RnnInputs& in, const RnnTrace& trace, const RnnGradients& g, std::size_t at) {
  const std::size_t n = in.hidden, columns = gates_of(in.cell) * n, from = at / columns, to = at % columns;
  const bool is_candidate = in.cell == Cell::gru && to >= 2 * n;
  double sum = 0;
  for (std::size_t i = 0; i < in.steps * in.rows; ++i) {
    const std::size_t previous = i - in.rows;  // index of the same row a step before
    double h = i < in.rows                 ? in.state[i * n + from]
               : in.starts_from_observed() ? in.observed[previous * n + from]
                                           : stored(in, trace.hidden[previous * n + from]);
    if (is_candidate) h = stored(in, stored(in, trace.gates[i * columns + n + from]) * h);
    sum += h * g.sums[i * columns + to];
  }
  return sum;
}

double bias_gradient_at(const RnnInputs& in, const RnnGradients& g, std::size_t at) {
  const std::size_t columns = gates_of(in.cell) * in.hidden;
  double sum = 0;
  for (std::size_t i = 0; i < in.steps * in.rows; ++i) sum += g.sums[i * columns + at];
  return sum;
}

}  // namespace gradmeter::kernels
