#include "model/passes.hpp"

#include "kernels/lns/softmax.hpp"
#include "kernels/loops.hpp"

namespace gradmeter::model {

void submit_loss(Queue& queue, const ConstBuffer& logits, const Batch& batch, const Buffer& delta,
                 const OutcomePlace& outcome, kernels::Precision precision) {
  const double elements = static_cast<double>(logits.count());
  queue.submit("forward.softmax", {.flops = 6 * elements, .bytes = 8 * elements}, [=] {
    const std::size_t labels = batch.labels.count();
    const float scale = (batch.loss_scale ? *batch.loss_scale : 1.0F) / static_cast<float>(labels);
    const auto take = [outcome, labels](const kernels::CrossEntropy& loss) {
      if (!outcome) return;
      outcome->loss_sum += loss.loss_sum;
      outcome->correct += loss.correct;
      outcome->samples += labels;
    };
    const kernels::PrecisionInfo& p = kernels::info(precision);
    if (!p.logarithmic_sums) return kernels::loops().cross_entropy(logits, batch.labels, scale, delta, take);
    take(kernels::lns_softmax_cross_entropy(kernels::Lns(p.logarithm_bits), logits.values<float>(),
                                            batch.labels.values<std::int32_t>(), logits.count() / labels, scale,
                                            delta.values<float>()));
  });
}

void submit_relu_backward(Queue& queue, const ConstBuffer& output, const Buffer& delta) {
  queue.submit("backward.relu", {.flops = 0, .bytes = 12.0 * static_cast<double>(delta.count())},
               [=] { kernels::loops().relu_backward(output, delta); });
}

}  // namespace gradmeter::model
