// SPDX-License-Identifier: Apache-2.0
// The case of recurrent layers, forward and backward. Backward starts from the results of a forward pass of the same
// layer.
#include <algorithm>
#include <cmath>
#include <optional>

#include "core/element.hpp"
#include "kernels/cases/kernel_case.hpp"
#include "kernels/cases/op_case.hpp"
#include "kernels/number_format.hpp"
#include "kernels/rnn/reference.hpp"

namespace gradmeter::kernels {
namespace {

double quantized(double x) {
  return (std::clamp(std::nearbyint(x / rnn_quantum + rnn_zero_point), 0.0, 255.0) - rnn_zero_point) * rnn_quantum;
}
double as_bf16(double x) { return core::to_float(core::bf16_format, core::from_double(core::bf16_format, x)); }

class RnnCase final : public KernelCase {
 public:
  RnnCase(const Problem& p, const KernelCaseOptions& o)
      : problem_(p),
        s_(std::get<RnnShape>(p.shape)),
        backend_(o.backend),
        device_(*o.device),
        op_(p, o.sets, {.backend = backend_}, device_),
        seeds_(o.sets) {
    std::optional<OpCase> training = forward_pass();
    for (std::size_t i = 0; i < o.sets; ++i) draw(i, o.seed + 8 * i, training);
    op_.bind();
  }

  void run(std::size_t set) override {
    op_.run(set);
    ++calls_;
  }
  runtime::Queue* queue() override { return op_.queue(); }

  void redraw(std::size_t set, std::uint64_t seed) override {
    std::optional<OpCase> training = forward_pass();
    draw(set, seed, training);
  }

  void prepare_check(const CheckedCall& call) override {
    choose(call);
    if (is_backward()) prepare_gradients(call.set);
    for (const Operand& o : op_.op().outputs())
      if (const std::size_t width = width_of(o.name); o.format && !o.is_added_to) {
        op_.poison(call.set, o.name, compared_places(o.elements / width / s_.batch, width));
        op_.poison(call.set, o.name, written_places(o, call));
      }
    calls_ = 0;
  }

  KernelCaseCheck finish_check(const CheckedCall& call) override {
    auto compared = is_backward() ? compare_backward(call.set) : compare_forward(call.set);
    if (!all_gradients_.bytes.empty()) op_.store_input(call.set, "output gradient", all_gradients_.bytes);
    if (call.inject_error) corrupt_one(compared);
    KernelCaseCheck found = checked_elements(compared, problem_);
    for (const Operand& o : op_.op().outputs()) {
      if (!o.format || o.is_added_to) continue;
      // A few numbers of 8 bits may equal the poison.
      const std::size_t unwritten = op_.count_poisoned(call.set, o.name, written_places(o, call));
      if (unwritten > (o.format->bytes == 1 ? most_written_places / 4 : 0)) found.worst = std::nan("");
    }
    return found;
  }

  std::string implementation() const override { return op_.op().implementation(); }

 private:
  bool is_backward() const { return problem_.pass != Pass::forward; }
  bool is_int8() const { return problem_.precision == Precision::int8; }

  /// Draws weights of variance 1/hidden: the sums of inputs keep the inputs' variance, so sigmoids are not saturated,
  /// and states behind a relu, which keeps half of their square, neither die out nor grow with the steps.
  PlainNumbers drawn_weights(std::string_view name, std::uint64_t seed) const {
    return op_.draw(name, seed + (name == "weights" ? 0 : 1), 1 / std::sqrt(static_cast<double>(s_.hidden)));
  }

