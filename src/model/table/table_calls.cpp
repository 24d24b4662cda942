// SPDX-License-Identifier: Apache-2.0
#include "model/table/table_model.hpp"

#include <algorithm>

#include "core/format.hpp"
#include "kernels/host/memory.hpp"
#include "kernels/problems/problem_file.hpp"
#include "kernels/rnn/reference.hpp"

namespace gradmeter::model {
namespace {

using kernels::NumberFormat;
using kernels::Op;
using kernels::Problem;
using runtime::Buffer;

class CallBuilder {
 public:
  CallBuilder(std::span<const TableLayer> layers, std::span<const TensorPlace> tensors, const TableSetting& s,
              runtime::Queue& queue, std::uint64_t seed)
      : plan_(layers), tensors_(tensors), setting_(s), queue_(queue), seed_(seed) {}

  TableCalls build() {
    made_.layers.resize(plan_.size());
    states_.resize(plan_.size());
    for (layer_ = 0; layer_ < plan_.size(); ++layer_) forward();
    for (layer_ = plan_.size(); layer_-- > 0;) backward();
    return std::move(made_);
  }

 private:
  /// A layer's state from forward to backward.
  struct State {
    std::vector<Place> kept;      ///< the operands of the forward calls that backward reads
    bool reads_previous = false;  ///< the layer's input is the output of the layer before
    bool gives_gradient = false;  ///< it computes its input's gradient: there is a layer before it
  };
  /// The memory between two layers: an output, or the gradient by it.
  struct Edge {
    Place place = {};
    bool exists = false;
    bool fits(const kernels::Operand& o) const {
      return exists && o.format != nullptr && place.bytes == o.stored_bytes && *place.format == *o.format;
    }
  };

  const TableLayer& plan() const { return plan_[layer_]; }
  LayerCalls& calls() { return made_.layers[layer_]; }
  State& state() { return states_[layer_]; }

  void forward() {
    switch (plan().kind) {
      case TableLayer::Kind::tensor:
        return;  // the edge skips this layer
      case TableLayer::Kind::embedding:
        calls().output = own_floats(plan().output_elements() * setting_.samples);
        above_or_before_ = {.place = calls().output, .exists = true};
        any_before_ = true;
        return;
      case TableLayer::Kind::product:
      case TableLayer::Kind::convolution:
        return forward_of_weights();
      case TableLayer::Kind::recurrent:
        return forward_recurrent();
      case TableLayer::Kind::attention:
        return forward_attention();
    }
  }

  void backward() {
    if (layer_ + 1 == plan_.size()) above_or_before_ = {};
    switch (plan().kind) {
      case TableLayer::Kind::tensor:
        return;
      case TableLayer::Kind::embedding:
        calls().output_gradient = gradient_from_above(calls().output.bytes, *calls().output.format);
        above_or_before_ = {};
        return;
      case TableLayer::Kind::product:
      case TableLayer::Kind::convolution:
        return backward_of_weights();
      case TableLayer::Kind::recurrent:
        return backward_recurrent();
      case TableLayer::Kind::attention:
        return backward_attention();
    }
  }

  // ---- products and convolutions: forward (x, w) to y; then gradients of weights and of inputs

  LayerProblems problems() {
    state().gives_gradient = any_before_;
    any_before_ = true;
    return problems_of(plan(), setting_.samples, true, setting_.precision);
  }

  void forward_of_weights() {
    const LayerProblems p = problems();
    Op& op = operation(p.forward.front());
    const Place x = input(op.inputs()[0]);
    const Place y = own(op.outputs()[0].stored_bytes, op.outputs()[0].format);
    scratch_used_ = 0;
    calls().forward.push_back({&op, label("forward"), "forward.pack", {x, parameter(op, 1, weight())}, {y}});
    state().kept = {x};
    above_or_before_ = {.place = y, .exists = true};
  }

