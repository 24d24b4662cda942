#include "model/accumulate.hpp"

#include "core/error.hpp"
#include "core/format.hpp"

namespace gradmeter::model {
namespace {

std::size_t at_least_one(std::size_t micro_batches) {
  if (micro_batches == 0) throw core::UsageError("a batch is accumulated in 0 micro-batches; give 1 or more");
  return micro_batches;
}

}  // namespace

void GradientSum::take(Queue& queue, std::size_t i, std::span<float> gradients, std::size_t offset, std::size_t count) {
  if (i == 0) return;  // it was written in place
  float* const g = gradients.data() + offset;
  float* const s = sum_.data() + offset;
  const bool last = i + 1 == micro_batches_;
  const auto factor = static_cast<float>(1.0 / static_cast<double>(micro_batches_));
  const double elements = static_cast<double>(count);
  queue.submit("backward.accumulate", {.flops = (last ? 2 : 1) * elements, .bytes = 12 * elements}, [&] {
    if (last) {
      for (std::size_t k = 0; k < count; ++k) g[k] = (s[k] + g[k]) * factor;
    } else {
      for (std::size_t k = 0; k < count; ++k) s[k] += g[k];
    }
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
  return {b.inputs.part(first * features, count * features), b.labels.part(first, count)};
}

Accumulate::Accumulate(std::unique_ptr<Model> inner, std::size_t micro_batches)
    : inner_(std::move(inner)), sum_(inner_->element_count(), at_least_one(micro_batches)) {}

std::size_t Accumulate::workspace_bytes(std::size_t samples) const {
  const std::size_t k = sum_.micro_batches(), sums = k > 1 ? element_count() * sizeof(float) : 0;
  return inner_->workspace_bytes((samples + k - 1) / k) + sums;
}

std::vector<RepeatedProduct> Accumulate::pass_products(std::size_t samples) const {
  auto products = inner_->pass_products(micro_batch_samples(samples, sum_.micro_batches()));
  for (RepeatedProduct& p : products) p.times *= sum_.micro_batches();
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

Outcome Accumulate::pass(Queue& queue, Buffers buffers, const Batch& batch, const Ready& ready) {
  const std::size_t k = sum_.micro_batches(), samples = micro_batch_samples(batch.samples(), k);
  if (k == 1) return inner_->pass(queue, buffers, batch, ready);
  const std::span<float> gradients = buffers.gradients.values<float>();
  Outcome all;
  for (std::size_t i = 0; i < k; ++i) {
    const Buffers here{buffers.parameters, sum_.target(i, gradients)};
    const Batch micro = part_of(batch, input_features(), i * samples, samples);
    const auto average = [&](std::size_t t) {
      sum_.take(queue, i, gradients, tensors()[t].offset, tensors()[t].count);
      ready(t);
    };
    const bool last = i + 1 == k;
    const Outcome one = inner_->pass(queue, here, micro, last ? Ready(average) : Ready([](std::size_t) {}));
    if (!last) sum_.take(queue, i, gradients, 0, gradients.size());
    all.loss_sum += one.loss_sum;
    all.correct += one.correct;
    all.samples += one.samples;
  }
  return all;
}

}  // namespace gradmeter::model
