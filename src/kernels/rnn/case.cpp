// SPDX-License-Identifier: Apache-2.0
// The kernel case of recurrent layers, forward and backward. A backward case starts from the results of a forward pass
// of the same layer.
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
        shape_(std::get<RnnShape>(p.shape)),
        backend_(o.backend),
        device_(*o.device),
        op_case_(p, o.sets, {.backend = backend_}, device_),
        seeds_(o.sets) {
    std::optional<OpCase> forward_case = forward_pass();
    for (std::size_t i = 0; i < o.sets; ++i) draw(i, o.seed + 8 * i, forward_case);
    op_case_.bind();
  }

  void run(std::size_t set) override { op_case_.run(set); }
  runtime::Queue* queue() override { return op_case_.queue(); }

  void redraw(std::size_t set, std::uint64_t seed) override {
    std::optional<OpCase> forward_case = forward_pass();
    draw(set, seed, forward_case);
  }

  void prepare_check(const CheckedCall& call) override {
    choose_rows_and_steps(call);
    if (is_backward()) prepare_gradients(call.set);
    for (const Operand& o : op_case_.op().outputs())
      if (const std::size_t width = width_of(o.name); o.format && !o.is_added_to) {
        op_case_.poison(call.set, o.name, compared_places(o.elements / width / shape_.batch, width));
        op_case_.poison(call.set, o.name, written_places(o, call));
      }
  }

  KernelCaseCheck finish_check(const CheckedCall& call) override {
    auto compared = is_backward() ? compare_backward(call) : compare_forward(call.set);
    if (!all_gradients_.bytes.empty()) op_case_.store_input(call.set, "output gradient", all_gradients_.bytes);
    if (call.inject_error) corrupt_one(compared);
    KernelCaseCheck found = checked_elements(compared, problem_);
    for (const Operand& o : op_case_.op().outputs()) {
      if (!o.format || o.is_added_to) continue;
      // In 8 bits, a few results may equal the poison by chance.
      const std::size_t unwritten = op_case_.count_poisoned(call.set, o.name, written_places(o, call));
      if (unwritten > (o.format->bytes == 1 ? most_written_places / 4 : 0)) found.worst = std::nan("");
    }
    return found;
  }

  std::string implementation() const override { return op_case_.op().implementation(); }

 private:
  bool is_backward() const { return problem_.pass != Pass::forward; }
  bool is_int8() const { return problem_.precision == Precision::int8; }

  /// Draws weights of variance 1/hidden. So a sum over the hidden units has the variance of these units: sigmoids do
  /// not saturate, and states behind a relu, which keeps half of the mean square, neither die out nor grow with the
  /// steps.
  PlainNumbers drawn_weights(std::string_view name, std::uint64_t seed) const {
    return op_case_.draw(name, seed + (name == "weights" ? 0 : 1), 1 / std::sqrt(static_cast<double>(shape_.hidden)));
  }

  void draw(std::size_t set, std::uint64_t seed, std::optional<OpCase>& forward_case) {
    seeds_[set] = seed;
    fill(set, seed);
    if (forward_case) run_forward(set, *forward_case);
  }
  void fill(std::size_t set, std::uint64_t seed) {
    for (const auto* const name : {"weights", "recurrent"}) op_case_.set_input(set, name, drawn_weights(name, seed));
    op_case_.set_input(set, "input", op_case_.draw("input", seed + 2));
    op_case_.set_input(set, "state", op_case_.draw("state", seed + 3, 0.5));
    op_case_.set_input(set, "bias", op_case_.draw("bias", seed + 4, 0.1));
    if (shape_.cell == Cell::lstm) op_case_.set_input(set, "memory", op_case_.draw("memory", seed + 5, 0.5));
    if (is_backward()) op_case_.set_input(set, "output gradient", op_case_.draw("output gradient", seed + 6));
  }
  /// Makes the forward pass from which a backward case starts; empty for a forward case.
  std::optional<OpCase> forward_pass() const {
    std::optional<OpCase> forward_case;
    const Problem forward{.shape = shape_, .precision = problem_.precision};
    if (is_backward()) forward_case.emplace(forward, 1, OpOptions{.training = true, .backend = backend_}, device_);
    return forward_case;
  }
  /// Runs the forward pass on a set's inputs, and takes its output and `kept` as inputs of the backward pass.
  void run_forward(std::size_t set, OpCase& forward_case) {
    for (const Operand& o : forward_case.op().inputs()) {
      const bool is_weights = o.name == "weights" || o.name == "recurrent";
      forward_case.set_input(0, o.name, is_weights ? drawn_weights(o.name, seeds_[set]) : op_case_.input(set, o.name));
    }
    forward_case.run(0);
    for (const auto* const name : {"output", "kept"}) op_case_.take_input(set, name, forward_case, name);
  }

  /// Chooses as many rows and first steps to check as the limit of FLOP allows.
  void choose_rows_and_steps(const CheckedCall& call) {
    const double flops_at_most = call.flops_at_most;
    const double passes = is_backward() ? 3 : 1,
                 flops_a_row_step = passes * full_flops(problem_) / static_cast<double>(shape_.batch * shape_.steps);
    const auto affordable = [](double count, std::size_t most) {
      return static_cast<std::size_t>(std::clamp(count, 1.0, static_cast<double>(most)));
    };
    const std::size_t rows =
        std::max(affordable(flops_at_most / flops_a_row_step / static_cast<double>(shape_.steps), shape_.batch),
                 std::min<std::size_t>(2, shape_.batch));
    rows_ = sample_places(shape_.batch, rows, call.seed);
    steps_ = affordable(flops_at_most / flops_a_row_step / static_cast<double>(rows), shape_.steps);
    elements_ = affordable(flops_at_most / 4 / static_cast<double>(2 * rows * steps_), std::size_t{1} << 60);
  }
  /// So many elements out of the whole result must have been written by the call, since only the first steps of a big
  /// problem are compared.
  static constexpr std::size_t most_written_places = 32;
  static std::vector<std::size_t> written_places(const Operand& o, const CheckedCall& call) {
    return sample_places(o.elements, most_written_places, call.seed);
  }
  /// An element of each checked row and step of a tensor that has `steps` steps of rows of `width` numbers.
  std::vector<std::size_t> compared_places(std::size_t steps, std::size_t width) const {
    std::vector<std::size_t> at;
    for (std::size_t step = 0; step < std::min(steps, steps_); ++step)
      for (const std::size_t row : rows_) at.push_back(offset(step, row, width) + (step + row) % width);
    return at;
  }
  bool compares_everything() const { return rows_.size() == shape_.batch && steps_ == shape_.steps; }

  /// The index of the first number of a row in a tensor [steps x batch x width].
  std::size_t offset(std::size_t step, std::size_t row, std::size_t width) const {
    return (step * shape_.batch + row) * width;
  }
  /// The numbers of the checked rows in the first `steps` steps of a tensor.
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
  std::size_t width_of(std::string_view name) const {
    return name.starts_with("input") ? shape_.input_width() : shape_.hidden;
  }
  std::vector<double> input(std::size_t set, std::string_view name, std::size_t steps) const {
    return gathered(op_case_.input(set, name), steps, width_of(name));
  }
  std::vector<double> output(std::size_t set, std::string_view name, std::size_t steps) {
    return gathered(op_case_.output(set, name), steps, width_of(name));
  }
  std::vector<float> weights(std::size_t set, std::string_view name) const {
    auto w = drawn_weights(name, seeds_[set]).floats();
    const float scale = rnn_weights_scale(shape_);
    if (is_int8())
      for (float& x : w) x = std::nearbyint(x * scale) / scale;
    return w;
  }
  RnnInputs inputs(std::size_t set, std::vector<double> observed) const {
    RnnInputs in{shape_.cell, shape_.hidden, rows_.size(), steps_, shape_.input};
    in.layer_input = input(set, "input", steps_);
    in.state = input(set, "state", 1);
    if (shape_.cell == Cell::lstm) in.memory = input(set, "memory", 1);
    in.weights = weights(set, "weights"), in.recurrent = weights(set, "recurrent");
    const PlainNumbers bias = op_case_.input(set, "bias");
    for (std::size_t i = 0; i < bias.size(); ++i) in.bias.push_back(bias.at(i));
    in.observed = std::move(observed);
    in.rounds_only_results = backend_ == "converted" || backend_ == "own";
    if (problem_.precision == Precision::bf16 && !in.rounds_only_results) in.round_stored = as_bf16;
    if (is_int8()) in.round_stored = quantized;
    return in;
  }

  std::vector<ComparedTensor> compare_forward(std::size_t set) {
    const RnnInputs in = inputs(set, output(set, "output", steps_));
    return {{in.observed, rnn_forward_reference(in).hidden}};
  }

  /// Clears the gradients of weights, to which the operation adds. If not all rows and steps are checked, also sets the
  /// gradients of the output to zero in the others, so that the gradients of weights are sums over the checked ones.
  void prepare_gradients(std::size_t set) {
    for (const auto* const name : {"weights gradient", "recurrent gradient", "bias gradient"}) {
      const Operand& o = op_case_.op().outputs()[index_of(op_case_.op().outputs(), name)];
      op_case_.store_output(set, name, std::vector<std::byte>(o.stored_bytes));
    }
    all_gradients_ = {{}, nullptr};
    if (compares_everything()) return;
    all_gradients_ = op_case_.input(set, "output gradient");
    std::vector<std::byte> chosen_gradients(all_gradients_.bytes.size());
    const std::size_t number_bytes = all_gradients_.format->bytes;
    for (std::size_t step = 0; step < steps_; ++step)
      for (const std::size_t row : rows_) {
        const std::size_t first = offset(step, row, shape_.hidden) * number_bytes,
                          row_bytes = shape_.hidden * number_bytes;
        std::ranges::copy(std::span(all_gradients_.bytes).subspan(first, row_bytes),
                          std::span(chosen_gradients).subspan(first).begin());
      }
    op_case_.store_input(set, "output gradient", chosen_gradients);
  }

  /// Each run of the set has added to the gradients of weights.
  std::vector<ComparedTensor> compare_backward(const CheckedCall& call) {
    const std::size_t set = call.set;
    const auto runs = static_cast<double>(call.runs);
    const RnnInputs in = inputs(set, input(set, "output", steps_));
    const RnnTrace trace = rnn_forward_reference(in);
    const RnnGradients g = rnn_backward_reference(in, trace, input(set, "output gradient", steps_));
    std::vector<ComparedTensor> compared{{output(set, "input gradient", steps_), g.layer_input}};
    const auto sampled = [&](std::string_view name, auto&& reference_at) {
      const PlainNumbers numbers = op_case_.output(set, name);
      ComparedTensor& tensor = compared.emplace_back();
      for (const std::size_t at : sample_places(numbers.size(), elements_, 2))
        tensor.result.push_back(numbers.at(at) / runs), tensor.reference.push_back(reference_at(at));
    };
    sampled("weights gradient", [&](std::size_t at) { return weights_gradient_at(in, g, at); });
    sampled("recurrent gradient", [&](std::size_t at) { return recurrent_gradient_at(in, trace, g, at); });
    sampled("bias gradient", [&](std::size_t at) { return bias_gradient_at(in, g, at); });
    compared.push_back({output(set, "state gradient", 1), g.state});
    if (shape_.cell == Cell::lstm) compared.push_back({output(set, "memory gradient", 1), g.memory});
    return compared;
  }

  Problem problem_;
  RnnShape shape_;
  std::string backend_;
  runtime::Device& device_;
  OpCase op_case_;
  std::vector<std::uint64_t> seeds_;            // the seed of each set's inputs
  PlainNumbers all_gradients_ = {{}, nullptr};  // the output's gradients, while a check has set a part of them to zero
  std::vector<std::size_t> rows_ = {};          // the rows that the check compares
  std::size_t steps_ = 0;                       // the number of first steps that the check compares
  std::size_t elements_ = 0;                    // the number of elements to check in each gradient of weights
};

}  // namespace

