#include "kernels/cuda/device_op.hpp"
#include "kernels/cuda/own_makers.hpp"
#include "kernels/cuda/pointwise.hpp"
#include "kernels/cuda/rnn.hpp"
#include "kernels/ops/makers.hpp"
#include "kernels/reference/rnn.hpp"

namespace gradmeter::kernels::cuda {
namespace {

Operand floats(std::string_view name, std::size_t elements, bool added_to = false) {
  return plain_operand(name, core::Element::f32, elements, added_to);
}
/// Only this backend reads it.
Operand kept_operand(const RnnShape& s) {
  return {.name = "kept", .format = nullptr, .stored_bytes = rnn_kept(s) * sizeof(float)};
}

struct RnnSizes {
  std::size_t input, output, state, weights, recurrent, bias;
  explicit RnnSizes(const RnnShape& s)
      : input(s.steps * s.batch * s.input_width()),
        output(s.steps * s.batch * s.hidden),
        state(s.batch * s.hidden),
        weights(s.input_width() * gates_of(s.cell) * s.hidden),
        recurrent(s.hidden * gates_of(s.cell) * s.hidden),
        bias(gates_of(s.cell) * s.hidden) {}
};

std::vector<Operand> forward_inputs(const RnnShape& s) {
  const RnnSizes n(s);
  std::vector<Operand> all{floats("input", n.input), floats("state", n.state)};
  if (s.cell == Cell::lstm) all.push_back(floats("memory", n.state));
  all.insert(all.end(), {floats("weights", n.weights), floats("recurrent", n.recurrent), floats("bias", n.bias)});
  return all;
}
std::vector<Operand> forward_outputs(const RnnShape& s, bool training) {
  std::vector<Operand> all{floats("output", RnnSizes(s).output)};
  if (training) all.push_back(kept_operand(s));
  return all;
}
std::vector<Operand> backward_inputs(const RnnShape& s) {
  const RnnSizes n(s);
  std::vector<Operand> all = forward_inputs(s);
  all.insert(all.end(), {floats("output", n.output), kept_operand(s), floats("output gradient", n.output)});
  return all;
}
std::vector<Operand> backward_outputs(const RnnShape& s) {
  const RnnSizes n(s);
  std::vector<Operand> all{floats("input gradient", n.input), floats("state gradient", n.state)};
  if (s.cell == Cell::lstm) all.push_back(floats("memory gradient", n.state));
  all.insert(all.end(), {floats("weights gradient", n.weights, true), floats("recurrent gradient", n.recurrent, true),
                         floats("bias gradient", n.bias, true)});
  return all;
}

/// Buffers of a call, in their order.
template <class AnyBuffer>
class Next {
 public:
  explicit Next(std::span<const AnyBuffer> all) : all_(all) {}
  auto operator()() { return device_values<float>(all_[at_++]); }
  /// Empty where the cell has no memory.
  auto memory(Cell cell) { return cell == Cell::lstm ? (*this)() : decltype((*this)()){}; }

 private:
  std::span<const AnyBuffer> all_;
  std::size_t at_ = 0;
};

RnnOperands operands(Cell cell, Next<runtime::ConstBuffer>& next) {
  RnnOperands o;
  o.input = next(), o.state = next(), o.memory = next.memory(cell);
  o.weights = next(), o.recurrent = next(), o.bias = next();
  return o;
}

class OwnRnnForward final : public DeviceOp {
 public:
  OwnRnnForward(const RnnShape& s, bool training, runtime::Cost cost, runtime::Device& device)
      : DeviceOp(forward_inputs(s), forward_outputs(s, training), cost),
        s_(s),
        scratch_(device, rnn_forward_scratch(s)),
        kept_(device, training ? 0 : rnn_kept(s)) {}
  std::size_t scratch_bytes() const override { return scratch_.bytes() + kept_.bytes(); }
  std::string implementation() const override { return "own tiles and cells"; }

 protected:
  void launch(Inputs in, Outputs out, cudaStream_t stream) override {
    Next<runtime::ConstBuffer> next(in);
    const DeviceSpan<float> kept = out.size() > 1 ? device_values<float>(out[1]) : kept_.span();
    rnn_forward(s_, operands(s_.cell, next), {device_values<float>(out[0]), kept}, scratch_.span(), stream);
  }

 private:
  RnnShape s_;
  Scratch scratch_, kept_;
};

class OwnRnnBackward final : public DeviceOp {
 public:
  OwnRnnBackward(const RnnShape& s, runtime::Cost cost, runtime::Device& device)
      : DeviceOp(backward_inputs(s), backward_outputs(s), cost), s_(s), scratch_(device, rnn_backward_scratch(s)) {}
  std::size_t scratch_bytes() const override { return scratch_.bytes(); }
  std::string implementation() const override { return "own tiles and cells"; }

