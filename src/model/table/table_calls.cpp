// SPDX-License-Identifier: Apache-2.0
#include "model/table/table_run.hpp"

#include <algorithm>

#include "core/format.hpp"
#include "kernels/host/memory.hpp"
#include "kernels/problems/problem_file.hpp"
#include "kernels/rnn/reference.hpp"
#include "model/layers/operations.hpp"

namespace gradmeter::model {
namespace {

using kernels::NumberFormat;
using kernels::Op;
using kernels::Problem;
using runtime::Buffer;

class CallBuilder {
 public:
  CallBuilder(const TableRunShape& s, runtime::Queue& queue, std::uint64_t seed)
      : shape_(s), queue_(queue), seed_(seed), states_(s.layers.size()) {
    result_.layers.resize(s.layers.size());
  }

  TableCalls build() {
    last_edge_ = {.exists = shape_.input_floats > 0, .stage_floats = shape_.input_floats};
    for (layer_ = 0; layer_ < shape_.layers.size(); ++layer_) forward();
    if (shape_.output_floats > 0)
      result_.output = to_other_stage(shape_.output_floats, [&] { return random_floats(); });
    last_edge_ = {.exists = shape_.output_floats > 0, .stage_floats = shape_.output_floats};
    while (layer_-- > 0) backward();
    if (shape_.input_floats > 0)
      result_.input_gradient = to_other_stage(shape_.input_floats, [&] {
        return random_gradient(shape_.input_floats * sizeof(float), kernels::number_format(core::Element::f32));
      });
    return std::move(result_);
  }

 private:
  /// A layer's state from forward to backward.
  struct State {
    std::vector<Place> kept;      ///< the operands of the forward calls that backward reads
    bool reads_previous = false;  ///< the layer's input is the output of the layer before
  };
  /// The memory between two layers: an output, or the gradient of one.
  struct Edge {
    Place place = {};
    bool exists = false;
    std::size_t stage_floats = 0;  ///< floats of all samples that come from another stage; 0: from this run
    const Op* op = nullptr;        ///< the operation that writes it; null: it is plain fp32
    std::size_t operand = 0;       ///< index among the operation's outputs
    bool fits(std::size_t bytes, const NumberFormat& format) const {
      return exists && stage_floats == 0 && place.bytes == bytes && *place.format == format;
    }
  };

  const RunLayer& run_layer() const { return shape_.layers[layer_]; }
  const TableLayer& table_layer() const { return run_layer().layer; }
  LayerCalls& calls() { return result_.layers[layer_]; }
  State& state() { return states_[layer_]; }

  void forward() {
    switch (table_layer().kind) {
      case TableLayer::Kind::tensor:
        return;  // the next layer reads the output of the one before
      case TableLayer::Kind::embedding:
        calls().output = own_floats(table_layer().output_elements() * shape_.samples);
        last_edge_ = {.place = calls().output, .exists = true};
        return;
      case TableLayer::Kind::product:
      case TableLayer::Kind::convolution:
        return forward_weight_layer();
      case TableLayer::Kind::recurrent:
        return forward_recurrent();
      case TableLayer::Kind::attention:
        return forward_attention();
    }
  }

  void backward() {
    switch (table_layer().kind) {
      case TableLayer::Kind::tensor:
        return;
      case TableLayer::Kind::embedding:
        calls().output_gradient = gradient_of_floats(calls().output.bytes / sizeof(float));
        last_edge_ = {};
        return;
      case TableLayer::Kind::product:
      case TableLayer::Kind::convolution:
        return backward_weight_layer();
      case TableLayer::Kind::recurrent:
        return backward_recurrent();
      case TableLayer::Kind::attention:
        return backward_attention();
    }
  }

  // ---- products and convolutions: forward (x, w) to y; then gradients of weights and of inputs

  LayerProblems problems() const {
    return problems_of(table_layer(), shape_.samples, run_layer().needs_input_gradient, shape_.precision);
  }