  void backward_of_weights() {
    const LayerProblems p = problems_of(plan(), setting_.samples, state().gives_gradient, setting_.precision);
    const bool is_conv = plan().kind == TableLayer::Kind::convolution;
    // The gradient of filters reads input, then gradient; that of a product's weight the gradient, then the input.
    Op& weights = operation(p.backward[0]);
    const auto& delta_operand = weights.inputs()[is_conv ? 1 : 0];
    const Place delta = gradient_from_above(delta_operand.stored_bytes, *delta_operand.format);
    const Place x = refitted(state().kept[0], weights.inputs()[is_conv ? 0 : 1]);
    scratch_used_ = 0;
    const Place gradient = parameter_gradient(weights, 0, weight());
    calls().weight_gradients.push_back({&weights,
                                        label("backward"),
                                        "backward.pack",
                                        is_conv ? std::vector{x, delta} : std::vector{delta, x},
                                        {gradient}});
    if (!state().gives_gradient) return;
    Op& inputs = operation(p.backward[1]);
    scratch_used_ = 0;
    const Place below = flow_below(delta, inputs.outputs()[0]);
    calls().input_gradients.push_back({&inputs,
                                       label("backward"),
                                       "backward.pack",
                                       {refitted(delta, inputs.inputs()[0]), parameter(inputs, 1, weight())},
                                       {below}});
    give_down(below);
  }

  // ---- recurrent layers

  void forward_recurrent() {
    const LayerProblems p = problems();
    Op& op = operation(p.forward.front());
    scratch_used_ = 0;
    Call call{.op = &op, .label = label("forward"), .conversion_label = "forward.pack", .inputs = {}, .outputs = {}};
    for (std::size_t i = 0; i < op.inputs().size(); ++i) {
      call.inputs.push_back(recurrent_input(op, i));
      if (op.inputs()[i].name == "input") state().kept.push_back(call.inputs.back());
    }
    for (const auto& o : op.outputs()) {
      call.outputs.push_back(own(o.stored_bytes, o.format));
      state().kept.push_back(call.outputs.back());
    }
    above_or_before_ = {.place = call.outputs[kernels::index_of(op.outputs(), "output")], .exists = true};
    calls().forward.push_back(std::move(call));
  }

  Place recurrent_input(Op& op, std::size_t i) {
    const kernels::Operand& o = op.inputs()[i];
    if (o.name == "input") return input(o);
    if (o.name == "weights") return parameter(op, i, recurrent_part(0));
    if (o.name == "recurrent") return parameter(op, i, recurrent_part(1));
    if (o.name == "bias") return parameter(op, i, recurrent_part(2));
    return zeros(o);  // the states before the first step
  }

  void backward_recurrent() {
    const LayerProblems p = problems_of(plan(), setting_.samples, true, setting_.precision);
    Op& op = operation(p.backward.front());
    scratch_used_ = 0;
    Call call{.op = &op, .label = label("backward"), .conversion_label = "backward.pack", .inputs = {}, .outputs = {}};
    Place delta;
    for (std::size_t i = 0; i < op.inputs().size(); ++i) {
      const kernels::Operand& o = op.inputs()[i];
      if (o.name == "input" || o.name == "output" || o.name == "kept") {
        call.inputs.push_back(refitted(state().kept[o.name == "input" ? 0 : o.name == "output" ? 1 : 2], o));
      } else if (o.name == "output gradient") {
        call.inputs.push_back(delta = gradient_from_above(o.stored_bytes, *o.format));
      } else {
        call.inputs.push_back(recurrent_input(op, i));
      }
    }
    for (std::size_t i = 0; i < op.outputs().size(); ++i) call.outputs.push_back(recurrent_gradient(op, i, delta));
    const Place below = call.outputs[kernels::index_of(op.outputs(), "input gradient")];
    calls().weight_gradients.push_back(std::move(call));
    if (state().gives_gradient) give_down(below);
  }

  Place recurrent_gradient(Op& op, std::size_t i, const Place& delta) {
    const kernels::Operand& o = op.outputs()[i];
    if (o.name == "input gradient") return flow_below(delta, o);
    if (o.name == "weights gradient") return parameter_gradient(op, i, recurrent_part(0));
    if (o.name == "recurrent gradient") return parameter_gradient(op, i, recurrent_part(1));
    if (o.name == "bias gradient") return parameter_gradient(op, i, recurrent_part(2));
    return scratch(o.stored_bytes, o.format);  // the gradient of the states before the first step, which is not read
  }

  /// 0: weights of the input, 1: of the state, 2: the bias; a bias that the table does not have is count 0.
  TensorPlace recurrent_part(std::size_t part) const {
    const auto& s = std::get<kernels::RnnShape>(plan().shape);
    const TensorPlace first = tensors_[plan().rows[0]];
    const std::size_t hidden = s.hidden, gates = kernels::gates_of(s.cell), state_weights = gates * hidden * hidden;
    const bool is_fused = first.count == gates * hidden * (s.input_width() + hidden);
    if (part == 0) return {first.first, gates * hidden * s.input_width()};
    if (part == 1)
      return is_fused ? TensorPlace{first.first + first.count - state_weights, state_weights}
                      : tensors_[plan().rows[1]];
    const std::size_t bias = is_fused ? 1 : 2;
    return bias < plan().rows.size() ? tensors_[plan().rows[bias]] : TensorPlace{};
  }

