// SPDX-License-Identifier: Apache-2.0
// Recurrent layers on a GPU by our own kernels as operations.
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

/// The buffers of a call, taken in their order.
template <class AnyBuffer>
class Next {
 public:
  explicit Next(std::span<const AnyBuffer> all) : all_(all) {}
  auto operator()() { return device_values<float>(all_[at_++]); }
  /// The next buffer if the cell has memory; else empty.
  auto memory(Cell cell) { return cell == Cell::lstm ? (*this)() : decltype((*this)()){}; }

 private:
  std::span<const AnyBuffer> all_;
  std::size_t at_ = 0;
};

template <class T, class AnyBuffer>
RnnSpans<T> spans(Cell cell, Next<AnyBuffer>& next) {
  RnnSpans<T> layer_spans;
  layer_spans.input = next(), layer_spans.state = next(), layer_spans.memory = next.memory(cell);
  layer_spans.weights = next(), layer_spans.recurrent = next(), layer_spans.bias = next();
  return layer_spans;
}

class OwnRnnForward final : public DeviceOp {
 public:
  OwnRnnForward(const RnnShape& s, bool training, runtime::Cost cost, runtime::Device& device)
      : DeviceOp(own_operands(s, Pass::forward, training, f32), cost),
        s_(s),
        scratch_(device, rnn_forward_scratch(s)),
        kept_(device, training ? 0 : rnn_kept(s)) {}
  std::size_t scratch_bytes() const override { return scratch_.bytes() + kept_.bytes(); }
  std::string implementation() const override { return "own tiles and cells"; }

 protected:
  void launch(Inputs in, Outputs out, cudaStream_t stream) override {
    Next<runtime::ConstBuffer> next(in);
    const DeviceSpan<float> kept = out.size() > 1 ? device_values<float>(out[1]) : kept_.span();
    rnn_forward(s_, spans<const float>(s_.cell, next), device_values<float>(out[0]), kept, scratch_.span(), stream);
  }

 private:
  RnnShape s_;
  Scratch scratch_, kept_;
};

class OwnRnnBackward final : public DeviceOp {
 public:
  OwnRnnBackward(const RnnShape& s, runtime::Cost cost, runtime::Device& device)
      : DeviceOp(own_operands(s, Pass::backward_data, false, f32), cost),
        s_(s),
        scratch_(device, rnn_backward_scratch(s)) {}
  std::size_t scratch_bytes() const override { return scratch_.bytes(); }
  std::string implementation() const override { return "own tiles and cells"; }

 protected:
  void launch(Inputs in, Outputs out, cudaStream_t stream) override {
    Next<runtime::ConstBuffer> next(in);
    const auto o = spans<const float>(s_.cell, next);
    RnnForwardState f;
    f.output = next(), f.kept = next(), f.output_gradient = next();
    Next<runtime::Buffer> to(out);
    rnn_backward(s_, o, f, spans<float>(s_.cell, to), scratch_.span(), stream);
  }

 private:
  RnnShape s_;
  Scratch scratch_;
};

/// Converts 16-bit operands to fp32 in each call and rounds the output; states between the steps are not rounded.
template <class T>
class ConvertedRnn final : public DeviceOp {
 public:
  ConvertedRnn(OperandLists operands, std::unique_ptr<Op> in_fp32, runtime::Device& device)
      : DeviceOp(std::move(operands), in_fp32->cost()), inner_(std::move(in_fp32)) {
    copies(inputs(), device, read_);
    copies(outputs(), device, written_);
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
      if (o.format && *o.format != number_format(f32)) b = device.allocate(f32, o.elements);
    }
  }

  std::unique_ptr<Op> inner_;
  std::vector<runtime::OwnedBuffer> read_, written_;  // an operand without memory here is not converted
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