  void forward_weight_layer() {
    const LayerProblems p = problems();
    Op& op = operation(p.forward.front());
    const Place x = input(op, 0);
    const Place y = own(op.outputs()[0].stored_bytes, op.outputs()[0].format);
    scratch_used_ = 0;
    calls().forward.push_back({&op, label("forward"), "forward.pack", {x, parameter(op, 1, weight())}, {y}});
    state().kept = {x};
    last_edge_ = {.place = y, .exists = true, .op = &op};
  }

  void backward_weight_layer() {
    const LayerProblems p = problems();
    const bool is_conv = table_layer().kind == TableLayer::Kind::convolution;
    // The gradient of filters reads input, then gradient; that of a product's weight the gradient, then the input.
    Op& weights = operation(p.backward[0]);
    const Place delta = gradient_from_above(weights, is_conv ? 1 : 0);
    const Place x = refitted(state().kept[0], weights.inputs()[is_conv ? 0 : 1]);
    scratch_used_ = 0;
    const Place gradient = parameter_gradient(weights, 0, weight());
    calls().weight_gradients.push_back({&weights,
                                        label("backward"),
                                        "backward.pack",
                                        is_conv ? std::vector{x, delta} : std::vector{delta, x},
                                        {gradient}});
    if (!run_layer().needs_input_gradient) return;
    Op& inputs = operation(p.backward[1]);
    scratch_used_ = 0;
    const Place below = flow_below(delta, inputs.outputs()[0]);
    calls().input_gradients.push_back({&inputs,
                                       label("backward"),
                                       "backward.pack",
                                       {refitted_gradient(delta, inputs.inputs()[0]), parameter(inputs, 1, weight())},
                                       {below}});
    set_gradient_edge(below, inputs, 0);
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
    const std::size_t output = kernels::index_of(op.outputs(), "output");
    last_edge_ = {.place = call.outputs[output], .exists = true, .op = &op, .operand = output};
    calls().forward.push_back(std::move(call));
  }

  Place recurrent_input(Op& op, std::size_t i) {
    const kernels::Operand& o = op.inputs()[i];
    if (o.name == "input") return input(op, i);
    if (o.name == "weights") return parameter(op, i, recurrent_part(0));
    if (o.name == "recurrent") return parameter(op, i, recurrent_part(1));
    if (o.name == "bias") return parameter(op, i, recurrent_part(2));
    return zeros(o);  // the states before the first step
  }

  void backward_recurrent() {
    const LayerProblems p = problems();
    Op& op = operation(p.backward.front());
    scratch_used_ = 0;
    Call call{.op = &op, .label = label("backward"), .conversion_label = "backward.pack", .inputs = {}, .outputs = {}};
    Place delta;
    for (std::size_t i = 0; i < op.inputs().size(); ++i) {
      const kernels::Operand& o = op.inputs()[i];
      if (o.name == "input" || o.name == "output" || o.name == "kept") {
        call.inputs.push_back(refitted(state().kept[o.name == "input" ? 0 : o.name == "output" ? 1 : 2], o));
      } else if (o.name == "output gradient") {
        call.inputs.push_back(delta = gradient_from_above(op, i));
      } else {
        call.inputs.push_back(recurrent_input(op, i));
      }
    }
    for (std::size_t i = 0; i < op.outputs().size(); ++i) call.outputs.push_back(recurrent_gradient(op, i, delta));
    const std::size_t output = kernels::index_of(op.outputs(), "input gradient");
    const Place below = call.outputs[output];
    calls().weight_gradients.push_back(std::move(call));
    if (run_layer().needs_input_gradient) set_gradient_edge(below, op, output);
  }

  Place recurrent_gradient(Op& op, std::size_t i, const Place& delta) {
    const kernels::Operand& o = op.outputs()[i];
    if (o.name == "input gradient") return flow_below(delta, o);
    if (o.name == "weights gradient") return parameter_gradient(op, i, recurrent_part(0));
    if (o.name == "recurrent gradient") return parameter_gradient(op, i, recurrent_part(1));
    if (o.name == "bias gradient") return parameter_gradient(op, i, recurrent_part(2));
    return scratch(o.stored_bytes, o.format);  // the gradient of the states before the first step, which is not read
  }

