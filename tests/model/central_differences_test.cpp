// SPDX-License-Identifier: Apache-2.0
// Gradients of layers against central differences of their definitions in float64, on random odd shapes.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/rnn/reference.hpp"
#include "model/layers/layers.hpp"
#include "model/slopes.hpp"

namespace gradmeter::model {
namespace {

Doubles dense(const std::vector<Doubles>& p, const Doubles& x, std::size_t in, std::size_t out, bool relu) {
  Doubles y;
  for (std::size_t n = 0; n < x.size() / in; ++n)
    for (std::size_t o = 0; o < out; ++o) {
      double sum = p[1][o];
      for (std::size_t i = 0; i < in; ++i) sum += p[0][o * in + i] * x[n * in + i];
      y.push_back(relu ? std::max(sum, 0.0) : sum);
    }
  return y;
}

struct ConvolutionSizes {
  ImageShape image;
  ConvolutionOptions options;
  std::size_t out(std::size_t side) const { return (side + 2 * options.pad - options.side) / options.stride + 1; }
};

double convolved(const ConvolutionSizes& s, const Doubles& filters, const double* image, std::size_t filter,
                 std::size_t row, std::size_t column) {
  double sum = 0;
  const std::size_t side = s.options.side;
  for (std::size_t c = 0; c < s.image.channels; ++c)
    for (std::size_t y = 0; y < side; ++y)
      for (std::size_t x = 0; x < side; ++x) {
        const std::size_t at_y = row * s.options.stride + y, at_x = column * s.options.stride + x;
        if (at_y < s.options.pad || at_x < s.options.pad) continue;
        if (at_y - s.options.pad >= s.image.height || at_x - s.options.pad >= s.image.width) continue;
        sum += filters[((filter * s.image.channels + c) * side + y) * side + x] *
               image[(c * s.image.height + at_y - s.options.pad) * s.image.width + at_x - s.options.pad];
      }
  return sum;
}

Doubles convolution(const ConvolutionSizes& s, const std::vector<Doubles>& p, const Doubles& x) {
  Doubles out;
  const std::size_t of_image = s.image.channels * s.image.height * s.image.width;
  for (std::size_t n = 0; n < x.size() / of_image; ++n)
    for (std::size_t f = 0; f < s.options.filters; ++f)
      for (std::size_t r = 0; r < s.out(s.image.height); ++r)
        for (std::size_t c = 0; c < s.out(s.image.width); ++c)
          out.push_back(std::max(convolved(s, p[0], &x[n * of_image], f, r, c) + p[1][f], 0.0));
  return out;
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

struct RecurrentSizes {
  kernels::Cell cell;
  std::size_t steps, features, h;
  RecurrentOutput output;
};

/// One sample's states through its steps; the cells as kernels/rnn/reference.hpp defines them.
class Recurrence {
 public:
  Recurrence(const RecurrentSizes& s, const std::vector<Doubles>& p)
      : s_(s), p_(p), gates_(kernels::gates_of(s.cell)), state_(s.h), memory_(s.h) {}

  const Doubles& step(const double* x) {
    Doubles next(s_.h);
    for (std::size_t j = 0; j < s_.h; ++j) next[j] = element(x, j);
    return state_ = next;
  }

 private:
  double of_input(const double* x, std::size_t gate, std::size_t j) const {
    double sum = p_[2][gate * s_.h + j];
    for (std::size_t i = 0; i < s_.features; ++i) sum += p_[0][(i * gates_ + gate) * s_.h + j] * x[i];
    return sum;
  }
  double of_state(const Doubles& h, std::size_t gate, std::size_t j) const {
    double sum = 0;
    for (std::size_t i = 0; i < s_.h; ++i) sum += p_[1][(i * gates_ + gate) * s_.h + j] * h[i];
    return sum;
  }
  double sum(const double* x, std::size_t gate, std::size_t j) const {
    return of_input(x, gate, j) + of_state(state_, gate, j);
  }
  double element(const double* x, std::size_t j) {
    if (s_.cell == kernels::Cell::vanilla) return std::max(sum(x, 0, j), 0.0);
    if (s_.cell == kernels::Cell::lstm) {
      const double i = sigmoid(sum(x, 0, j)), f = sigmoid(sum(x, 1, j)), g = std::tanh(sum(x, 2, j));
      memory_[j] = f * memory_[j] + i * g;
      return sigmoid(sum(x, 3, j)) * std::tanh(memory_[j]);
    }
    Doubles kept = state_;
    for (std::size_t i = 0; i < s_.h; ++i) kept[i] *= sigmoid(sum(x, 1, i));
    const double u = sigmoid(sum(x, 0, j));
    return u * state_[j] + (1 - u) * std::tanh(of_input(x, 2, j) + of_state(kept, 2, j));
  }

  const RecurrentSizes& s_;
  const std::vector<Doubles>& p_;
  std::size_t gates_;
  Doubles state_, memory_;
};

Doubles recurrent(const RecurrentSizes& s, const std::vector<Doubles>& p, const Doubles& x) {
  Doubles out;
  for (std::size_t n = 0; n < x.size() / (s.steps * s.features); ++n) {
    Recurrence r(s, p);
    for (std::size_t t = 0; t < s.steps; ++t) {
      const Doubles& h = r.step(&x[(n * s.steps + t) * s.features]);
      if (s.output == RecurrentOutput::every_step || t + 1 == s.steps) out.insert(out.end(), h.begin(), h.end());
    }
  }
  return out;
}

TEST_P(CentralDifferences, OfADenseLayerAreItsGradients) {
  Drawn draw(GetParam());
  const std::size_t in = draw(37), out = draw(29), samples = draw(9);
  const bool relu = draw(2) == 1;
  const auto layer =
      make_dense_layer(FeatureShape{in}, out, relu ? kernels::Activation::relu : kernels::Activation::none);
  expect_slopes(
      *layer, samples, [&](const auto& p, const auto& x) { return dense(p, x, in, out, relu); }, GetParam());
}

TEST_P(CentralDifferences, OfAConvolutionAreItsGradients) {
  Drawn draw(GetParam() + 100);
  const std::size_t side = draw(4);
  const ConvolutionSizes s{.image = {.channels = draw(5), .height = side + draw(9), .width = side + draw(7)},
                           .options = {.filters = draw(19), .side = side, .stride = draw(3), .pad = draw(side) - 1}};
  const auto layer = make_convolution_layer(s.image, s.options);
  expect_slopes(
      *layer, draw(4), [&](const auto& p, const auto& x) { return convolution(s, p, x); }, GetParam());
}

TEST_P(CentralDifferences, OfARecurrentLayerAreItsGradients) {
  Drawn draw(GetParam() + 200);
  constexpr std::array cells{kernels::Cell::vanilla, kernels::Cell::lstm, kernels::Cell::gru};
  const RecurrentSizes s{.cell = cells[GetParam() % cells.size()],
                         .steps = draw(6),
                         .features = draw(15),
                         .h = draw(18),
                         .output = draw(2) == 1 ? RecurrentOutput::every_step : RecurrentOutput::last_step};
  const auto layer = make_recurrent_layer(s.cell, {.steps = s.steps, .features = s.features}, s.h, s.output);
  expect_slopes(
      *layer, draw(5), [&](const auto& p, const auto& x) { return recurrent(s, p, x); }, GetParam());
}

INSTANTIATE_TEST_SUITE_P(Shapes, CentralDifferences, testing::Range<std::uint64_t>(1, 25));

}  // namespace
}  // namespace gradmeter::model
