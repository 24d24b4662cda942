#include "model/lent_weight.hpp"

#include <algorithm>

#include "kernels/loops.hpp"

namespace gradmeter::model {

LentWeight::LentWeight(const NetworkPart& part, const Part& p)
    : part_(part),
      peers_(p.peers),
      is_first_(p.stage == 0),
      micro_batches_(p.micro_batches),
      sum_(part.lent_between_stages(), p.micro_batches) {}

void LentWeight::count(PeerTraffic& t, bool backward) const {
  if (floats() == 0 || (borrows() && !backward)) return;
  t.messages += 1, t.floats_sent += floats();
}

Buffer LentWeight::of(const Buffer& flat) const {
  const Tensor& t = part_.tensors()[part_.tensor_of(0, 0)];
  return flat.part(t.offset, t.count);
}

void LentWeight::begin(Queue& queue, const Buffer& parameters, bool in_use) {
  if (borrows()) expected_ = peers_->receive(Neighbour::first, weight_, in_use ? queue.record() : nullptr);
  if (!lends()) return;
  queue.copy("forward.lend", of(parameters), weight_);
  left_ = peers_->send(Neighbour::last, weight_);
}

void LentWeight::end() {
  if (left_) left_->wait();
  left_.reset();
}

void LentWeight::await_weight() {
  if (!borrows() || !expected_) return;
  expected_->wait();
  expected_.reset();
}

Buffer LentWeight::gradient_target(Queue& queue, std::size_t micro_batch) {
  return borrows() ? sum_.target(queue, micro_batch, gradient_) : runtime::no_floats;
}

void LentWeight::return_gradient(Queue& queue, std::size_t micro_batch) {
  if (!borrows()) return;
  sum_.take(queue, micro_batch, gradient_, 0, floats());
  if (micro_batch + 1 == micro_batches_) left_ = peers_->send(Neighbour::first, gradient_);
}

void LentWeight::clear(Queue& queue, const Buffer& gradients) const {
  if (!lends()) return;
  const Buffer to = of(gradients);
  queue.submit("backward.clear", {.flops = 0, .bytes = static_cast<double>(to.bytes())},
               [to] { kernels::loops().clear(to); });
}

void LentWeight::expect_gradient() {
  if (lends()) expected_ = peers_->receive(Neighbour::last, gradient_, nullptr);
}

void LentWeight::add_gradient(Queue& queue, std::size_t tensor, const Buffer& gradients) {
  if (!lends() || tensor != part_.tensor_of(0, 0)) return;
  expected_->wait();
  expected_.reset();
  const double n = static_cast<double>(floats());
  queue.submit("backward.lent", {.flops = n, .bytes = 12 * n},
               [to = of(gradients), from = gradient_] { kernels::loops().add(to, from, to); });
}

}  // namespace gradmeter::model
