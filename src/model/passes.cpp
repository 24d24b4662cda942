#include "model/passes.hpp"

#include "kernels/lns/softmax.hpp"
#include "kernels/pointwise.hpp"

namespace gradmeter::model {

void submit_loss(Queue& queue, const ConstBuffer& logits, const Batch& batch, const Buffer& delta,
                 const OutcomePlace& outcome, kernels::Precision precision) {
  const double elements = static_cast<double>(logits.count());
  queue.submit("forward.softmax", {.flops = 6 * elements, .bytes = 8 * elements}, [=] {
    const auto x = logits.values<float>();
    const auto y = batch.labels.values<std::int32_t>();
    const float scale = (batch.loss_scale ? *batch.loss_scale : 1.0F) / static_cast<float>(y.size());
    const std::size_t classes = x.size() / y.size();
    const kernels::PrecisionInfo& p = kernels::info(precision);
    const kernels::CrossEntropy loss =
        p.logarithmic_sums ? kernels::lns_softmax_cross_entropy(kernels::Lns(p.logarithm_bits), x, y, classes, scale,
                                                                delta.values<float>())
                           : kernels::softmax_cross_entropy(x, y, classes, scale, delta.values<float>());
    if (!outcome) return;
    outcome->loss_sum += loss.loss_sum;
    outcome->correct += loss.correct;
    outcome->samples += y.size();
  });
}

void submit_relu_backward(Queue& queue, const ConstBuffer& output, const Buffer& delta) {
  queue.submit("backward.relu", {.flops = 0, .bytes = 12.0 * static_cast<double>(delta.count())},
               [=] { kernels::relu_backward(output.values<float>(), delta.values<float>()); });
}

}  // namespace gradmeter::model
