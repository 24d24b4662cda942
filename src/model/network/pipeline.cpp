// SPDX-License-Identifier: Apache-2.0
#include "model/network/pipeline.hpp"

#include "core/error.hpp"
#include "core/format.hpp"
#include "kernels/host/memory.hpp"
#include "kernels/loops.hpp"
#include "model/layers/operations.hpp"

namespace gradmeter::model {
namespace {

/// Submits recorded work again, each piece under its layer (`Queue::enter_layer`). Calls `submitted(n)` after the n-th
/// piece.
template <class Submitted>
void submit_again(Queue& queue, const std::vector<runtime::RecordedWork>& recorded, const Submitted& submitted) {
  int layer = Queue::no_layer;
  std::size_t count = 0;
  for (const runtime::RecordedWork& w : recorded) {
    if (w.layer != layer) queue.enter_layer(layer = w.layer);
    queue.submit(w.label, w.cost, w.work);
    submitted(++count);
  }
  queue.enter_layer(Queue::no_layer);
}

}  // namespace

bool RecordedPass::should_record(const Operands& o) {
  recorded_ = false;
  const bool same = last_ == o;
  last_ = o;
  return same;
}

void RecordedPass::begin() {
  forward_.clear();
  backward_.clear();
  announced_after_.clear();
}

void RecordedPass::submit_forward(Queue& queue) const {
  submit_again(queue, forward_, [](std::size_t) {});
}

void RecordedPass::submit_backward(Queue& queue, const Model::Ready& ready) const {
  std::size_t announced = 0;
  const auto announce = [&](std::size_t submitted) {
    for (; announced < announced_after_.size() && announced_after_[announced] == submitted; ++announced)
      ready(announced);
  };
  announce(0);
  submit_again(queue, backward_, announce);
}

Buffer GradientSum::target(Queue& queue, std::size_t i, const Buffer& gradients) {
  if (i > 0 || micro_batches_ == 1) return gradients;
  if (sum_.memory == nullptr) sum_ = queue.device().allocate(core::Element::f32, elements_);
  return sum_.buffer;
}

void GradientSum::add(Queue& queue, std::size_t i, const Buffer& gradients, std::size_t offset, std::size_t count) {
  if (i == 0) return;  // micro-batch 0 has written where `target` said, so there is nothing to add
  const bool is_last = i + 1 == micro_batches_;
  const auto factor = static_cast<float>(1.0 / static_cast<double>(micro_batches_));
  const double elements = static_cast<double>(count);
  queue.submit("backward.accumulate", {.flops = (is_last ? 2 : 1) * elements, .bytes = 12 * elements},
               [is_last, factor, to = gradients.part(offset, count), from = sum_.buffer.part(offset, count)] {
                 if (is_last) return kernels::loops().add_and_scale(from, to, factor, to);
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

Batch part_of(const Batch& batch, std::size_t features, std::size_t first, std::size_t count) {
  return {batch.inputs.part(first * features, count * features),
          batch.labels.part(first * batch.labels_each, count * batch.labels_each), batch.labels_each, batch.loss_scale};
}

TiedWeight::TiedWeight(const HeldLayers& held, const Part& part)
    : held_(held),
      peers_(part.peers),
      is_first_(part.stage == 0),
      micro_batches_(part.micro_batches),
      gradient_sum_(held.tied_between_stages(), part.micro_batches) {}

void TiedWeight::add_traffic(PeerTraffic& traffic, bool backward) const {
  if (floats() == 0 || (uses() && !backward)) return;
  traffic.messages += 1, traffic.floats_sent += floats();
}

Buffer TiedWeight::weight_in(const Buffer& flat) const {
  const Tensor& t = held_.tensors()[held_.tensor_of(0, 0)];
  return flat.part(t.offset, t.count);
}

void TiedWeight::begin(Queue& queue, const Buffer& parameters, bool in_use) {
  if (uses()) receive_ = peers_->receive(OtherStage::first, weight_, in_use ? queue.record() : nullptr);
  if (!owns()) return;
  queue.copy("forward.lend", weight_in(parameters), weight_);
  send_ = peers_->send(OtherStage::last, weight_);
}

void TiedWeight::end() {
  if (send_) send_->wait();
  send_.reset();
}

void TiedWeight::await_weight() {
  if (!uses() || !receive_) return;
  receive_->wait();
  receive_.reset();
}

Buffer TiedWeight::gradient_target(Queue& queue, std::size_t micro_batch) {
  return uses() ? gradient_sum_.target(queue, micro_batch, gradient_) : runtime::empty_buffer;
}

void TiedWeight::return_gradient(Queue& queue, std::size_t micro_batch) {
  if (!uses()) return;
  gradient_sum_.add(queue, micro_batch, gradient_, 0, floats());
  if (micro_batch + 1 == micro_batches_) send_ = peers_->send(OtherStage::first, gradient_);
}

void TiedWeight::clear_gradient(Queue& queue, const Buffer& gradients) const {
  if (owns()) submit_clear(queue, "backward.clear", weight_in(gradients));
}

void TiedWeight::expect_gradient() {
  if (owns()) receive_ = peers_->receive(OtherStage::last, gradient_, nullptr);
}

void TiedWeight::add_gradient(Queue& queue, std::size_t tensor, const Buffer& gradients) {
  if (!owns() || tensor != held_.tensor_of(0, 0)) return;
  receive_->wait();
  receive_.reset();
  submit_sum(queue, "backward.lent", weight_in(gradients), gradient_, weight_in(gradients));
}

Buffer MemoryPlanner::take(std::size_t floats, bool is_peer_readable) {
  const Buffer& memory = is_peer_readable ? peer_readable_memory_ : own_memory_;
  std::size_t& used = is_peer_readable ? peer_readable_ : own_;
  const std::size_t at = used;
  used += kernels::floats_in_whole_lines(floats);
  return memory.count() == 0 ? memory : memory.part(at, floats);
}

}  // namespace gradmeter::model