  // ---- attention: queries, keys and values are random; its output is not read, since softmax is left out

  void forward_attention() {
    const LayerProblems p = problems();
    std::vector<Place>& kept = state().kept;  // v, scores, q, k
    Op& context = operation(p.forward.back());
    kept = {random(context.inputs()[1]), {}, {}, {}};
    scratch_used_ = 0;
    if (plan().has_scores) {
      Op& scores = operation(p.forward.front());
      kept[2] = random(scores.inputs()[0]), kept[3] = random(scores.inputs()[1]);
      kept[1] = own(scores.outputs()[0].stored_bytes, scores.outputs()[0].format);
      calls().forward.push_back({&scores, label("forward"), {}, {kept[2], kept[3]}, {kept[1]}});
    }
    kept[1] = plan().has_scores ? refitted(kept[1], context.inputs()[0]) : random(context.inputs()[0]);
    const Place out = own(context.outputs()[0].stored_bytes, context.outputs()[0].format);
    calls().forward.push_back({&context, label("forward"), {}, {kept[1], kept[0]}, {out}});
    above_or_before_ = {};
  }

  void backward_attention() {
    const LayerProblems p = problems_of(plan(), setting_.samples, true, setting_.precision);
    const std::vector<Place>& kept = state().kept;
    scratch_used_ = 0;
    Op &of_scores = operation(p.backward[0]), &of_values = operation(p.backward[1]);
    const auto& operand = of_scores.inputs()[0];
    const Place delta = random_gradient(operand.stored_bytes, *operand.format);
    const Place scores_gradient = scratch(of_scores.outputs()[0]);
    product(of_scores, delta, kept[0], scores_gradient);
    product(of_values, kept[1], delta, scratch(of_values.outputs()[0]));
    if (plan().has_scores) {
      Op &of_queries = operation(p.backward[2]), &of_keys = operation(p.backward[3]);
      product(of_queries, scores_gradient, kept[3], scratch(of_queries.outputs()[0]));
      product(of_keys, scores_gradient, kept[2], scratch(of_keys.outputs()[0]));
    }
    above_or_before_ = {};
  }

  void product(Op& op, const Place& a, const Place& b, const Place& to) {
    calls().input_gradients.push_back(
        {&op, label("backward"), {}, {refitted(a, op.inputs()[0]), refitted(b, op.inputs()[1])}, {to}});
  }

  // ---- operands

  TensorPlace weight() const { return tensors_[plan().rows[0]]; }

  Place input(const kernels::Operand& o) {
    state().reads_previous = above_or_before_.fits(o);
    return state().reads_previous ? above_or_before_.place : random(o);
  }

  Place gradient_from_above(std::size_t bytes, const NumberFormat& format) {
    const Edge& e = above_or_before_;
    if (e.exists && e.place.bytes == bytes && *e.place.format == format) return e.place;
    return random_gradient(bytes, format);
  }
  Place random_gradient(std::size_t bytes, const NumberFormat& format) {
    auto known = std::ranges::find_if(made_.random_gradients, [&](const auto& r) { return *r.format == format; });
    if (known == made_.random_gradients.end()) known = made_.random_gradients.insert(known, {&format, 0});
    known->bytes = std::max(known->bytes, bytes);
    return {.kind = Place::Kind::random_gradient, .bytes = bytes, .format = &format};
  }
  /// Places a gradient apart from the one from above.
  Place flow_below(const Place& above, const kernels::Operand& o) {
    const std::size_t which = above.kind == Place::Kind::flow ? 1 - above.first : 0;
    made_.flow_bytes[which] = std::max(made_.flow_bytes[which], o.stored_bytes);
    return {.kind = Place::Kind::flow, .first = which, .bytes = o.stored_bytes, .format = o.format};
  }
  void give_down(const Place& below) { above_or_before_ = {.place = below, .exists = state().reads_previous}; }

  Place scratch(std::size_t bytes, const NumberFormat* format) {
    const Place p{.kind = Place::Kind::scratch, .first = scratch_used_, .bytes = bytes, .format = format};
    scratch_used_ += kernels::whole_line_bytes(bytes);
    made_.scratch_bytes = std::max(made_.scratch_bytes, scratch_used_);
    return p;
  }
  Place scratch(const kernels::Operand& o) { return scratch(o.stored_bytes, o.format); }

