#include "model/recorded_pass.hpp"

namespace gradmeter::model {

bool RecordedPass::recurs(const Operands& o) {
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
  for (const runtime::RecordedWork& w : forward_) queue.submit(w.label, w.cost, w.work);
}

void RecordedPass::submit_backward(Queue& queue, const Model::Ready& ready) const {
  std::size_t submitted = 0, announced = 0;
  const auto announce = [&] {
    for (; announced < announced_after_.size() && announced_after_[announced] == submitted; ++announced)
      ready(announced);
  };
  announce();
  for (const runtime::RecordedWork& w : backward_) {
    queue.submit(w.label, w.cost, w.work);
    ++submitted;
    announce();
  }
}

}  // namespace gradmeter::model