  void draw(std::size_t set, std::uint64_t seed, std::optional<OpCase>& training) {
    seeds_[set] = seed;
    fill(set, seed);
    if (training) run_training(set, *training);
  }
  void fill(std::size_t set, std::uint64_t seed) {
    for (const auto* const name : {"weights", "recurrent"}) op_.set_input(set, name, drawn_weights(name, seed));
    op_.set_input(set, "input", op_.draw("input", seed + 2));
    op_.set_input(set, "state", op_.draw("state", seed + 3, 0.5));
    op_.set_input(set, "bias", op_.draw("bias", seed + 4, 0.1));
    if (s_.cell == Cell::lstm) op_.set_input(set, "memory", op_.draw("memory", seed + 5, 0.5));
    if (is_backward()) op_.set_input(set, "output gradient", op_.draw("output gradient", seed + 6));
  }
  /// The forward pass from which a backward one starts; empty: this is a forward pass.
  std::optional<OpCase> forward_pass() const {
    std::optional<OpCase> training;
    const Problem forward{.shape = s_, .precision = problem_.precision};
    if (is_backward()) training.emplace(forward, 1, OpOptions{.training = true, .backend = backend_}, device_);
    return training;
  }
  /// Runs it for its outputs and `kept`.
  void run_training(std::size_t set, OpCase& training) {
    for (const Operand& o : training.op().inputs()) {
      const bool is_weights = o.name == "weights" || o.name == "recurrent";
      training.set_input(0, o.name, is_weights ? drawn_weights(o.name, seeds_[set]) : op_.input(set, o.name));
    }
    training.run(0);
    for (const auto* const name : {"output", "kept"}) op_.take_input(set, name, training, name);
  }

  /// Chooses rows and the number of steps that the reference can afford; it must begin at the first step.
  void choose(const CheckedCall& call) {
    const double flops_at_most = call.flops_at_most;
    const double passes = is_backward() ? 3 : 1,
                 flops_a_row_step = passes * full_flops(problem_) / static_cast<double>(s_.batch * s_.steps);
    const auto afford = [](double n, std::size_t most) {
      return static_cast<std::size_t>(std::clamp(n, 1.0, static_cast<double>(most)));
    };
    const std::size_t rows =
        std::max(afford(flops_at_most / flops_a_row_step / static_cast<double>(s_.steps), s_.batch),
                 std::min<std::size_t>(2, s_.batch));
    rows_ = sample_places(s_.batch, rows, call.seed);
    steps_ = afford(flops_at_most / flops_a_row_step / static_cast<double>(rows), s_.steps);
    elements_ = afford(flops_at_most / 4 / static_cast<double>(2 * rows * steps_), std::size_t{1} << 60);
  }
  /// Number of elements of the whole result that must be written; of a big problem only the first steps are compared.
  static constexpr std::size_t most_written_places = 32;
  static std::vector<std::size_t> written_places(const Operand& o, const CheckedCall& call) {
    return sample_places(o.elements, most_written_places, call.seed);
  }
  /// Places in a tensor to compare, within at most this many steps.
  std::vector<std::size_t> compared_places(std::size_t steps, std::size_t width) const {
    std::vector<std::size_t> at;
    for (std::size_t step = 0; step < std::min(steps, steps_); ++step)
      for (const std::size_t row : rows_) at.push_back(offset(step, row, width) + (step + row) % width);
    return at;
  }
  bool compares_everything() const { return rows_.size() == s_.batch && steps_ == s_.steps; }

