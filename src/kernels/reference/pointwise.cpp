// The definitions, one line of arithmetic each: float64 throughout, rounded once where a result is stored.
#include <cmath>
#include <vector>

#include "kernels/pointwise.hpp"
#include "kernels/problems/shape.hpp"

namespace gradmeter::kernels {

void relu_backward_reference(std::span<const float> activation, std::span<float> gradient) {
  require_elements("relu_backward: gradient", gradient.size(), activation.size());
  for (std::size_t i = 0; i < gradient.size(); ++i) gradient[i] = activation[i] > 0 ? gradient[i] : 0.0F;
}

void column_sums_reference(std::span<const float> matrix, std::size_t columns, std::span<float> out) {
  require_elements("column_sums: out", out.size(), columns);
  std::vector<double> sums(columns);
  for (std::size_t i = 0; i < matrix.size(); ++i) sums[i % columns] += double{matrix[i]};
  for (std::size_t j = 0; j < columns; ++j) out[j] = static_cast<float>(sums[j]);
}

void sgd_reference(std::span<float> w, std::span<const float> g, float step) {
  require_elements("sgd: g", g.size(), w.size());
  for (std::size_t i = 0; i < w.size(); ++i) w[i] = static_cast<float>(double{w[i]} - double{step} * double{g[i]});
}

void momentum_reference(std::span<float> w, std::span<float> v, std::span<const float> g, MomentumParameters p) {
  require_elements("momentum: v", v.size(), w.size());
  require_elements("momentum: g", g.size(), w.size());
  for (std::size_t i = 0; i < w.size(); ++i) {
    const double velocity = double{p.mu} * double{v[i]} + double{g[i]};
    const double direction = p.nesterov ? double{g[i]} + double{p.mu} * velocity : velocity;
    v[i] = static_cast<float>(velocity);
    w[i] = static_cast<float>(double{w[i]} - double{p.step} * direction);
  }
}

void adam_reference(std::span<float> w, std::span<float> m, std::span<float> v, std::span<const float> g,
                    AdamParameters p) {
  require_elements("adam: m", m.size(), w.size());
  require_elements("adam: v", v.size(), w.size());
  require_elements("adam: g", g.size(), w.size());
  const auto t = static_cast<double>(p.update);
  const double rate = double{p.step} * std::sqrt(1 - std::pow(double{p.beta2}, t)) / (1 - std::pow(double{p.beta1}, t));
  for (std::size_t i = 0; i < w.size(); ++i) {
    const double first = double{p.beta1} * double{m[i]} + (1 - double{p.beta1}) * double{g[i]};
    const double second = double{p.beta2} * double{v[i]} + (1 - double{p.beta2}) * double{g[i]} * double{g[i]};
    m[i] = static_cast<float>(first);
    v[i] = static_cast<float>(second);
    w[i] = static_cast<float>(double{w[i]} - rate * first / (std::sqrt(second) + double{p.epsilon}));
  }
}

void lstm_cell_reference(LstmGates<float> gates, std::span<float> c, std::span<float> h) {
  require_elements("lstm_cell: h", h.size(), c.size());
  const auto sigma = [](float x) { return 1 / (1 + std::exp(-double{x})); };
  for (std::size_t i = 0; i < c.size(); ++i) {
    const double kept = sigma(gates.forget[i]) * double{c[i]};
    const double cell = kept + sigma(gates.input[i]) * std::tanh(double{gates.candidate[i]});
    c[i] = static_cast<float>(cell);
    h[i] = static_cast<float>(sigma(gates.output[i]) * std::tanh(cell));
  }
}

}  // namespace gradmeter::kernels
