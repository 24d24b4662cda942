// Recurrent layers, forward and backward. Backward starts from what a forward pass of the same layer has left.
#include <algorithm>
#include <cmath>

#include "core/small_float.hpp"
#include "kernels/cases/makers.hpp"
#include "kernels/cases/op_case.hpp"
#include "kernels/cases/rnn_check.hpp"
#include "kernels/quantization.hpp"
#include "kernels/reference/rnn.hpp"

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
        seed_(o.seed),
        backend_(o.backend),
        device_(*o.device),
        op_(p, o.sets, {.backend = backend_}, device_) {
    for (std::size_t i = 0; i < o.sets; ++i) fill(i, seed_ + 8 * i);
    if (backward()) run_training(o.sets);
    op_.bind();
  }

  void run(std::size_t set) override { op_.run(set); }
  runtime::Queue* queue() override { return op_.queue(); }

  KernelCaseCheck check(double flops_at_most, bool inject_error) override {
    choose(flops_at_most);
    auto compared = backward() ? compare_backward() : compare_forward();
    if (inject_error) corrupt_one(compared);
    return checked_elements(compared, problem_);
  }

  std::string implementation() const override { return op_.op().implementation(); }

 private:
  bool backward() const { return problem_.pass != Pass::forward; }
  bool int8() const { return problem_.precision == Precision::int8; }

  /// Weights of variance 1/hidden: the sums of inputs keep the inputs' variance, so sigmoids are not saturated, and
  /// what a relu lets through of the states, half of their square, neither dies out nor grows with the steps.
  PlainNumbers drawn_weights(std::string_view name, std::uint64_t seed) const {
    return op_.draw(name, seed + (name == "weights" ? 0 : 1), 1 / std::sqrt(static_cast<double>(s_.hidden)));
  }

  void fill(std::size_t set, std::uint64_t seed) {
    for (const auto* const name : {"weights", "recurrent"}) op_.set_input(set, name, drawn_weights(name, seed));
    op_.set_input(set, "input", op_.draw("input", seed + 2));
    op_.set_input(set, "state", op_.draw("state", seed + 3, 0.5));
    op_.set_input(set, "bias", op_.draw("bias", seed + 4, 0.1));
    if (s_.cell == Cell::lstm) op_.set_input(set, "memory", op_.draw("memory", seed + 5, 0.5));
    if (backward()) op_.set_input(set, "output gradient", op_.draw("output gradient", seed + 6));
  }
  /// The forward passes that backward ones start from: they leave the outputs and what is kept.
  void run_training(std::size_t sets) {
    const Problem forward{.shape = s_, .precision = problem_.precision};
    OpCase training(forward, 1, {.training = true, .backend = backend_}, device_);
    for (std::size_t i = 0; i < sets; ++i) {
      for (const Operand& o : training.op().inputs()) {
        const bool is_weights = o.name == "weights" || o.name == "recurrent";
        training.set_input(0, o.name, is_weights ? drawn_weights(o.name, seed_ + 8 * i) : op_.input(i, o.name));
      }
      training.run(0);
      for (const auto* const name : {"output", "kept"}) op_.take_input(i, name, training, name);
    }
  }

  /// Which rows and how many steps the reference can afford; it must begin at the first step.
  void choose(double flops_at_most) {
    const double passes = backward() ? 3 : 1,
                 one = passes * full_flops(problem_) / static_cast<double>(s_.batch * s_.steps);
    const auto afford = [](double n, std::size_t most) {
      return static_cast<std::size_t>(std::clamp(n, 1.0, static_cast<double>(most)));
    };
    const std::size_t rows = std::max(afford(flops_at_most / one / static_cast<double>(s_.steps), s_.batch),
                                      std::min<std::size_t>(2, s_.batch));
    rows_ = sample_places(s_.batch, rows, 1);
    steps_ = afford(flops_at_most / one / static_cast<double>(rows), s_.steps);
    elements_ = afford(flops_at_most / 4 / static_cast<double>(2 * rows * steps_), std::size_t{1} << 60);
  }
  bool everything() const { return rows_.size() == s_.batch && steps_ == s_.steps; }

  /// Of rows of `width` numbers.
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
  std::vector<double> input(std::string_view name, std::size_t steps) const {
    return gathered(op_.input(0, name), steps, width_of(name));
  }
  std::vector<double> output(std::string_view name, std::size_t steps) {
    return gathered(op_.output(0, name), steps, width_of(name));
  }
  std::vector<float> weights(std::string_view name) const {
    auto w = drawn_weights(name, seed_).floats();
    const float scale = rnn_weights_scale(s_);
    if (int8())
      for (float& x : w) x = std::nearbyint(x * scale) / scale;
    return w;
  }
  RnnInputs inputs(std::vector<double> observed) const {
    RnnInputs in{s_.cell, s_.hidden, rows_.size(), steps_, s_.input};
    in.layer = input("input", steps_);
    in.state = input("state", 1);
    if (s_.cell == Cell::lstm) in.memory = input("memory", 1);
    in.weights = weights("weights"), in.recurrent = weights("recurrent");
    const PlainNumbers bias = op_.input(0, "bias");
    for (std::size_t i = 0; i < bias.size(); ++i) in.bias.push_back(bias.at(i));
    in.observed = std::move(observed);
    in.rounds_last = backend_ == "converted" || backend_ == "own";
    if (problem_.precision == Precision::bf16 && !in.rounds_last) in.store = as_bf16;
    if (int8()) in.store = quantized;
    return in;
  }

  std::vector<ComparedTensor> compare_forward() {
    run(0);
    const RnnInputs in = inputs(output("output", steps_));
    return {{in.observed, rnn_forward_reference(in).hidden}};
  }

  /// Of a big problem the incoming gradients are zero for this run, but for the rows and steps that were chosen: the
  /// gradients of weights are then sums over these alone.
  void run_chosen() {
    // The operation adds to the gradients of weights.
    for (const auto* const name : {"weights gradient", "recurrent gradient", "bias gradient"}) {
      const Operand& o = op_.op().outputs()[index_of(op_.op().outputs(), name)];
      op_.store_output(0, name, std::vector<std::byte>(o.stored_bytes));
    }
    if (everything()) return run(0);
    const PlainNumbers before = op_.input(0, "output gradient");
    std::vector<std::byte> gradient(before.bytes.size());
    const std::size_t number = before.format->bytes;
    for (std::size_t step = 0; step < steps_; ++step)
      for (const std::size_t row : rows_) {
        const std::size_t first = offset(step, row, s_.hidden) * number, bytes = s_.hidden * number;
        std::ranges::copy(std::span(before.bytes).subspan(first, bytes), std::span(gradient).subspan(first).begin());
      }
    op_.store_input(0, "output gradient", gradient);
    run(0);
    op_.store_input(0, "output gradient", before.bytes);
  }

  std::vector<ComparedTensor> compare_backward() {
    run_chosen();
    const RnnInputs in = inputs(input("output", steps_));
    const RnnTrace trace = rnn_forward_reference(in);
    const RnnGradients g = rnn_backward_reference(in, trace, input("output gradient", steps_));
    std::vector<ComparedTensor> all{{output("input gradient", steps_), g.layer}};
    const auto sampled = [&](std::string_view name, auto&& reference_at) {
      const PlainNumbers t = op_.output(0, name);
      ComparedTensor& l = all.emplace_back();
      for (const std::size_t at : sample_places(t.size(), elements_, 2))
        l.result.push_back(t.at(at)), l.reference.push_back(reference_at(at));
    };
    sampled("weights gradient", [&](std::size_t at) { return weights_gradient_at(in, g, at); });
    sampled("recurrent gradient", [&](std::size_t at) { return recurrent_gradient_at(in, trace, g, at); });
    sampled("bias gradient", [&](std::size_t at) { return bias_gradient_at(in, g, at); });
    all.push_back({output("state gradient", 1), g.state});
    if (s_.cell == Cell::lstm) all.push_back({output("memory gradient", 1), g.memory});
    return all;
  }

  Problem problem_;
  RnnShape s_;
  std::uint64_t seed_;
  std::string backend_;
  runtime::Device& device_;
  OpCase op_;
  std::vector<std::size_t> rows_ = {};  // that the check compares
  std::size_t steps_ = 0;
  std::size_t elements_ = 0;  // of each gradient of weights
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

}  // namespace gradmeter::kernels