std::size_t rnn_case_bytes(const Problem& p) {
  const auto& s = std::get<RnnShape>(p.shape);
  const auto real = [](std::size_t n) { return static_cast<double>(n); };
  const double e = real(storage_bytes(p.precision)), gates = real(gates_of(s.cell)), hidden = real(s.hidden);
  const double widths = real(s.input_width()) + hidden, weights = gates * hidden * widths;
  const double rows = real(s.steps) * real(s.batch), layers = rows * widths;
  if (p.pass == Pass::forward) return whole_bytes(e * (weights + layers));
  // Gradients are fp32; the workspace keeps the gates and the states of every step.
  return whole_bytes(e * (weights + layers + (gates + 2) * rows * hidden) + 4 * (weights + layers));
}

std::unique_ptr<KernelCase> make_rnn_case(const Problem& p, const KernelCaseOptions& o) {
  return std::make_unique<RnnCase>(p, o);
}

namespace {

/// The allowed distance of an element from its reference is relative·|reference| + to_rms·(the root mean square of its
/// tensor's reference) + absolute.
struct Tolerance {
  double relative, to_rms, absolute;
};

// fp32: each forward step is checked by itself, from the same state as the reference's, so only an lstm's c carries
// errors on, and loses them as its gate forgets c. Backward errors propagate as gradients do, through products with
// weights and derivatives, which on the whole shrink them. So eight times the possible error of one step is allowed: 16
// roundings for the nonlinearities, and 4·√(input + hidden) for the sum of input + hidden products. The largest
// distance seen is a sixth of this.
//
// bf16: if fp32 computes, only results are rounded. If oneDNN computes, the reference rounds where oneDNN does: states
// and r·h, in backward also gates and the gradients of their sums. A number close to the middle between two numbers of
// bf16 may be rounded to either side. So forward allows the result's own rounding and 2^-9 of the root mean square;
// backward allows a unit in the last place for each of up to four factors, of the element and of the root mean square.
// The largest distance seen is a quarter of this.
//
// int8: one quantum is allowed, half for the rounding of the result, half for a state that was rounded to the other
// side.
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

double ComparedTensor::root_mean_square() const {
  double sum = 0;
  for (const double x : reference) sum += x * x;
  return sum > 0 ? std::sqrt(sum / static_cast<double>(reference.size())) : 1;
}

void corrupt_one(std::span<ComparedTensor> compared) {
  std::size_t elements = 0;
  for (const ComparedTensor& tensor : compared) elements += tensor.result.size();
  std::size_t at = elements / 2;
  for (ComparedTensor& tensor : compared) {
    if (at < tensor.result.size()) {
      tensor.result[at] += 0.5 * tensor.root_mean_square();
      return;
    }
    at -= tensor.result.size();
  }
}

KernelCaseCheck checked_elements(std::span<const ComparedTensor> compared, const Problem& p) {
  const Tolerance t = tolerance(p);
  ElementCheck element_check;
  for (const ComparedTensor& tensor : compared) {
    const double rms = tensor.root_mean_square();
    for (std::size_t i = 0; i < tensor.result.size(); ++i) {
      const double allowed = t.relative * std::fabs(tensor.reference[i]) + t.to_rms * rms + t.absolute;
      element_check.add(tensor.result[i], tensor.reference[i], allowed, tensor.reference[i] != 0);
    }
  }
  return element_check.verdict();
}

}  // namespace gradmeter::kernels