  Place own(std::size_t bytes, const NumberFormat* format) {
    return {.memory = allocate(bytes), .bytes = bytes, .format = format};
  }
  Place own_floats(std::size_t count) {
    return own(count * sizeof(float), &kernels::number_format(core::Element::f32));
  }
  Place random(const kernels::Operand& o) {
    const Place p = own(o.stored_bytes, o.format);
    queue_.at_once([&] { fill_random(p.memory, *o.format, seed_++); });
    return p;
  }
  Place zeros(const kernels::Operand& o) { return own(o.stored_bytes, o.format); }

  /// Gives the same numbers to an operation that wants other padding or another layout: as many of their bytes as it
  /// takes, or memory of its own.
  Place refitted(const Place& p, const kernels::Operand& o) {
    if (p.bytes == o.stored_bytes) return p;
    if (p.kind == Place::Kind::own) return random(o);
    return random_gradient(o.stored_bytes, *o.format);
  }

  Place parameter(Op& op, std::size_t i, const TensorPlace& t) {
    const kernels::Operand& o = op.inputs()[i];
    if (t.count == 0) return zeros(o);
    Place p{
        .kind = Place::Kind::tensor, .first = t.first, .bytes = o.stored_bytes, .format = o.format, .count = t.count};
    if (!is_flat(o)) p.stored_at = scratch(o).first, p.conversion = &conversion(op, i, true);
    return p;
  }
  Place parameter_gradient(Op& op, std::size_t i, const TensorPlace& t) {
    const kernels::Operand& o = op.outputs()[i];
    if (t.count == 0) return scratch(o);
    Place p{.kind = Place::Kind::tensor,
            .first = t.first,
            .bytes = o.stored_bytes,
            .format = o.format,
            .count = t.count,
            .is_added_to = o.is_added_to};
    if (!is_flat(o)) p.stored_at = scratch(o).first, p.conversion = &conversion(op, i, false);
    return p;
  }
  /// True if the operand has the form of the flat buffers: plain, fp32.
  static bool is_flat(const kernels::Operand& o) {
    return !o.packed && *o.format == kernels::number_format(core::Element::f32);
  }

  // ---- operations and memory

  Op& operation(const Problem& p) {
    const std::string key =
        fmt::format("{} {} {}", kernels::problem_text(p.shape), kernels::name(p.pass), kernels::name(p.precision));
    auto& made = made_.operations[key];
    if (!made) made = kernels::prepare(p, {.training = true}, queue_.device());
    keys_[made.get()] = key;
    return *made;
  }
  Op& conversion(const Op& op, std::size_t operand, bool is_input) {
    auto& made = made_.operations[fmt::format("{} {} {}", keys_.at(&op), is_input ? "in" : "out", operand)];
    if (!made) made = is_input ? op.packing_floats(operand) : op.unpacking_floats(operand);
    return *made;
  }
  Buffer allocate(std::size_t bytes) {
    return made_.memory.emplace_back(queue_.device().allocate(core::Element::i8, bytes)).buffer;
  }

  std::string_view label(std::string_view pass) const {
    const bool forward = pass == "forward";
    switch (plan().kind) {
      case TableLayer::Kind::convolution:
        return forward ? "forward.conv" : "backward.conv";
      case TableLayer::Kind::recurrent:
        return forward ? "forward.rnn" : "backward.rnn";
      default:
        return forward ? "forward.gemm" : "backward.gemm";
    }
  }

  std::span<const TableLayer> plan_;
  std::span<const TensorPlace> tensors_;
  TableSetting setting_;
  runtime::Queue& queue_;
  std::uint64_t seed_;
  TableCalls made_;
  std::vector<State> states_;
  std::map<const Op*, std::string> keys_;
  std::size_t layer_ = 0, scratch_used_ = 0;
  Edge above_or_before_;
  bool any_before_ = false;
};

}  // namespace

void fill_random(const Buffer& to, const NumberFormat& format, std::uint64_t seed, double scale) {
  kernels::fill_repeating({to.host(), to.bytes()}, format, seed, scale);
}

TableCalls make_table_calls(std::span<const TableLayer> layers, std::span<const TensorPlace> tensors,
                            const TableSetting& s, runtime::Queue& queue, std::uint64_t seed) {
  return CallBuilder(layers, tensors, s, queue, seed).build();
}

}  // namespace gradmeter::model
