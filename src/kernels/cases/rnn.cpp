// Recurrent layers by oneDNN: one layer, one direction. Forward (inference) in fp32, bf16 and, for lstm and gru, u8 by
// s8; backward in fp32 and bf16. oneDNN computes all gradients in one primitive, which is measured as backward-data.
#include <algorithm>
#include <cmath>
#include <deque>

#include "core/small_float.hpp"
#include "kernels/cases/makers.hpp"
#include "kernels/cases/rnn_check.hpp"
#include "kernels/reference/rnn.hpp"
#include "kernels/rnn_onednn.hpp"

namespace gradmeter::kernels {
namespace {

using onednn::Tag;
using onednn::Tensor;
using onednn::Type;

constexpr float quantum = rnn_quantum, zero_point = 128;
double quantized(double x) {
  return (std::clamp(std::nearbyint(x / quantum + zero_point), 0.0, 255.0) - zero_point) * quantum;
}
double as_bf16(double x) { return core::to_float(core::bf16_format, core::from_double(core::bf16_format, x)); }

class RnnCase final : public KernelCase {
  struct Operands {
    std::unordered_map<int, Tensor> tensors = {};
    std::unordered_map<int, dnnl::memory> arguments = {};
  };

 public:
  RnnCase(const Problem& p, const KernelCaseOptions& o)
      : problem_(p),
        s_(std::get<RnnShape>(p.shape)),
        seed_(o.seed),
        engine_(dnnl::engine::kind::cpu, 0),
        stream_(engine_),
        made_(onednn::checked("creation of a recurrent primitive", [&] { return make(); })),
        scratch_(made_.scratchpad, engine_) {
    for (std::size_t i = 0; i < o.sets; ++i) fill(sets_.emplace_back(), seed_ + 8 * i);
  }

  void run(std::size_t set) override { execute(made_.primitive, sets_[set].arguments); }

  KernelCaseCheck check(double flops_at_most, bool inject_error) override {
    choose(flops_at_most);
    auto compared = backward() ? compare_backward() : compare_forward();
    if (inject_error) corrupt_one(compared);
    return checked_elements(compared, problem_);
  }

  std::string implementation() const override { return fmt::format("onednn {}", made_.name); }

 private:
  bool backward() const { return problem_.pass != Pass::forward; }
  bool int8() const { return problem_.precision == Precision::int8; }

  dnnl::primitive_attr attributes(dnnl::scratchpad_mode mode) const {
    dnnl::primitive_attr a;
    a.set_scratchpad_mode(mode);
    if (!int8()) return a;
    a.set_rnn_data_qparams(1 / quantum, zero_point);
    a.set_rnn_weights_qparams(0, {weights_scale()});
    return a;
  }
  onednn::RnnPrimitive make() const {
    const auto a = attributes(dnnl::scratchpad_mode::user);
    if (backward()) return onednn::make_rnn_backward(s_, problem_.precision, a, engine_);
    return onednn::make_rnn_forward(s_, problem_.precision, dnnl::prop_kind::forward_inference, a, engine_);
  }

  /// s8 per unit of weight, a power of two: six standard deviations still fit, or half of that without VNNI, where two
  /// products of 255·127 would saturate.
  float weights_scale() const {
    const double most = onednn::has_exact_int8() ? 127 : 63;
    return static_cast<float>(std::exp2(std::floor(std::log2(most * std::sqrt(static_cast<double>(s_.hidden)) / 6))));
  }

  /// Weights of variance 1/hidden: the sums of inputs keep the inputs' variance, so sigmoids are not saturated, and
  /// what a relu lets through of the states, half of their square, neither dies out nor grows with the steps.
  Tensor plain_weights(std::uint64_t seed) const {
    const Type type = int8() ? Type::f32 : onednn::rnn_weights_type(problem_.precision);
    Tensor plain(onednn::rnn_weights(s_, type, Tag::ldigo), engine_);
    plain.fill(seed, 1 / std::sqrt(static_cast<double>(s_.hidden)));
    return plain;
  }
  void fill_weights(const onednn::RnnPrimitive& p, std::unordered_map<int, Tensor>& to, std::uint64_t seed) const {
    for (const int name : {DNNL_ARG_WEIGHTS_LAYER, DNNL_ARG_WEIGHTS_ITER}) {
      const bool first = name == DNNL_ARG_WEIGHTS_LAYER;
      Tensor plain = plain_weights(seed + (first ? 0 : 1));
      Tensor packed(p.tensors.at(name), engine_);
      onednn::reorder(plain, packed, attributes(dnnl::scratchpad_mode::library));
      to.insert_or_assign(name, std::move(packed));
    }
  }

