// SPDX-License-Identifier: Apache-2.0
// The device's own recurrent layers against the host's references, on ragged sizes.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "core/element.hpp"
#include "core/error.hpp"
#include "kernels/op.hpp"
#include "kernels/rnn/reference.hpp"
#include "support/device_seeds.hpp"
#include "support/on_device.hpp"
#include "support/own_ops.hpp"

namespace gradmeter::kernels {
namespace {

constexpr int seeds = 5;

using test::drawn;
using test::Floats;
using test::OwnOps;
using test::rounded;

Floats scaled(Floats x, float by) {
  for (float& v : x) v *= by;
  return x;
}
std::vector<double> wide(const Floats& x) { return {x.begin(), x.end()}; }

/// Forward and backward on the device, and what the reference makes of the same.
class RecurrentCheck {
 public:
  RecurrentCheck(const RnnShape& s, Precision p) : s_(s), p_(p) {
    const std::size_t columns = gates_of(s.cell) * s.hidden, state = s.batch * s.hidden;
    const float by = 1 / std::sqrt(static_cast<float>(s.hidden));
    inputs_ = {drawn(s.steps * s.batch * s.input_width(), 1), scaled(drawn(state, 2), 0.5F)};
    if (s.cell == Cell::lstm) inputs_.push_back(scaled(drawn(state, 3), 0.5F));
    inputs_.push_back(scaled(drawn(s.input_width() * columns, 4), by));
    inputs_.push_back(scaled(drawn(s.hidden * columns, 5), by));
    inputs_.push_back(scaled(drawn(columns, 6), 0.1F));
    gradient_ = drawn(s.steps * state, 7);
    forward_ = on_.outputs(*on_.prepare({.shape = s, .precision = p}, {.training = true}), inputs_);
    if (p != Precision::fp32)
      for (std::size_t i = 0; i + 1 < inputs_.size(); ++i)
        if (s.cell != Cell::lstm || i != 2) inputs_[i] = rounded(inputs_[i], format());
    reference_ = reference_inputs();
    trace_ = rnn_forward_reference(reference_);
  }

  void forward() {
    expect_right(Pass::forward, {{wide(forward_[0]), trace_.hidden}});
    const Floats inference = on_.outputs(*on_.prepare({.shape = s_, .precision = p_}), inputs_)[0];
    test::expect_equal_floats(inference, forward_[0]);
  }

  void backward() {
    std::vector<Floats> in = inputs_;
    in.insert(in.end(), {forward_[0], forward_[1], gradient_});
    const auto op = on_.prepare({.shape = s_, .pass = Pass::backward_data, .precision = p_});
    std::vector<Floats> before;
    for (const Operand& o : op->outputs()) before.push_back(o.is_added_to ? drawn(o.elements, 8) : Floats{});
    const std::vector<Floats> out = on_.outputs(*op, in, before);
    const RnnGradients right = rnn_backward_reference(reference_, trace_, wide(gradient_));
    std::vector<ComparedTensor> compared;
    for (std::size_t i = 0; i < out.size(); ++i) {
      ComparedTensor& c = compared.emplace_back(ComparedTensor{wide(out[i]), {}});
      for (std::size_t at = 0; at < out[i].size(); ++at)
        c.reference.push_back(of(op->outputs()[i].name, right, at) + (before[i].empty() ? 0 : before[i][at]));
    }
    expect_right(Pass::backward_data, compared);
  }

 private:
  const core::SmallFormat& format() const { return p_ == Precision::bf16 ? core::bf16_format : core::fp16_format; }
  RnnInputs reference_inputs() const {
    RnnInputs in{s_.cell, s_.hidden, s_.batch, s_.steps, s_.input};
    const std::size_t memory = s_.cell == Cell::lstm ? 1 : 0;
    in.layer_input = wide(inputs_[0]), in.state = wide(inputs_[1]);
    if (memory == 1) in.memory = wide(inputs_[2]);
    in.weights = inputs_[2 + memory], in.recurrent = inputs_[3 + memory], in.bias = wide(inputs_[4 + memory]);
    in.observed = wide(forward_[0]), in.rounds_only_results = p_ != Precision::fp32;
    return in;
  }
  double of(std::string_view name, const RnnGradients& g, std::size_t at) const {
    if (name == "input gradient") return g.layer_input[at];
    if (name == "state gradient") return g.state[at];
    if (name == "memory gradient") return g.memory[at];
    if (name == "weights gradient") return weights_gradient_at(reference_, g, at);
    return name == "bias gradient" ? bias_gradient_at(reference_, g, at)
                                   : recurrent_gradient_at(reference_, trace_, g, at);
  }
  /// fp16 is finer than bf16.
  void expect_right(Pass pass, const std::vector<ComparedTensor>& compared) const {
    const Precision p = p_ == Precision::fp32 ? p_ : Precision::bf16;
    const KernelCaseCheck check = checked_elements(compared, {.shape = s_, .pass = pass, .precision = p});
    EXPECT_TRUE(check.right()) << check.worst;
  }

  RnnShape s_;
  Precision p_;
  OwnOps on_;
  std::vector<Floats> inputs_, forward_;  // forward_: output, kept
  Floats gradient_;
  RnnInputs reference_;
  RnnTrace trace_;
};

TEST(DeviceOwnRecurrent, IsTheReferencesForwardAndBackward) {
  test::each_device_seed<seeds>([] {
    for (const Cell cell : {Cell::vanilla, Cell::lstm, Cell::gru})
      for (const RnnShape& s : {RnnShape{cell, 1, 1, 1}, RnnShape{cell, 33, 3, 5}, RnnShape{cell, 20, 35, 3, 7},
                                RnnShape{cell, 6, 40, 14, 70}})
        for (const Precision p : {Precision::fp32, Precision::bf16, Precision::fp16}) {
          if (p != Precision::fp32 && s.input != 7) continue;
          SCOPED_TRACE(text(s) + " " + std::string(name(p)));
          RecurrentCheck check(s, p);
          check.forward();
          check.backward();
        }
  });
}

TEST(DeviceOwnRecurrent, RefusesWhatItHasNot) {
  OwnOps on;
  const RnnShape s{Cell::gru, 3, 2, 2};
  EXPECT_THROW(on.prepare({.shape = s, .precision = Precision::int8}), core::UsageError);
  EXPECT_THROW(on.prepare({.shape = s, .pass = Pass::backward_weights}), core::UsageError);
  EXPECT_THROW(on.prepare({.shape = RnnShape{Cell::gru, 3, 2, 0}}), core::UsageError);
}

}  // namespace
}  // namespace gradmeter::kernels