  /// The offset of a row of `width` numbers.
  std::size_t offset(std::size_t step, std::size_t row, std::size_t width) const {
    return (step * s_.batch + row) * width;
  }
  std::vector<double> gathered(const PlainNumbers& t, std::size_t steps, std::size_t width) const {
    std::vector<double> out;
    out.reserve(steps * rows_.size() * width);
    for (std::size_t step = 0; step < steps; ++step)
      for (const std::size_t row : rows_)
        for (std::size_t j = 0; j < width; ++j) {
          const double x = t.at(offset(step, row, width) + j);
          out.push_back(*t.format == format_u8() ? (x - rnn_zero_point) * rnn_quantum : x);
        }
    return out;
  }
  std::size_t width_of(std::string_view name) const { return name.starts_with("input") ? s_.input_width() : s_.hidden; }
  std::vector<double> input(std::size_t set, std::string_view name, std::size_t steps) const {
    return gathered(op_.input(set, name), steps, width_of(name));
  }
  std::vector<double> output(std::size_t set, std::string_view name, std::size_t steps) {
    return gathered(op_.output(set, name), steps, width_of(name));
  }
  std::vector<float> weights(std::size_t set, std::string_view name) const {
    auto w = drawn_weights(name, seeds_[set]).floats();
    const float scale = rnn_weights_scale(s_);
    if (is_int8())
      for (float& x : w) x = std::nearbyint(x * scale) / scale;
    return w;
  }
  RnnInputs inputs(std::size_t set, std::vector<double> observed) const {
    RnnInputs in{s_.cell, s_.hidden, rows_.size(), steps_, s_.input};
    in.layer = input(set, "input", steps_);
    in.state = input(set, "state", 1);
    if (s_.cell == Cell::lstm) in.memory = input(set, "memory", 1);
    in.weights = weights(set, "weights"), in.recurrent = weights(set, "recurrent");
    const PlainNumbers bias = op_.input(set, "bias");
    for (std::size_t i = 0; i < bias.size(); ++i) in.bias.push_back(bias.at(i));
    in.observed = std::move(observed);
    in.rounds_last = backend_ == "converted" || backend_ == "own";
    if (problem_.precision == Precision::bf16 && !in.rounds_last) in.store = as_bf16;
    if (is_int8()) in.store = quantized;
    return in;
  }

  std::vector<ComparedTensor> compare_forward(std::size_t set) {
    const RnnInputs in = inputs(set, output(set, "output", steps_));
    return {{in.observed, rnn_forward_reference(in).hidden}};
  }

  /// For a big problem, sets the incoming gradients of this call to zero, except for the chosen rows and steps: then
  /// the gradients of weights are sums over these alone.
  void prepare_gradients(std::size_t set) {
    // The operation adds to the gradients of weights.
    for (const auto* const name : {"weights gradient", "recurrent gradient", "bias gradient"}) {
      const Operand& o = op_.op().outputs()[index_of(op_.op().outputs(), name)];
      op_.store_output(set, name, std::vector<std::byte>(o.stored_bytes));
    }
    all_gradients_ = {{}, nullptr};
    if (compares_everything()) return;
    all_gradients_ = op_.input(set, "output gradient");
    std::vector<std::byte> gradient(all_gradients_.bytes.size());
    const std::size_t number = all_gradients_.format->bytes;
    for (std::size_t step = 0; step < steps_; ++step)
      for (const std::size_t row : rows_) {
        const std::size_t first = offset(step, row, s_.hidden) * number, bytes = s_.hidden * number;
        std::ranges::copy(std::span(all_gradients_.bytes).subspan(first, bytes),
                          std::span(gradient).subspan(first).begin());
      }
    op_.store_input(set, "output gradient", gradient);
  }

  std::vector<ComparedTensor> compare_backward(std::size_t set) {
    const RnnInputs in = inputs(set, input(set, "output", steps_));
    const RnnTrace trace = rnn_forward_reference(in);
    const RnnGradients g = rnn_backward_reference(in, trace, input(set, "output gradient", steps_));
    std::vector<ComparedTensor> compared{{output(set, "input gradient", steps_), g.layer}};
    const auto sampled = [&](std::string_view name, auto&& reference_at) {
      const PlainNumbers t = op_.output(set, name);
      ComparedTensor& l = compared.emplace_back();
      for (const std::size_t at : sample_places(t.size(), elements_, 2))
        l.result.push_back(t.at(at) / calls_), l.reference.push_back(reference_at(at));
    };
    sampled("weights gradient", [&](std::size_t at) { return weights_gradient_at(in, g, at); });
    sampled("recurrent gradient", [&](std::size_t at) { return recurrent_gradient_at(in, trace, g, at); });
    sampled("bias gradient", [&](std::size_t at) { return bias_gradient_at(in, g, at); });
    compared.push_back({output(set, "state gradient", 1), g.state});
    if (s_.cell == Cell::lstm) compared.push_back({output(set, "memory gradient", 1), g.memory});
    return compared;
  }

