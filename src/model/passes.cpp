#include "model/passes.hpp"

#include "kernels/loops.hpp"

namespace gradmeter::model {

void submit_loss(Queue& queue, const ConstBuffer& logits, const Batch& batch, const Buffer& delta,
                 const OutcomePlace& outcome, kernels::Precision precision) {
  const double elements = static_cast<double>(logits.count());
  queue.submit("forward.softmax", {.flops = 6 * elements, .bytes = 8 * elements}, [=] {
    const auto take = [outcome, labels = batch.labels.count()](const kernels::CrossEntropy& loss) {
      if (!outcome) return;
      outcome->loss_sum += loss.loss_sum;
      outcome->correct += loss.correct;
      outcome->samples += labels;
    };
    const kernels::Loops& loops = kernels::loops();
    const kernels::PrecisionInfo& p = kernels::info(precision);
    if (!p.logarithmic_sums) return loops.cross_entropy(logits, batch.labels, batch.loss_scale, delta, take);
    loops.lns_cross_entropy(p.logarithm_bits, logits, batch.labels, batch.loss_scale, delta, take);
  });
}

void submit_relu_backward(Queue& queue, const ConstBuffer& output, const Buffer& delta) {
  queue.submit("backward.relu", {.flops = 0, .bytes = 12.0 * static_cast<double>(delta.count())},
               [=] { kernels::loops().relu_backward(output, delta); });
}

}  // namespace gradmeter::model
