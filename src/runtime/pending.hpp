// A value that work on a queue computes: a loss, a norm. Known to the caller only after that work.
#pragma once
#include <memory>
#include <utility>

#include "runtime/queue.hpp"

namespace gradmeter::runtime {

template <class T>
class Pending {
 public:
  /// Value-initialised until work sets it. The queue must outlive the calls of `get`.
  explicit Pending(Queue& queue) : queue_(&queue), value_(std::make_shared<T>()) {}

  /// For the work, which captures it by value: the place to write to.
  std::shared_ptr<T> place() const { return value_; }
  /// Waits for all work submitted so far.
  const T& get() const {
    queue_->synchronise();
    return *value_;
  }

 private:
  Queue* queue_;
  std::shared_ptr<T> value_;
};

}  // namespace gradmeter::runtime