  Problem problem_;
  RnnShape s_;
  std::string backend_;
  runtime::Device& device_;
  OpCase op_;
  std::vector<std::uint64_t> seeds_;  // seeds of each set's inputs
  // calls since the check was prepared; each adds to the gradients of weights
  double calls_ = 0;
  PlainNumbers all_gradients_ = {{}, nullptr};  // gradients of the output, while a check has set most of them to zero
  std::vector<std::size_t> rows_ = {};          // rows that the check compares
  std::size_t steps_ = 0;
  std::size_t elements_ = 0;  // elements checked of each gradient of weights
};

}  // namespace

std::size_t rnn_case_bytes(const Problem& p) {
  const auto& s = std::get<RnnShape>(p.shape);
  const std::size_t e = storage_bytes(p.precision), gates = gates_of(s.cell);
  const std::size_t widths = s.input_width() + s.hidden, weights = gates * s.hidden * widths;
  const std::size_t rows = s.steps * s.batch, layers = rows * widths;
  if (p.pass == Pass::forward) return e * (weights + layers);
  // Gradients are fp32; the workspace keeps the gates and the states of every step.
  return e * (weights + layers + (gates + 2) * rows * s.hidden) + 4 * (weights + layers);
}

std::unique_ptr<KernelCase> make_rnn_case(const Problem& p, const KernelCaseOptions& o) {
  return std::make_unique<RnnCase>(p, o);
}

namespace {

/// `relative` is a share of the element's magnitude, `usual` of its tensor's root mean square.
struct Tolerance {
  double relative, usual, absolute;
};

// Forward steps are checked one by one, each from the same state as the reference's. So only a lstm's c carries errors
// on, and loses them as its gate forgets c. Backward errors propagate as gradients do, through products with weights
// and derivatives that on the whole shrink them. Hence eight times what one step's sum of input + hidden products may
// be off by in fp32: 16 roundings for the nonlinearities, 4·√(input + hidden) for the sum. Seen: up to a sixth of it.
//
// bf16: where fp32 computes, only results are rounded. Else the reference rounds where oneDNN does: states and r·h,
// backward also gates and the gradients of their sums. A number next to a tie may be rounded to either side. Forward
// that allows the result's own rounding and a little of the usual size; backward a unit in each of up to four factors,
// of the element or of the sum that it is part of. Seen: up to a quarter of it.
//
// int8: one quantum, half for the rounding of the result, half for a state next to a tie.
Tolerance tolerance(const Problem& p) {
  const auto& s = std::get<RnnShape>(p.shape);
  const double products = static_cast<double>(s.input_width() + s.hidden);
  const double sums = 8 * 0x1p-24 * (16 + 4 * std::sqrt(products));
  if (p.precision == Precision::int8) return {0, sums, rnn_quantum};
  if (p.precision == Precision::fp32) return {0x1p-24, sums, 0};
  if (p.pass != Pass::forward) return {4 * 0x1p-8, 4 * 0x1p-8, 0};
  return {0x1p-8, 0x1p-9 + sums, 0};
}

}  // namespace

double ComparedTensor::usual() const {
  double sum = 0;
  for (const double x : reference) sum += x * x;
  return sum > 0 ? std::sqrt(sum / static_cast<double>(reference.size())) : 1;
}

void corrupt_one(std::span<ComparedTensor> compared) {
  std::size_t elements = 0;
  for (const ComparedTensor& l : compared) elements += l.result.size();
  std::size_t at = elements / 2;
  for (ComparedTensor& l : compared) {
    if (at < l.result.size()) {
      l.result[at] += 0.5 * l.usual();
      return;
    }
    at -= l.result.size();
  }
}

KernelCaseCheck checked_elements(std::span<const ComparedTensor> compared, const Problem& p) {
  const Tolerance t = tolerance(p);
  ElementCheck element_check;
  for (const ComparedTensor& l : compared) {
    const double usual = l.usual();
    for (std::size_t i = 0; i < l.result.size(); ++i) {
      const double allowed = t.relative * std::fabs(l.reference[i]) + t.usual * usual + t.absolute;
      element_check.add(l.result[i], l.reference[i], allowed, l.reference[i] != 0);
    }
  }
  return element_check.verdict();
}

}  // namespace gradmeter::kernels