  /// A part of a row's tensor, `count` elements from `first` on. count 0: the table has no such tensor.
  struct TensorPart {
    std::size_t row = 0, first = 0, count = 0;
  };
  TensorPart whole(std::size_t row) const { return {.row = row, .count = run_layer().counts[row]}; }
  TensorPart weight() const { return whole(0); }

  /// part: 0 for the weights of the input, 1 for those of the state, 2 for the bias. A bias that the table does not
  /// have has a count of 0.
  TensorPart recurrent_part(std::size_t part) const {
    const auto& s = std::get<kernels::RnnShape>(table_layer().shape);
    const std::size_t hidden = s.hidden, gates = kernels::gates_of(s.cell), state_weights = gates * hidden * hidden;
    const std::size_t input_weights = gates * hidden * s.input_width(), bias = table_layer().weight_rows;
    if (part == 0) return {.count = input_weights};
    if (part == 1) return bias == 1 ? TensorPart{.first = input_weights, .count = state_weights} : whole(1);
    return bias < table_layer().rows.size() ? whole(bias) : TensorPart{};
  }

  // ---- attention: queries, keys and values are random; its output is not read, since softmax is left out

  void forward_attention() {
    const LayerProblems p = problems();
    std::vector<Place>& kept = state().kept;  // v, scores, q, k
    Op& context = operation(p.forward.back());
    kept = {random(context.inputs()[1]), {}, {}, {}};
    scratch_used_ = 0;
    if (table_layer().has_scores) {
      Op& scores = operation(p.forward.front());
      kept[2] = random(scores.inputs()[0]), kept[3] = random(scores.inputs()[1]);
      kept[1] = own(scores.outputs()[0].stored_bytes, scores.outputs()[0].format);
      calls().forward.push_back({&scores, label("forward"), {}, {kept[2], kept[3]}, {kept[1]}});
    }
    kept[1] = table_layer().has_scores ? refitted(kept[1], context.inputs()[0]) : random(context.inputs()[0]);
    const Place out = own(context.outputs()[0].stored_bytes, context.outputs()[0].format);
    calls().forward.push_back({&context, label("forward"), {}, {kept[1], kept[0]}, {out}});
    last_edge_ = {};
  }

  void backward_attention() {
    const LayerProblems p = problems();
    const std::vector<Place>& kept = state().kept;
    scratch_used_ = 0;
    Op &of_scores = operation(p.backward[0]), &of_values = operation(p.backward[1]);
    const auto& operand = of_scores.inputs()[0];
    const Place delta = random_gradient(operand.stored_bytes, *operand.format);
    const Place scores_gradient = scratch(of_scores.outputs()[0]);
    product(of_scores, delta, kept[0], scores_gradient);
    product(of_values, kept[1], delta, scratch(of_values.outputs()[0]));
    if (table_layer().has_scores) {
      Op &of_queries = operation(p.backward[2]), &of_keys = operation(p.backward[3]);
      product(of_queries, scores_gradient, kept[3], scratch(of_queries.outputs()[0]));
      product(of_keys, scores_gradient, kept[2], scratch(of_keys.outputs()[0]));
    }
    last_edge_ = {};
  }

  void product(Op& op, const Place& a, const Place& b, const Place& to) {
    calls().input_gradients.push_back(
        {&op, label("backward"), {}, {refitted(a, op.inputs()[0]), refitted(b, op.inputs()[1])}, {to}});
  }

  // ---- operands

  /// The place of the operand that is the layer's input.
  Place input(Op& op, std::size_t i) {
    const kernels::Operand& o = op.inputs()[i];
    const Edge before = last_edge_;
    state().reads_previous = o.format && (before.fits(o.stored_bytes, *o.format) || before.stage_floats == o.elements);
    if (!state().reads_previous) return random(o);
    return before.stage_floats > 0 ? from_other_stage(result_.input, op, i) : before.place;
  }

