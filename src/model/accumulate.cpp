#include "model/accumulate.hpp"

#include "core/error.hpp"
#include "core/format.hpp"
#include "kernels/loops.hpp"

namespace gradmeter::model {
namespace {

std::size_t at_least_one(std::size_t micro_batches) {
  if (micro_batches == 0) throw core::UsageError("a batch is accumulated in 0 micro-batches; give 1 or more");
  return micro_batches;
}

}  // namespace

Buffer GradientSum::target(Queue& queue, std::size_t i, const Buffer& gradients) {
  if (i > 0 || micro_batches_ == 1) return gradients;
  if (sum_.memory == nullptr) sum_ = queue.device().allocate(core::Element::f32, elements_);
  return sum_.buffer;
}

void GradientSum::take(Queue& queue, std::size_t i, const Buffer& gradients, std::size_t offset, std::size_t count) {
  if (i == 0) return;  // it was written in place
  const bool last = i + 1 == micro_batches_;
  const auto factor = static_cast<float>(1.0 / static_cast<double>(micro_batches_));
  const double elements = static_cast<double>(count);
  queue.submit("backward.accumulate", {.flops = (last ? 2 : 1) * elements, .bytes = 12 * elements},
               [last, factor, to = gradients.part(offset, count), from = sum_.buffer.part(offset, count)] {
                 if (last) return kernels::loops().add_and_scale(from, to, factor, to);
                 kernels::loops().add(from, to, from);
               });
}

std::size_t micro_batch_samples(std::size_t samples, std::size_t micro_batches) {
  if (samples == 0 || samples % micro_batches != 0) {
    throw core::UsageError(
        fmt::format("a batch of {} samples does not divide into {} micro-batches; make it a multiple of {}", samples,
                    micro_batches, micro_batches));
  }
  return samples / micro_batches;
}

Batch part_of(const Batch& b, std::size_t features, std::size_t first, std::size_t count) {
  return {b.inputs.part(first * features, count * features),
          b.labels.part(first * b.labels_each, count * b.labels_each), b.labels_each, b.loss_scale};
}

Accumulate::Accumulate(std::unique_ptr<Model> inner, std::size_t micro_batches)
    : inner_(std::move(inner)), sum_(inner_->element_count(), at_least_one(micro_batches)) {}

std::size_t Accumulate::workspace_bytes(std::size_t samples) const {
  const std::size_t k = sum_.micro_batches(), sums = k > 1 ? element_count() * sizeof(float) : 0;
  return inner_->workspace_bytes((samples + k - 1) / k) + sums;
}

std::vector<RepeatedProblem> Accumulate::pass_problems(std::size_t samples) const {
  auto products = inner_->pass_problems(micro_batch_samples(samples, sum_.micro_batches()));
  for (RepeatedProblem& p : products) p.times *= sum_.micro_batches();
  return products;
}

PeerTraffic Accumulate::pass_traffic(std::size_t samples) const {
  const PeerTraffic once = inner_->pass_traffic(micro_batch_samples(samples, sum_.micro_batches()));
  PeerTraffic all;
  for (std::size_t i = 0; i < sum_.micro_batches(); ++i) {
    all.sums.insert(all.sums.end(), once.sums.begin(), once.sums.end());
    all.messages += once.messages;
    all.floats_sent += once.floats_sent;
  }
  return all;
}

void Accumulate::run_pass(Queue& queue, Buffers buffers, const Batch& batch, const Ready& ready,
                          const OutcomePlace& outcome) {
  const std::size_t k = sum_.micro_batches(), samples = micro_batch_samples(batch.samples(), k);
  for (std::size_t i = 0; i < k; ++i) {
    const bool last = i + 1 == k;
    const Buffers here{buffers.parameters, sum_.target(queue, i, buffers.gradients)};
    inner_->run_pass(
        queue, here, part_of(batch, input_features(), i * samples, samples),
        [&](std::size_t t) {
          if (!last) return;
          sum_.take(queue, i, buffers.gradients, tensors()[t].offset, tensors()[t].count);
          ready(t);
        },
        outcome);
    if (!last) sum_.take(queue, i, buffers.gradients, 0, element_count());
  }
}

}  // namespace gradmeter::model