 protected:
  void launch(Inputs in, Outputs out, cudaStream_t stream) override {
    Next<runtime::ConstBuffer> next(in);
    const RnnOperands o = operands(s_.cell, next);
    RnnForwardState f;
    f.output = next(), f.kept = next(), f.output_gradient = next();
    Next<runtime::Buffer> to(out);
    RnnGradientSpans g;
    g.input = to(), g.state = to(), g.memory = to.memory(s_.cell);
    g.weights = to(), g.recurrent = to(), g.bias = to();
    rnn_backward(s_, o, f, g, scratch_.span(), stream);
  }

 private:
  RnnShape s_;
  Scratch scratch_;
};

/// As libraries have it: biases, an lstm's memory and all gradients are fp32.
bool is_kept_in_16_bits(const Operand& o) {
  return o.format && o.name != "bias" && o.name != "memory" && !o.name.ends_with("gradient");
}
std::vector<Operand> in_16_bits(std::span<const Operand> in_fp32, core::Element e) {
  std::vector<Operand> all;
  for (const Operand& o : in_fp32) all.push_back(is_kept_in_16_bits(o) ? plain_operand(o.name, e, o.elements) : o);
  return all;
}

/// Operands of 16 bits become fp32 in each call, the output is rounded; between the steps states are not.
template <class T>
class ConvertedRnn final : public DeviceOp {
 public:
  ConvertedRnn(std::unique_ptr<Op> in_fp32, core::Element e, runtime::Cost cost, runtime::Device& device)
      : DeviceOp(in_16_bits(in_fp32->inputs(), e), in_16_bits(in_fp32->outputs(), e), cost),
        inner_(std::move(in_fp32)) {
    copies(inner_->inputs(), device, read_);
    copies(inner_->outputs(), device, written_);
  }
  std::size_t scratch_bytes() const override {
    std::size_t bytes = inner_->scratch_bytes();
    for (const auto* const list : {&read_, &written_})
      for (const runtime::OwnedBuffer& b : *list) bytes += b.buffer.bytes();
    return bytes;
  }
  std::string implementation() const override { return inner_->implementation() + ", operands converted"; }

 protected:
  void launch(Inputs in, Outputs out, cudaStream_t stream) override {
    std::vector<runtime::ConstBuffer> from(in.begin(), in.end());
    std::vector<runtime::Buffer> to(out.begin(), out.end());
    for (std::size_t i = 0; i < in.size(); ++i) {
      if (!read_[i].memory) continue;
      to_floats(device_values<T>(in[i]), device_values<float>(read_[i].buffer), stream);
      from[i] = read_[i].buffer;
    }
    for (std::size_t i = 0; i < out.size(); ++i)
      if (written_[i].memory) to[i] = written_[i].buffer;
    inner_->execute(from, to);
    for (std::size_t i = 0; i < out.size(); ++i)
      if (written_[i].memory) store(device_values<float>(to[i]), device_values<T>(out[i]), stream);
  }

 private:
  static void store(DeviceSpan<const float> from, DeviceSpan<Bf16> to, cudaStream_t s) { to_bf16(from, to, s); }
  static void store(DeviceSpan<const float> from, DeviceSpan<Fp16> to, cudaStream_t s) { to_fp16(from, to, s); }
  static void copies(std::span<const Operand> operands, runtime::Device& device,
                     std::vector<runtime::OwnedBuffer>& to) {
    for (const Operand& o : operands) {
      runtime::OwnedBuffer& b = to.emplace_back();
      if (is_kept_in_16_bits(o)) b = device.allocate(core::Element::f32, o.elements);
    }
  }

  std::unique_ptr<Op> inner_;
  std::vector<runtime::OwnedBuffer> read_, written_;  // no memory: not converted
};

}  // namespace

std::string own_rnn_refusal(const Problem& p) {
  if (auto why = rnn_shape_refusal(p); !why.empty()) return why;
  const auto& s = std::get<RnnShape>(p.shape);
  constexpr std::size_t most = 0x7fffffff;
  return std::max({s.steps * s.batch, gates_of(s.cell) * s.hidden, s.input_width()}) > most
             ? "an extent of a product is 2^31 or more"
             : "";
}

std::unique_ptr<Op> make_own_rnn(const Problem& p, const OpOptions& o, runtime::Device& device) {
  const auto& s = std::get<RnnShape>(p.shape);
  const runtime::Cost cost{.flops = run_flops(p), .bytes = bytes(p)};
  std::unique_ptr<Op> op;
  if (p.pass == Pass::forward) {
    op = std::make_unique<OwnRnnForward>(s, o.training, cost, device);
  } else {
    op = std::make_unique<OwnRnnBackward>(s, cost, device);
  }
  if (p.precision == Precision::bf16)
    return std::make_unique<ConvertedRnn<Bf16>>(std::move(op), core::Element::bf16, cost, device);
  if (p.precision == Precision::fp16)
    return std::make_unique<ConvertedRnn<Fp16>>(std::move(op), core::Element::f16, cost, device);
  return op;
}

}  // namespace gradmeter::kernels::cuda