  /// The place of the operand that is the gradient of the layer's output.
  Place gradient_from_above(Op& op, std::size_t i) {
    const kernels::Operand& o = op.inputs()[i];
    const Edge above = last_edge_;
    if (above.stage_floats == o.elements) return from_other_stage(result_.output_gradient, op, i);
    return above.fits(o.stored_bytes, *o.format) ? above.place : random_gradient(o.stored_bytes, *o.format);
  }
  /// The same for an embedding, which is no operation and takes `count` fp32 numbers.
  Place gradient_of_floats(std::size_t count) {
    const Edge above = last_edge_;
    const NumberFormat& format = kernels::number_format(core::Element::f32);
    const std::size_t bytes = count * sizeof(float);
    if (above.stage_floats != count) return above.fits(bytes, format) ? above.place : random_gradient(bytes, format);
    result_.output_gradient = {.place = own_floats(count)};
    return result_.output_gradient->place;
  }

  /// Memory for numbers from another stage in the form that an operation reads.
  Place from_other_stage(std::optional<Crossing>& crossing, Op& op, std::size_t i) {
    const kernels::Operand& o = op.inputs()[i];
    crossing = {.place = own(o.stored_bytes, o.format), .conversion = is_flat(o) ? nullptr : &conversion(op, i, true)};
    return crossing->place;
  }
  /// The numbers for another stage: those in `last_edge_`, or, if these are not `floats` many, what `otherwise`
  /// returns.
  template <class PlaceMaker>
  Crossing to_other_stage(std::size_t floats, const PlaceMaker& otherwise) {
    const Edge& e = last_edge_;
    if (!e.exists || e.stage_floats > 0) return {.place = otherwise()};
    if (!e.op) return {.place = e.place.bytes == floats * sizeof(float) ? e.place : otherwise()};
    const kernels::Operand& o = e.op->outputs()[e.operand];
    if (o.elements != floats) return {.place = otherwise()};
    return {.place = e.place, .conversion = is_flat(o) ? nullptr : &conversion(*e.op, e.operand, false)};
  }
  Place random_floats() {
    const Place p = own_floats(shape_.output_floats);
    queue_.run_and_wait([&] { fill_random(p.memory, *p.format, seed_++); });
    return p;
  }

  Place random_gradient(std::size_t bytes, const NumberFormat& format) {
    auto random = std::ranges::find_if(result_.random_gradients, [&](const auto& r) { return *r.format == format; });
    if (random == result_.random_gradients.end()) random = result_.random_gradients.insert(random, {&format, 0});
    random->bytes = std::max(random->bytes, bytes);
    return {.kind = Place::Kind::random_gradient, .bytes = bytes, .format = &format};
  }
  /// The place of the gradient that is passed down: in the flow buffer that does not hold the one from above.
  Place flow_below(const Place& above, const kernels::Operand& o) {
    const std::size_t flow = above.kind == Place::Kind::flow ? 1 - above.first : 0;
    result_.flow_bytes[flow] = std::max(result_.flow_bytes[flow], o.stored_bytes);
    return {.kind = Place::Kind::flow, .first = flow, .bytes = o.stored_bytes, .format = o.format};
  }
  void set_gradient_edge(const Place& below, const Op& op, std::size_t output) {
    last_edge_ = {.place = below, .exists = state().reads_previous, .op = &op, .operand = output};
  }

  Place scratch(std::size_t bytes, const NumberFormat* format) {
    const Place p{.kind = Place::Kind::scratch, .first = scratch_used_, .bytes = bytes, .format = format};
    scratch_used_ += kernels::whole_line_bytes(bytes);
    result_.scratch_bytes = std::max(result_.scratch_bytes, scratch_used_);
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
    queue_.run_and_wait([&] { fill_random(p.memory, *o.format, seed_++); });
    return p;
  }
  Place zeros(const kernels::Operand& o) { return own(o.stored_bytes, o.format); }

