#include "model/layers/inference_product.hpp"

#include "kernels/loops.hpp"
#include "kernels/quantization.hpp"
#include "model/layers/plain_op.hpp"

namespace gradmeter::model {
namespace {

/// Whole numbers and convolutions have no bias of their own.
kernels::Problem as_run(kernels::Problem p, const runtime::Device& device) {
  auto* const gemm = std::get_if<kernels::GemmShape>(&p.shape);
  if (!gemm) return p;
  gemm->packed = true;
  if (!kernels::op_refusal(p, device).empty()) gemm->packed = false;
  if (!kernels::info(p.precision).exact) return p;
  gemm->bias = false;
  gemm->activation = kernels::Activation::none;
  return p;
}

kernels::OpOptions options_of(const InferenceProduct& p, const InferenceRequest& r, runtime::Queue& queue) {
  if (!kernels::info(r.precision).exact) return {};
  kernels::Quantization q = kernels::quantize_range(r.input.least, r.input.greatest);
  q.weight_quanta.resize(r.parameters.at(1).count());
  queue.at_once([&] {
    kernels::raise_to_largest(r.parameters.at(0).values<float>(), p.output_weights, q.weight_quanta);
    kernels::to_weight_quanta(q.weight_quanta);
  });
  return {.quantization = std::move(q)};
}

class PreparedInferenceProduct final : public InferenceLayer {
 public:
  PreparedInferenceProduct(const InferenceProduct& p, const InferenceRequest& r, runtime::Queue& queue)
      : op_(as_run(p.problem, queue.device()), queue.device(), options_of(p, r, queue)), is_relu_(p.is_relu) {
    op_.keep(queue, "inference.pack", 1, r.parameters.at(0));
    if (op_.op().inputs().size() > 2) {
      op_.keep(queue, "inference.pack", 2, r.parameters.at(1));
    } else {
      find_offsets(r.parameters.at(1), p.output_places, queue);
    }
  }

  void forward(runtime::Queue& queue, const runtime::ConstBuffer& input, const runtime::Buffer& output) override {
    op_.run(queue, "inference.product", "inference.pack",
            std::vector<runtime::ConstBuffer>(op_.op().inputs().size(), input), {output});
    if (offsets_.buffer.count() == 0) return;
    const double elements = static_cast<double>(output.count());
    queue.submit("inference.bias", {.flops = elements, .bytes = 8 * elements},
                 [output, offsets = offsets_.buffer, is_relu = is_relu_] {
                   kernels::loops().add_row(output, offsets, is_relu, output);
                 });
  }
  std::string implementation() const override { return op_.op().implementation(); }

 private:
  void find_offsets(const runtime::ConstBuffer& bias, std::size_t places, runtime::Queue& queue) {
    const auto floats = [&](std::size_t n) { return queue.device().allocate(core::Element::f32, n); };
    const auto zeros = floats(op_.op().inputs()[0].elements), outputs = floats(op_.op().outputs()[0].elements);
    forward(queue, zeros.buffer, outputs.buffer);
    offsets_ = floats(bias.count() * places);
    queue.at_once([&] {
      const auto added = outputs.buffer.values<float>();
      const auto to = offsets_.buffer.values<float>();
      for (std::size_t i = 0; i < to.size(); ++i) to[i] = bias.values<float>()[i / places] - added[i];
    });
  }

  PlainOp op_;
  bool is_relu_;
  runtime::OwnedBuffer offsets_;  // of one sample; none: the operation adds the bias
};

}  // namespace

std::unique_ptr<InferenceLayer> make_inference_product(const InferenceProduct& p, const InferenceRequest& r,
                                                       runtime::Queue& queue) {
  return std::make_unique<PreparedInferenceProduct>(p, r, queue);
}

}  // namespace gradmeter::model
