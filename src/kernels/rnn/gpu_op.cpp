// SPDX-License-Identifier: Apache-2.0
// The operations of recurrent layers on a GPU by our own kernels.
#include "kernels/backends.hpp"
#include "kernels/cuda/device_op.hpp"
#include "kernels/pointwise/gpu_kernels.hpp"
#include "kernels/rnn/gpu_kernels.hpp"
#include "kernels/rnn/reference.hpp"

namespace gradmeter::kernels::cuda {
namespace {

constexpr core::Element f32 = core::Element::f32;
OperandLists own_operands(const RnnShape& s, Pass pass, bool training, core::Element layer) {
  return rnn_operands(s, pass, training, {.layer = layer, .memory = f32, .gradient = f32}, rnn_kept(s) * sizeof(float));
}

/// Takes the buffers of a call one after another.
template <class AnyBuffer>
class BufferSequence {
 public:
  explicit BufferSequence(std::span<const AnyBuffer> all) : all_(all) {}
  auto operator()() { return device_values<float>(all_[at_++]); }
  /// The next buffer if the cell has a memory; else an empty span.
  auto memory(Cell cell) { return cell == Cell::lstm ? (*this)() : decltype((*this)()){}; }

 private:
  std::span<const AnyBuffer> all_;
  std::size_t at_ = 0;
};

template <class T, class AnyBuffer>
RnnSpans<T> rnn_spans(Cell cell, BufferSequence<AnyBuffer>& next) {
  RnnSpans<T> layer_spans;
  layer_spans.input = next(), layer_spans.state = next(), layer_spans.memory = next.memory(cell);
  layer_spans.weights = next(), layer_spans.recurrent = next(), layer_spans.bias = next();
  return layer_spans;
}

class OwnRnnForward final : public DeviceOp {
 public:
  OwnRnnForward(const RnnShape& s, bool training, runtime::Cost cost, runtime::Device& device)
      : DeviceOp(own_operands(s, Pass::forward, training, f32), cost),
        shape_(s),
        scratch_(device, rnn_forward_scratch(s)),
        kept_(device, training ? 0 : rnn_kept(s)) {}
  std::size_t scratch_bytes() const override { return scratch_.bytes() + kept_.bytes(); }
  std::string implementation() const override { return "own tiles and cells"; }

 protected:
  void launch(Inputs in, Outputs out, cudaStream_t stream) override {
    BufferSequence<runtime::ConstBuffer> next(in);
    const DeviceSpan<float> kept = out.size() > 1 ? device_values<float>(out[1]) : kept_.span();
    rnn_forward(shape_, rnn_spans<const float>(shape_.cell, next), device_values<float>(out[0]), kept, scratch_.span(),
                stream);
  }

 private:
  RnnShape shape_;
  Scratch scratch_, kept_;
};

class OwnRnnBackward final : public DeviceOp {
 public:
  OwnRnnBackward(const RnnShape& s, runtime::Cost cost, runtime::Device& device)
      : DeviceOp(own_operands(s, Pass::backward_data, false, f32), cost),
        shape_(s),
        scratch_(device, rnn_backward_scratch(s)) {}
  std::size_t scratch_bytes() const override { return scratch_.bytes(); }
  std::string implementation() const override { return "own tiles and cells"; }

 protected:
  void launch(Inputs in, Outputs out, cudaStream_t stream) override {
    BufferSequence<runtime::ConstBuffer> next(in);
    const auto operands = rnn_spans<const float>(shape_.cell, next);
    RnnBackwardInputs backward_inputs;
    backward_inputs.output = next(), backward_inputs.kept = next(), backward_inputs.output_gradient = next();
    BufferSequence<runtime::Buffer> gradients(out);
    rnn_backward(shape_, operands, backward_inputs, rnn_spans<float>(shape_.cell, gradients), scratch_.span(), stream);
  }

 private:
  RnnShape shape_;
  Scratch scratch_;
};

/// Runs an fp32 layer on operands of 16 bits, which each call converts to fp32, and rounds its results to 16 bits.
/// States between the steps are not rounded.
template <class T>
class ConvertedRnn final : public DeviceOp {
 public:
  ConvertedRnn(OperandLists operands, std::unique_ptr<Op> in_fp32, runtime::Device& device)
      : DeviceOp(std::move(operands), in_fp32->cost()), inner_(std::move(in_fp32)) {
    make_copies(inputs(), device, input_copies_);
    make_copies(outputs(), device, output_copies_);
  }
  std::size_t scratch_bytes() const override {
    std::size_t bytes = inner_->scratch_bytes();
    for (const auto* const list : {&input_copies_, &output_copies_})
      for (const runtime::OwnedBuffer& b : *list) bytes += b.buffer.bytes();
    return bytes;
  }
  std::string implementation() const override { return inner_->implementation() + ", operands converted"; }

 protected:
  void launch(Inputs in, Outputs out, cudaStream_t stream) override {
    std::vector<runtime::ConstBuffer> from(in.begin(), in.end());
    std::vector<runtime::Buffer> to(out.begin(), out.end());
    for (std::size_t i = 0; i < in.size(); ++i) {
      if (!input_copies_[i].memory) continue;
      to_floats(device_values<T>(in[i]), device_values<float>(input_copies_[i].buffer), stream);
      from[i] = input_copies_[i].buffer;
    }
    for (std::size_t i = 0; i < out.size(); ++i)
      if (output_copies_[i].memory) to[i] = output_copies_[i].buffer;
    inner_->execute(from, to);
    for (std::size_t i = 0; i < out.size(); ++i)
      if (output_copies_[i].memory) store(device_values<float>(to[i]), device_values<T>(out[i]), stream);
  }

 private:
  static void store(DeviceSpan<const float> from, DeviceSpan<Bf16> to, cudaStream_t s) { to_bf16(from, to, s); }
  static void store(DeviceSpan<const float> from, DeviceSpan<Fp16> to, cudaStream_t s) { to_fp16(from, to, s); }
  static void make_copies(std::span<const Operand> operands, runtime::Device& device,
                          std::vector<runtime::OwnedBuffer>& to) {
    for (const Operand& o : operands) {
      runtime::OwnedBuffer& b = to.emplace_back();
      if (o.format && *o.format != number_format(f32)) b = device.allocate(f32, o.elements);
    }
  }

  std::unique_ptr<Op> inner_;
  // The fp32 copies of operands; an operand without memory here is not converted.
  std::vector<runtime::OwnedBuffer> input_copies_, output_copies_;
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
  const runtime::Cost cost{.flops = run_flops(p), .bytes = native_bytes(p)};
  std::unique_ptr<Op> op;
  if (p.pass == Pass::forward) {
    op = std::make_unique<OwnRnnForward>(s, o.training, cost, device);
  } else {
    op = std::make_unique<OwnRnnBackward>(s, cost, device);
  }
  const auto operands = [&](core::Element layer) { return own_operands(s, p.pass, o.training, layer); };
  if (p.precision == Precision::bf16)
    return std::make_unique<ConvertedRnn<Bf16>>(operands(core::Element::bf16), std::move(op), device);
  if (p.precision == Precision::fp16)
    return std::make_unique<ConvertedRnn<Fp16>>(operands(core::Element::f16), std::move(op), device);
  return op;
}

}  // namespace gradmeter::kernels::cuda