  void fill(Operands& x, std::uint64_t seed) {
    for (const auto& [name, description] : made_.tensors) x.tensors.try_emplace(name, description, engine_);
    fill_weights(made_, x.tensors, seed);
    x.tensors.at(DNNL_ARG_SRC_LAYER).fill(seed + 2);
    x.tensors.at(DNNL_ARG_SRC_ITER).fill(seed + 3, 0.5);
    x.tensors.at(DNNL_ARG_BIAS).fill(seed + 4, 0.1);
    if (s_.cell == Cell::lstm) x.tensors.at(DNNL_ARG_SRC_ITER_C).fill(seed + 5, 0.5);
    if (backward()) {
      x.tensors.at(DNNL_ARG_DIFF_DST_LAYER).fill(seed + 6);
      run_training(x, seed);
    }
    for (auto& [name, tensor] : x.tensors) x.arguments.emplace(name, tensor.memory());
    x.arguments.emplace(DNNL_ARG_SCRATCHPAD, scratch_.memory());
  }
  /// The forward pass that a backward one starts from: it leaves the output and the workspace.
  void run_training(Operands& x, std::uint64_t seed) {
    const auto training = onednn::checked("creation of a recurrent primitive", [&] {
      return onednn::make_rnn_forward(s_, problem_.precision, dnnl::prop_kind::forward_training,
                                      attributes(dnnl::scratchpad_mode::user), engine_);
    });
    std::unordered_map<int, Tensor> weights;
    fill_weights(training, weights, seed);
    Tensor scratch(training.scratchpad, engine_);
    std::unordered_map<int, dnnl::memory> arguments{{DNNL_ARG_SCRATCHPAD, scratch.memory()}};
    for (const auto& [name, description] : training.tensors)
      arguments.emplace(name, (weights.contains(name) ? weights : x.tensors).at(name).memory());
    execute(training.primitive, arguments);
  }
  void execute(const dnnl::primitive& p, const std::unordered_map<int, dnnl::memory>& arguments) {
    onednn::checked("recurrent layer", [&] {
      p.execute(stream_, arguments);
      stream_.wait();
    });
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

  std::size_t offset(std::size_t step, std::size_t row) const { return (step * s_.batch + row) * s_.hidden; }
  std::vector<double> gathered(const Tensor& t, std::size_t steps) const {
    std::vector<double> out;
    out.reserve(steps * rows_.size() * s_.hidden);
    for (std::size_t step = 0; step < steps; ++step)
      for (const std::size_t row : rows_)
        for (std::size_t j = 0; j < s_.hidden; ++j) {
          const double x = t.at(offset(step, row) + j);
          out.push_back(t.type() == Type::u8 ? (x - zero_point) * quantum : x);
        }
    return out;
  }
  std::vector<double> gathered(int name, std::size_t steps) const { return gathered(sets_[0].tensors.at(name), steps); }
  std::vector<float> weights(std::uint64_t seed) const {
    auto w = plain_weights(seed).floats();
    if (int8())
      for (float& x : w) x = std::nearbyint(x * weights_scale()) / weights_scale();
    return w;
  }
  RnnInputs inputs() const {
    RnnInputs in{s_.cell, s_.hidden, rows_.size(), steps_};
    in.layer = gathered(DNNL_ARG_SRC_LAYER, steps_);
    in.state = gathered(DNNL_ARG_SRC_ITER, 1);
    if (s_.cell == Cell::lstm) in.memory = gathered(DNNL_ARG_SRC_ITER_C, 1);
    in.weights = weights(seed_), in.recurrent = weights(seed_ + 1);
    in.bias = sets_[0].tensors.at(DNNL_ARG_BIAS).values(Tag::ldgo);
    in.observed = gathered(DNNL_ARG_DST_LAYER, steps_);
    if (problem_.precision == Precision::bf16) in.store = as_bf16;
    if (int8()) in.store = quantized;
    return in;
  }

  std::vector<ComparedTensor> compare_forward() {
    run(0);
    const RnnInputs in = inputs();
    return {{in.observed, rnn_forward_reference(in).hidden}};
  }

  /// Of a big problem the incoming gradients are zero for this run, but for the rows and steps that were chosen: the
  /// gradients of weights are then sums over these alone.
  void run_chosen() {
    Operands& x = sets_[0];
    // oneDNN adds to the gradients of weights.
    for (const int name : {DNNL_ARG_DIFF_WEIGHTS_LAYER, DNNL_ARG_DIFF_WEIGHTS_ITER, DNNL_ARG_DIFF_BIAS}) {
      Tensor& t = x.tensors.at(name);
      std::fill_n(t.data(), t.bytes(), std::byte{0});
    }
    if (everything()) return run(0);
    Tensor& gradient = x.tensors.at(DNNL_ARG_DIFF_DST_LAYER);
    const std::vector<std::byte> before(gradient.data(), gradient.data() + gradient.bytes());
    std::fill_n(gradient.data(), gradient.bytes(), std::byte{0});
    for (std::size_t step = 0; step < steps_; ++step)
      for (const std::size_t row : rows_) {
        const auto first = static_cast<std::ptrdiff_t>(offset(step, row) * sizeof(float));
        std::copy_n(before.data() + first, s_.hidden * sizeof(float), gradient.data() + first);
      }
    run(0);
    std::ranges::copy(before, gradient.data());
  }

  std::vector<ComparedTensor> compare_backward() {
    run_chosen();
    const RnnInputs in = inputs();
    const RnnTrace trace = rnn_forward_reference(in);
    const RnnGradients g = rnn_backward_reference(in, trace, gathered(DNNL_ARG_DIFF_DST_LAYER, steps_));
    std::vector<ComparedTensor> all{{gathered(DNNL_ARG_DIFF_SRC_LAYER, steps_), g.layer}};
    const auto sampled = [&](int name, Tag tag, auto&& reference_at) {
      const Tensor t = sets_[0].tensors.at(name).dense(tag);
      ComparedTensor& l = all.emplace_back();
      for (const std::size_t at : sample_places(t.elements(), elements_, 2))
        l.result.push_back(t.at(at)), l.reference.push_back(reference_at(at));
    };
    sampled(DNNL_ARG_DIFF_WEIGHTS_LAYER, Tag::ldigo, [&](std::size_t at) { return weights_gradient_at(in, g, at); });
    sampled(DNNL_ARG_DIFF_WEIGHTS_ITER, Tag::ldigo,
            [&](std::size_t at) { return recurrent_gradient_at(in, trace, g, at); });
    sampled(DNNL_ARG_DIFF_BIAS, Tag::ldgo, [&](std::size_t at) { return bias_gradient_at(in, g, at); });
    all.push_back({gathered(DNNL_ARG_DIFF_SRC_ITER, 1), g.state});
    if (s_.cell == Cell::lstm) all.push_back({gathered(DNNL_ARG_DIFF_SRC_ITER_C, 1), g.memory});
    return all;
  }

  Problem problem_;
  RnnShape s_;
  std::uint64_t seed_;
  dnnl::engine engine_;
  dnnl::stream stream_;
  onednn::RnnPrimitive made_;
  Tensor scratch_;
  std::deque<Operands> sets_;
  std::vector<std::size_t> rows_ = {};  // that the check compares
  std::size_t steps_ = 0;
  std::size_t elements_ = 0;  // of each gradient of weights
};

}  // namespace

std::string rnn_case_refusal(const Problem& p) {
  const auto& s = std::get<RnnShape>(p.shape);
  if (s.hidden == 0 || s.batch == 0 || s.steps == 0) return "rnn needs hidden, batch and steps of at least 1";
  if (p.pass == Pass::backward_weights)
    return "oneDNN computes all gradients of an rnn in one backward pass: measured as backward-data";
  if (p.precision == Precision::int8 && p.pass != Pass::forward)
    return "int8 rnn has a forward pass alone: no library trains in 8 bits";
  if (p.precision == Precision::int8 && s.cell == Cell::vanilla) return "oneDNN has int8 rnn for lstm and gru alone";
  if (p.precision == Precision::bf16 && !onednn::has_bf16())
    return "oneDNN has bf16 rnn for AVX-512 alone, which this processor lacks";
  return {};
}

std::size_t rnn_case_bytes(const Problem& p) {
  const auto& s = std::get<RnnShape>(p.shape);
  const std::size_t e = storage_bytes(p.precision), gates = gates_of(s.cell);
  const std::size_t weights = 2 * gates * s.hidden * s.hidden, layer = s.steps * s.batch * s.hidden;
  if (p.pass == Pass::forward) return e * (weights + 2 * layer);
  // Gradients are fp32; the workspace keeps the gates and the states of every step.
  return e * (weights + 2 * layer + (gates + 2) * layer) + 4 * (weights + 2 * layer);
}

std::unique_ptr<KernelCase> make_rnn_case(const Problem& p, const KernelCaseOptions& o) {
  return std::make_unique<RnnCase>(p, o);
}

}  // namespace gradmeter::kernels
