#include "model/recorded_pass.hpp"

namespace gradmeter::model {
namespace {

/// Submits recorded work, with its layers.
class Again {
 public:
  explicit Again(Queue& queue) : queue_(queue) {}
  void submit(const runtime::RecordedWork& w) {
    if (w.layer != layer_) enter(w.layer);
    queue_.submit(w.label, w.cost, w.work);
  }
  void enter(int layer) { queue_.enter_layer(layer_ = layer); }

 private:
  Queue& queue_;
  int layer_ = Queue::no_layer;
};

}  // namespace

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
  Again again(queue);
  for (const runtime::RecordedWork& w : forward_) again.submit(w);
  again.enter(Queue::no_layer);
}

void RecordedPass::submit_backward(Queue& queue, const Model::Ready& ready) const {
  std::size_t submitted = 0, announced = 0;
  const auto announce = [&] {
    for (; announced < announced_after_.size() && announced_after_[announced] == submitted; ++announced)
      ready(announced);
  };
  announce();
  Again again(queue);
  for (const runtime::RecordedWork& w : backward_) {
    again.submit(w);
    ++submitted;
    announce();
  }
  again.enter(Queue::no_layer);
}

}  // namespace gradmeter::model
