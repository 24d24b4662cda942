// A call under way in virtual time.
#pragma once
#include <memory>
#include <stdexcept>
#include <string>

#include "dataparallel/operation.hpp"
#include "dataparallel/simulation/event_scheduler.hpp"

namespace gradmeter::dataparallel {

class SimOperation : public Operation {
 public:
  /// Posted now by the running thread.
  SimOperation(EventScheduler& scheduler, std::string label)
      : scheduler_(scheduler), thread_(scheduler.running_thread()), label_(std::move(label)) {
    completion_.posted = scheduler.now(thread_);
  }
  /// At the asking thread's time: a background task may have posted it, and ended since.
  bool done() const override {
    return complete_ && completion_.finished <= scheduler_.now(scheduler_.running_thread());
  }
  const Completion& completion() const override {
    if (!complete_) throw std::logic_error("a call's completion was asked for before it was done");
    return completion_;
  }
  std::string_view label() const override { return label_; }
  bool complete() const { return complete_; }
  double posted() const { return completion_.posted; }
  int thread() const { return thread_; }

  /// Completes at that time, which may be in the future. Wakes the thread if it waits for this.
  void finish(double started, double finished, std::uint64_t sent, std::uint64_t due) {
    completion_.started = started;
    completion_.finished = finished;
    completion_.bytes_sent = sent;
    completion_.bytes_due = due;
    complete_ = true;
    if (waited_for_) scheduler_.wake(thread_, finished);
  }
  virtual void wait() {
    while (!complete_) sleep(EventScheduler::forever);
    // Not by a difference of times, which would round: it must be done when this returns.
    while (completion_.finished > scheduler_.now(thread_)) scheduler_.block(thread_, label_, completion_.finished);
  }

 protected:
  void sleep(double until) {
    waited_for_ = true;
    scheduler_.block(thread_, label_, until);
    waited_for_ = false;
  }
  EventScheduler& scheduler_;

 private:
  int thread_;
  std::string label_;
  Completion completion_;
  bool complete_ = false, waited_for_ = false;
};
using SimTicket = std::shared_ptr<SimOperation>;

}  // namespace gradmeter::dataparallel
