// SPDX-License-Identifier: Apache-2.0
// Recurrent layers by their definition, in float64, for some rows of a batch (rows do not depend on each other) and the
// first steps. Backward is plain backpropagation through time.
//
// x is the input of a step, h and c are the state and the memory before the step (h' and c': after it), W the weights
// of the input (`weights`), U those of the state (`recurrent`), b the bias:
//   vanilla  h' = relu(Wx + Uh + b)
//   lstm     i, f, o = sigmoid(…), g = tanh(…), each of Wx + Uh + b;  c' = f·c + i·g,  h' = o·tanh(c')
//   gru      u, r = sigmoid(Wx + Uh + b), o = tanh(Wx + U(r·h) + b);  h' = u·h + (1 − u)·o
// Gates are in the order of oneDNN: lstm i, f, g, o; gru u, r, o. Sources: Hochreiter & Schmidhuber 1997 with forget
// gates (Gers et al. 2000); Cho et al. 2014, with r applied to h before the product with U.
#pragma once
#include <functional>
#include <span>
#include <vector>

#include "kernels/cases/kernel_case.hpp"

namespace gradmeter::kernels {

/// The number of gates: vanilla 1, lstm 4, gru 3.
std::size_t gates_of(Cell);

/// The inputs of a layer, for the rows of the batch and the first steps that are computed.
struct RnnInputs {
  Cell cell = Cell::vanilla;
  std::size_t hidden = 0, rows = 0, steps = 0;
  std::size_t input = 0;  ///< width of x; 0: as wide as h
  std::size_t input_width() const { return input > 0 ? input : hidden; }
  std::vector<double> layer_input = {};             ///< x [steps x rows x input]
  std::vector<double> state = {}, memory = {};      ///< h and c before the first step [rows x hidden]; c for lstm only
  std::vector<float> weights = {}, recurrent = {};  ///< W [input x gates x hidden], U [hidden in x gates x hidden]
  std::vector<double> bias = {};                    ///< [gates x hidden]
  /// Rounds the numbers that a library stores in a narrow type before the next product reads them: the states between
  /// steps, and r·h of a gru; in backward also the gates, and the gradients of the sums before their nonlinearities.
  /// Empty: nothing is rounded.
  std::function<double(double)> round_stored = {};
  /// h after each step, as the implementation under test computed it [steps x rows x hidden]. Each step of the
  /// reference starts from these values, so that every step is compared by itself and errors do not accumulate. Empty:
  /// steps start from the reference's own h.
  std::vector<double> observed = {};
  /// True: the implementation under test rounds h in its result, but its next step starts from h before rounding. Steps
  /// of the reference then start from the reference's own h, and `observed` only tells whether a relu's argument is
  /// above 0.
  bool rounds_only_results = false;
  bool starts_from_observed() const { return !rounds_only_results && !observed.empty(); }
};

/// The results of the forward reference.
struct RnnTrace {
  std::vector<double> gates;   ///< gates after their nonlinearity [steps x rows x gates x hidden]
  std::vector<double> hidden;  ///< h after each step, not rounded [steps x rows x hidden]
  std::vector<double> memory;  ///< c after each step [steps x rows x hidden]; lstm only
};
/// Cost:   2·gates·hidden·(input + hidden) FLOP for each row and step.
RnnTrace rnn_forward_reference(const RnnInputs&);

/// The results of the backward reference.
struct RnnGradients {
  /// gradients of the sums Wx + Uh + b of the gates, before their nonlinearity [steps x rows x gates x hidden]
  std::vector<double> sums;
  std::vector<double> layer_input;    ///< gradient of x [steps x rows x input]
  std::vector<double> state, memory;  ///< gradients of h and c before the first step [rows x hidden]
};
/// `gradient` is that of the loss with respect to the layer's output, which is h after each step [steps x rows x
/// hidden]. It does not include what a step's h contributes through later steps. Cost: as forward.
RnnGradients rnn_backward_reference(const RnnInputs&, const RnnTrace&, std::span<const double> gradient);

/// One element of the gradient of W, U or b; `at` is the element's index in that tensor of RnnInputs. Cost:
/// 2·rows·steps FLOP.
double weights_gradient_at(const RnnInputs&, const RnnGradients&, std::size_t at);
double recurrent_gradient_at(const RnnInputs&, const RnnTrace&, const RnnGradients&, std::size_t at);
double bias_gradient_at(const RnnInputs&, const RnnGradients&, std::size_t at);

// The check of a recurrent layer's results against those of the reference.

/// The numbers of one tensor that are checked.
struct ComparedTensor {
  std::vector<double> result, reference;
  double root_mean_square() const;  ///< of the reference; 1 if all of it is zero
};

/// For tests: makes the middle one of all elements wrong, by half of its tensor's root mean square.
void corrupt_one(std::span<ComparedTensor>);
/// Compares all elements with the reference, within the tolerance for the problem. Elements that are exact zeros in the
/// reference (behind a relu) do not count for KernelCaseCheck::zero_share.
KernelCaseCheck checked_elements(std::span<const ComparedTensor>, const Problem&);

}  // namespace gradmeter::kernels