  /// Returns `p` for an operation that reads the numbers again, perhaps in another layout. If that needs another number
  /// of bytes, such as for other padding, returns random numbers instead.
  Place refitted(const Place& p, const kernels::Operand& o) {
    if (p.bytes != o.stored_bytes && p.kind == Place::Kind::own) return random(o);
    return refitted_gradient(p, o);
  }
  /// As `refitted`, but the random numbers have the small magnitude of a gradient.
  Place refitted_gradient(const Place& p, const kernels::Operand& o) {
    return p.bytes == o.stored_bytes ? p : random_gradient(o.stored_bytes, *o.format);
  }

  Place parameter(Op& op, std::size_t i, const TensorPart& t) {
    const kernels::Operand& o = op.inputs()[i];
    if (t.count == 0) return zeros(o);
    Place p = tensor(o, t);
    if (!is_flat(o)) p.stored_at = scratch(o).first, p.conversion = &conversion(op, i, true);
    return p;
  }
  Place parameter_gradient(Op& op, std::size_t i, const TensorPart& t) {
    const kernels::Operand& o = op.outputs()[i];
    if (t.count == 0) return scratch(o);
    Place p = tensor(o, t);
    p.is_added_to = o.is_added_to;
    if (!is_flat(o)) p.stored_at = scratch(o).first, p.conversion = &conversion(op, i, false);
    return p;
  }
  static Place tensor(const kernels::Operand& o, const TensorPart& t) {
    return {.kind = Place::Kind::tensor,
            .first = t.first,
            .bytes = o.stored_bytes,
            .format = o.format,
            .row = t.row,
            .count = t.count};
  }
  /// True if the operand has the form of the flat buffers: plain, fp32.
  static bool is_flat(const kernels::Operand& o) {
    return !o.packed && *o.format == kernels::number_format(core::Element::f32);
  }

  // ---- operations and memory

  Op& operation(const Problem& p) {
    const std::string key =
        fmt::format("{} {} {}", kernels::problem_text(p.shape), kernels::name(p.pass), kernels::name(p.precision));
    auto& operation = result_.operations[key];
    if (!operation) operation = kernels::prepare(p, {.training = true}, queue_.device());
    keys_[operation.get()] = key;
    return *operation;
  }
  Op& conversion(const Op& op, std::size_t operand, bool is_input) {
    auto& operation = result_.operations[fmt::format("{} {} {}", keys_.at(&op), is_input ? "in" : "out", operand)];
    if (!operation) operation = is_input ? op.packing_from_fp32(operand) : op.unpacking_to_fp32(operand);
    return *operation;
  }
  Buffer allocate(std::size_t bytes) {
    return result_.memory.emplace_back(queue_.device().allocate(core::Element::i8, bytes)).buffer;
  }

  std::string_view label(std::string_view pass) const {
    const bool forward = pass == "forward";
    switch (table_layer().kind) {
      case TableLayer::Kind::convolution:
        return forward ? "forward.conv" : "backward.conv";
      case TableLayer::Kind::recurrent:
        return forward ? "forward.rnn" : "backward.rnn";
      default:
        return forward ? "forward.gemm" : "backward.gemm";
    }
  }

  const TableRunShape& shape_;
  runtime::Queue& queue_;
  std::uint64_t seed_;
  TableCalls result_;
  std::vector<State> states_;
  std::map<const Op*, std::string> keys_;
  std::size_t layer_ = 0, scratch_used_ = 0;
  Edge last_edge_;  ///< of the layer handled last: its output in forward, the gradient of its input in backward
};

}  // namespace

TableCalls make_table_calls(const TableRunShape& s, runtime::Queue& queue, std::uint64_t seed) {
  return CallBuilder(s, queue, seed).build();
}

}  // namespace gradmeter::model
